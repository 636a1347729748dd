"""The data source `sow`: creates readers and writers for Spark.

The options determine the columns: those of the row as it is (like Kafka's), some of them, or fields
of the body in the types of a schema or of inferred types. Spark always passes a schema: it is the
caller's unless Spark has requested ours. Types without values in messages are refused beforehand,
with the name of the column.
"""

from collections.abc import MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from sow.core.pipelines import LOG, RECORDS, STREAM, STREAM_WRITE, WRITE, Use
from sow.errors import ClientError
from sow.messages.arrow import KIND_OF_COLUMN
from sow.spark.changes import BESIDE_THE_BODY, CHANGE, check_applied, check_change_columns
from sow.spark.columns import (
    ROW,
    SPARK_ROW,
    Messages,
    check_row_columns,
)
from sow.spark.inference import chosen, columns_of_records, messages_of, spark_schema
from sow.spark.options import SourceOptions, any_option, read_options
from sow.spark.reader import PushingReader, SowReader
from sow.spark.stream import SowStreamReader
from sow.spark.writer import SowStreamWriter, SowWriter


class SowDataSource(DataSource):
    """`format("sow")`: topics as DataFrames, their logs as streams, and both to write to.

    `options` are texts, as Spark hands them over; each, with its default and where it applies, is
    in docs/guide/spark.md. Rows as they are have the columns `bookmark` (long), `topic`, `key` (the
    SowKey, docs/semantics.md, Rule 5), `op`, `ts` (timestamp, UTC, microseconds) and `value` (the
    body, as text). With a schema of the caller's, or `inferSchema`, columns are fields of the
    bodies, whatever their names, and those of the row are called `_bookmark`, `_key` and so on.

    Every method raises ClientError for an option that does not exist, has an invalid value or does
    not apply, before anything is read or written.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        self._reads_rows = False
        """The columns are those of the row as it is: Spark has requested a schema and got these."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sow"

    def _for(self, use: Use | None = None) -> SourceOptions:
        return read_options(self._given, use)

    def schema(self) -> StructType | str:
        """The default columns: those of a row as it is, or some of them.

        With `inferSchema` the fields of the records, in the types of their values: this reads all
        of them. Raises ClientError for a missing column, and for a topic without columns.
        """
        options = self._for()
        self._reads_rows = not options.infer_schema
        if options.infer_schema:
            return spark_schema(columns_of_records(options))
        if options.cdc:
            return from_arrow_schema(
                chosen(CHANGE, options.columns, "a change; give a schema for fields")
            )
        if not options.columns:
            return SPARK_ROW
        return from_arrow_schema(chosen(ROW, options.columns, "a row; give a schema for fields"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read into `schema`: the records as of one moment, or a part of the log.

        `startingBookmark` selects the log. The rows are the same whatever the number of tasks and
        of their repetitions.
        """
        from_log = any_option(self._given, "startingBookmark") is not None
        options = self._for(LOG if from_log else RECORDS)
        kind = PushingReader if options.pushdown else SowReader
        wanted = _arrow(schema)
        return kind(options, wanted, from_log, self._messages(options, wanted))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream read into `schema`: the log, batch by batch, each change once.

        Offsets stand in Spark's checkpoint, and hold both ends of their batch.
        """
        options, wanted = self._for(STREAM), _arrow(schema)
        return SowStreamReader(options, wanted, self._messages(options, wanted))

    def _messages(self, options: SourceOptions, schema: pa.Schema) -> Messages | None:
        """The message type of the bodies whose fields a schema selects, if it does; raises
        ClientError if they have none."""
        if self._reads_rows:
            return None
        check_row_columns(schema)
        if options.cdc:
            check_change_columns(schema, options)
            schema = pa.schema([field for field in schema if field.name not in BESIDE_THE_BODY])
        messages = messages_of(options)
        messages.check(schema)
        return messages

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write, all of it or nothing; `overwrite` is refused with ClientError.

        Rows have a column `value`, or columns that become a document per row, and may have `key`
        and `op`. Tasks stage them and the driver applies them in one step.
        """
        if overwrite:
            raise ClientError(
                'a topic is not overwritten: write with .mode("append"), which replaces the '
                'records of the same keys; .option("mode", "replace") removes all others in the '
                "same step"
            )
        check_types(schema)
        check_applied(self._given, schema)
        return SowWriter(self._for(WRITE), schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """A stream write, each batch exactly once; `overwrite`, of complete mode, is ignored.

        The same as `writer`, under the writer's name and the number of the batch: a repeated batch
        is applied once.
        """
        check_types(schema)
        check_applied(self._given, schema)
        return SowStreamWriter(self._for(STREAM_WRITE), schema)


def _arrow(schema: StructType) -> pa.Schema:
    check_types(schema)
    found = to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)
    kinds = [field.metadata.get(KIND_OF_COLUMN) for field in schema]
    return pa.schema(
        [
            field if kind is None else field.with_metadata({KIND_OF_COLUMN: kind})
            for field, kind in zip(found, kinds, strict=True)
        ]
    )


SCALARS = (
    NumericType,
    StringType,
    BooleanType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
    VariantType,
)
"""The types of Spark that have values in messages; an interval would come back as another value."""
NAMES_OF_FIELDS = (StringType, IntegralType, DateType, TimestampType, TimestampNTZType)
"""The types of keys of maps: each value has one text, and each of these texts one value."""
INSTEAD = {
    "interval": "cast(column as string), or a number of seconds",
    "time": "cast(column as string)",
}


def check_types(schema: StructType) -> None:
    """Raise ClientError for the first column of a type without values in messages."""
    for field in schema:
        _check(field.name, field.dataType)


def _check(name: str, kind: DataType) -> None:
    match kind:
        case StructType():
            for field in kind:
                _check(f"{name}.{field.name}", field.dataType)
        case ArrayType():
            _check(name, kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, NAMES_OF_FIELDS):
                raise ClientError(
                    f"column {name} is of type {kind.simpleString()}: names of fields are texts, "
                    "whole numbers, dates or times; use map_from_entries with keys cast to string"
                )
            _check(name, kind.valueType)
        case _ if not isinstance(kind, SCALARS):
            text = kind.simpleString()
            near = next((use for word, use in INSTEAD.items() if word in text), "a cast")
            raise ClientError(
                f"column {name} is of type {text}, which has no values in messages; use {near}"
            )
