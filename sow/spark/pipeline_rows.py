"""Which columns of a pipeline's rows belong to the row, and where the fields of the body are.

Without a schema the rows of a topic have six columns of their own, and the body's fields are in one
of them, `value`. With a schema all columns are the body's fields, except those with a prefix
(`_key`). The result of SQL has its own names; `op`, `key` and `bookmark` have a meaning.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sow.core.pipelines import Pipeline
from sow.spark.columns import ROW

RowColumn = Literal["bookmark", "topic", "key", "op"]
KNOWN: tuple[RowColumn, ...] = ("bookmark", "topic", "key", "op")
"""The columns of a row that conflation and sinks use."""
REMOVE = ("delete", "expire", "match")
"""Values of a row's `op` that remove its record."""
OPERATIONS = ("publish", "tick", *REMOVE)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """The columns of the row, by meaning; whether the document in the column `value` holds the
    fields of the body; and the columns that are no fields."""

    names: dict[RowColumn, str]
    has_body: bool = False
    no_fields: frozenset[str] = frozenset()


def row_columns(columns: Collection[str], pipeline: Pipeline, has_text: bool) -> RowColumns:
    """The layout of the result of a pipeline's source and SQL; `has_text`: `value` is a text."""
    source = pipeline.source
    prefixed: dict[RowColumn, str] = {one: f"_{one}" for one in KNOWN if f"_{one}" in columns}
    plain: dict[RowColumn, str] = {one: one for one in KNOWN if one in columns}
    if source.is_typed:
        if pipeline.sql is None:
            return RowColumns(prefixed)
        return RowColumns(plain | prefixed, has_text)
    is_row = has_text and (source.format == "sow" or set(ROW.names) <= set(columns))
    own = set(ROW.names) & set(columns) if is_row else set()
    return RowColumns(prefixed | plain, has_text, frozenset(own))


def for_topic(frame: Any, pipeline: Pipeline) -> tuple[Any, dict[str, str]]:
    """Rows for a topic, and the options of their write: in typed rows the operation has a column
    with a prefix, and one without is a field."""
    from pyspark.sql.functions import lit

    if not pipeline.source.is_typed:
        return frame, {}
    options = {}
    for option, name in (("opColumn", "_op"), ("keyColumn", "_key")):
        if pipeline.sql is None and name[1:] in frame.columns and name not in frame.columns:
            frame = frame.withColumn(name, lit(None).cast("string"))
        if name in frame.columns:
            options[option] = name
    return frame, options
