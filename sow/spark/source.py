"""The data source `sow`: creates readers and writers for Spark.

The options determine the columns: those of the row as it is (like Kafka's), some of them, or fields
of the body in the types of a schema or of inferred types. Spark always passes a schema: it is the
caller's unless Spark has requested ours.
"""

from collections.abc import Iterator, MutableMapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sow.core.definitions import MessageTypeOptions, message_type_options
from sow.core.humanize import did_you_mean
from sow.core.pipelines import LOG, RECORDS, STREAM, STREAM_WRITE, WRITE, Use
from sow.errors import ClientError
from sow.messages.arrow import JSON_KIND, KIND_OF_COLUMN, PATH_OF_COLUMN, is_json_text
from sow.spark.columns import (
    JSON_MESSAGES,
    OF_THE_ROW,
    ROW,
    SPARK_ROW,
    Messages,
    check_row_columns,
)
from sow.spark.http import segment
from sow.spark.inference import inferred
from sow.spark.options import SourceOptions, any_option, read_options
from sow.spark.reader import PushingReader, SowReader
from sow.spark.snapshots import Wanted, take
from sow.spark.stream import SowStreamReader
from sow.spark.types import check_types
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

    @property
    def _options(self) -> SourceOptions:
        return read_options(self._given)

    def _for(self, use: Use) -> SourceOptions:
        return read_options(self._given, use)

    def schema(self) -> StructType | str:
        """The default columns: those of a row as it is, or some of them.

        With `inferSchema` the fields of the records, in the types of their values: this reads all
        of them. Raises ClientError for a missing column, and for a topic without columns.
        """
        options = self._options
        self._reads_rows = not options.infer_schema
        if options.infer_schema:
            return _spark(_of_the_records(options))
        if not options.columns:
            return SPARK_ROW
        return from_arrow_schema(_some(ROW, options.columns, "a row; give a schema for fields"))

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
        messages = _messages_of(options)
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
        return SowStreamWriter(self._for(STREAM_WRITE), schema)


def _messages_of(options: SourceOptions) -> Messages:
    """The message type of a topic."""
    server = options.server
    topic = server.json("GET", f"/v1/topics/{segment(options.topic)}", expected=True)
    name = topic["message_type"]
    if name == "json":
        return JSON_MESSAGES
    known = {one["name"]: one for one in server.json("GET", "/v1/message-types")}
    return Messages(
        message_type_options(known[name]) if name in known else MessageTypeOptions(name, name)
    )


def _spark(schema: pa.Schema) -> StructType:
    """The server's columns in types of Spark's; others raise an error that names them."""
    json_texts = {KIND_OF_COLUMN: JSON_KIND}
    return StructType(
        [
            StructField(
                made.name, made.dataType, made.nullable, json_texts if is_json_text(sent) else None
            )
            for sent, made in zip(schema, from_arrow_schema(schema), strict=True)
        ]
    )


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


def _of_the_records(options: SourceOptions) -> pa.Schema:
    """The columns that the records have, or some of them: fields of the bodies and, if they are
    named, columns of the row."""
    found = _inferred(options)
    taken = next((name for name in found.names if name in OF_THE_ROW), None)
    if taken is not None and not options.columns:
        raise ClientError(
            f"the records have a field {taken}, and a column of that name is the row's; name those "
            "to be read by the option columns"
        )
    fields = [field for field in found if field.name not in OF_THE_ROW]
    of_row = [pa.field(name, ROW.field(own).type) for name, own in OF_THE_ROW.items()]
    of_row = [field for field in of_row if field.name in options.columns]
    return _some(pa.schema([*fields, *of_row]), options.columns, "the records")


def _inferred(options: SourceOptions) -> pa.Schema:
    reply = options.server.arrow(
        f"/v1/topics/{segment(options.topic)}/records",
        filter=options.filter,
        top_n=0,
        **options.groups,
    )
    schema: pa.Schema = pa.ipc.open_stream(reply.body).schema
    # A field within another one is read as part of it.
    schema = pa.schema(
        [one for one in schema if PATH_OF_COLUMN.encode() not in (one.metadata or {})]
    )
    found = inferred(schema, _bodies(options), _messages_of(options)) if schema.names else schema
    if not found.names:
        raise ClientError(f"{options.topic} holds no records to take a schema from; give one")
    return found


def _bodies(options: SourceOptions) -> Iterator[Sequence[str]]:
    """The bodies of all records, whatever the filter: the type of a column does not depend on the
    rows of one read."""
    if options.groups:
        batches = SowReader(options, ROW, from_log=False).rows()
    else:
        server = options.server
        taken = take(server, Wanted(options.topic), options.as_of)
        batches = (batch for one in taken for part in one.parts for batch in part.read(server))
    for batch in batches:
        yield batch.column("value").to_pylist()


def _some(schema: pa.Schema, columns: tuple[str, ...], of: str) -> pa.Schema:
    for name in columns:
        if name not in schema.names:
            raise ClientError(f"no column {name!r}{did_you_mean(name, schema.names)} of {of}")
        if columns.count(name) > 1:
            raise ClientError(f"columns names {name!r} twice; once is enough")
    return pa.schema([schema.field(name) for name in columns or schema.names])
