"""SOW as a Spark data source: `format("sow")`, batch and stream, read and write.

    from sow.spark import session
    spark = session()
    spark.read.format("sow").option("topic", "orders").load()

Importing this package needs neither Spark nor Java: they are loaded when a session is created.
Nothing else of SOW imports it.
"""

from typing import Any

from sow.spark.session import session

__all__ = ["SowDataSource", "register", "session"]


def register(spark: Any) -> None:
    """Register `format("sow")` with a session; Spark finds it by itself where SOW is installed."""
    from sow.spark.source import SowDataSource

    spark.dataSource.register(SowDataSource)


def __getattr__(name: str) -> Any:
    if name == "SowDataSource":
        from sow.spark.source import SowDataSource

        return SowDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
