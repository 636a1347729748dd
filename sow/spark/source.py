"""The data source `sow`: what Spark asks for a reader or a writer.

Which columns there are follows from the options: those of the row as it is (like Kafka's), some of
them, or fields of the body in the types that a schema or a look at the data says.
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
from pyspark.sql.types import StructType

from sow.errors import ClientError
from sow.spark.columns import ROW, SPARK_ROW
from sow.spark.http import segment
from sow.spark.options import (
    LOG,
    RECORDS,
    STREAM,
    STREAM_WRITE,
    WRITE,
    Options,
    Use,
    any_option,
    read_options,
)
from sow.spark.reader import PushingReader, SowReader
from sow.spark.stream import SowStreamReader
from sow.spark.writer import SowStreamWriter, SowWriter
from sow.suggest import did_you_mean

SAMPLE_ROWS = 1_000


class SowDataSource(DataSource):
    """`format("sow")`; the options are in docs/guide/spark.md."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "sow"

    @property
    def _options(self) -> Options:
        return read_options(self._given)

    def _for(self, use: Use) -> Options:
        return read_options(self._given, use)

    def schema(self) -> StructType | str:
        """The columns where the user gives none."""
        options = self._options
        if options.infer_schema:
            found = _inferred(options)
            return from_arrow_schema(_some(found, options.columns, "the records"))
        if not options.columns:
            return SPARK_ROW
        return from_arrow_schema(_some(ROW, options.columns, "a row; give a schema for fields"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from_log = any_option(self._given, "startingBookmark") is not None
        options = self._for(LOG if from_log else RECORDS)
        kind = PushingReader if options.pushdown else SowReader
        return kind(options, _arrow(schema), from_log)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream read."""
        return SowStreamReader(self._for(STREAM), _arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch write."""
        if overwrite:
            raise ClientError(
                'a topic is not overwritten: write with .mode("append"), which replaces the '
                "records of the same keys; delete others with op = 'delete'"
            )
        return SowWriter(self._for(WRITE))

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """A stream write."""
        return SowStreamWriter(self._for(STREAM_WRITE))


def _arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC", prefers_large_types=False)


def _inferred(options: Options) -> pa.Schema:
    reply = options.server.arrow(
        f"/v1/topics/{segment(options.topic)}/records", filter=options.filter, top_n=SAMPLE_ROWS
    )
    found: pa.Schema = pa.ipc.open_stream(reply.body).schema
    if not found.names:
        raise ClientError(f"{options.topic} holds no records to take a schema from; give one")
    return found


def _some(schema: pa.Schema, columns: tuple[str, ...], of: str) -> pa.Schema:
    for name in columns:
        if name not in schema.names:
            raise ClientError(f"no column {name!r}{did_you_mean(name, schema.names)} of {of}")
    return pa.schema([schema.field(name) for name in columns or schema.names])
