"""SOW as a Spark data source: `format("sow")`, batch and stream, read and write.

    from sow.spark import session
    spark = session()
    spark.read.format("sow").option("topic", "orders").load()

Importing this package needs neither Spark nor Java: they are loaded when a session is created.
Nothing else of SOW imports it.
"""

from collections.abc import Sequence
from typing import Any

from sow.spark.session import session

__all__ = ["SowDataSource", "merge_into", "register", "session"]


def register(spark: Any) -> None:
    """Register `format("sow")` with a session; Spark finds it by itself where SOW is installed."""
    from sow.spark.source import SowDataSource

    spark.dataSource.register(SowDataSource)


def merge_into(df: Any, table: str, keys: Sequence[str]) -> None:
    """Apply a batch of rows of changes to a table of Delta or Iceberg by one MERGE
    (`sow.spark.changes.merge_into`)."""
    from sow.spark.changes import merge_into as merge

    merge(df, table, keys)


def __getattr__(name: str) -> Any:
    if name == "SowDataSource":
        from sow.spark.source import SowDataSource

        return SowDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
