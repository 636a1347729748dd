"""The data source `sow`: creates readers and writers for Spark, and infers columns.

The options determine the columns: those of the row as it is (like Kafka's), some of them, or fields
of the body in the types of a schema or of inferred types. Spark always passes a schema: it is the
caller's unless Spark has requested ours. Types without values in messages are refused beforehand,
with the name of the column.

With `inferSchema` columns and their types are derived from the records of the topic.

The server reports the types of the outermost fields over everything that a topic has ever held.
This module inspects those that are JSON texts: flags, objects and arrays become columns of
booleans, structs and arrays if every value of the records has that type. If some do not, at
whatever depth, the column stays one of JSON texts, which can hold any value. A field that no record
has any more is no column.
"""

import json
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from sow.core.definitions import MessageTypeOptions, message_type_options
from sow.core.humanize import did_you_mean
from sow.core.lossless_numbers import LosslessNumber
from sow.core.pipelines import LOG, RECORDS, STREAM, STREAM_WRITE, WRITE, Use
from sow.errors import ClientError
from sow.messages.arrow import ARROW_TYPES, JSON_KIND, KIND_OF_COLUMN, PATH_OF_COLUMN, is_json_text
from sow.messages.column_types import COLUMNS_MAX, INT_DIGITS_MAX, kind_of_value, type_of
from sow.messages.json_texts import JSON_NULL, FieldTexts
from sow.spark.changes import BESIDE_THE_BODY, CHANGE, check_applied, check_change_columns
from sow.spark.columns import JSON_MESSAGES, OF_THE_ROW, ROW, SPARK_ROW, Messages, check_row_columns
from sow.spark.http import SourceOptions, any_option, read_options, segment
from sow.spark.reader import PushingReader, SowReader
from sow.spark.stream import SowStreamReader
from sow.spark.writer import SowStreamWriter, SowWriter

DEPTH_MAX = 32
"""Depth of structs within structs; deeper values stay JSON texts."""


class JsonShape:
    """The common type of values: one that holds each of them, or none."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._kinds = 0
        """Whether values are texts, numbers or bytes."""
        self._has_flags = False
        self._fields: dict[str, JsonShape] | None = None
        self._items: JsonShape | None = None

    def add(self, value: Any) -> None:
        """Add a value."""
        if isinstance(value, bool):
            self._has_flags = True
        elif isinstance(value, dict):
            self._fields = {} if self._fields is None else self._fields
            for name, one in value.items():
                if self._depth < DEPTH_MAX and len(self._fields) <= COLUMNS_MAX:
                    self._fields.setdefault(name, JsonShape(self._depth + 1)).add(one)
        elif isinstance(value, list):
            self._items = self._items or JsonShape(self._depth + 1)
            for one in value if self._depth < DEPTH_MAX else ():
                self._items.add(one)
        else:
            self._kinds |= kind_of_value(value)

    @property
    def type(self) -> pa.DataType | None:
        """The type; None if only a JSON text holds every value."""
        kinds = (self._kinds, self._has_flags, self._fields is not None, self._items is not None)
        if sum(map(bool, kinds)) > 1 or self._depth > DEPTH_MAX:
            return None
        if self._fields is not None:
            found = {name: one.type for name, one in self._fields.items()}
            fits = found and len(found) <= COLUMNS_MAX and None not in found.values()
            return pa.struct(list(found.items())) if fits else None
        if self._items is not None:
            item = self._items.type
            return None if item is None else pa.list_(item)
        if self._has_flags:
            return pa.bool_()
        kind = type_of(self._kinds)
        return None if kind == "json" else ARROW_TYPES[kind]


def inferred(schema: pa.Schema, texts: Iterable[Sequence[str]], messages: Messages) -> pa.Schema:
    """The columns of records with the bodies `texts`, batch by batch, and the column types that the
    server reports."""
    shapes = {field.name: JsonShape() for field in schema if is_json_text(field)}
    absent = dict.fromkeys(schema.names)
    for some in texts:
        wanted = [*shapes, *(name for name in absent if name not in shapes)]
        for name, values in zip(wanted, _values(wanted, some, messages), strict=True):
            there = [value for value in values if value is not None]
            if there:
                absent.pop(name, None)
            if name in shapes:
                for value in there:
                    shapes[name].add(value)
    return pa.schema([_field(one, shapes) for one in schema if one.name not in absent])


def _field(schema: pa.Field, shapes: dict[str, JsonShape]) -> pa.Field:
    shape = shapes.get(schema.name)
    kind = None if shape is None else shape.type
    return schema if kind is None else pa.field(schema.name, kind)


def _values(
    names: Sequence[str], texts: Sequence[str], messages: Messages
) -> Iterator[Sequence[Any]]:
    """The values of fields, name by name; None for a missing one."""
    if messages.is_json:
        for found in FieldTexts(names)([text.encode() for text in texts]):
            yield [None if text in (None, JSON_NULL) else _decoded(text) for text in found]
        return
    parse = messages.parser()
    documents = list(map(parse, texts))
    for name in names:
        yield [document.get(name) for document in documents]


def _decoded(text: bytes | None) -> Any:
    assert text is not None
    return json.loads(text, parse_float=LosslessNumber, parse_int=_whole)


def _whole(text: str) -> float:
    return LosslessNumber(text) if len(text) >= INT_DIGITS_MAX else int(text)


def messages_of(options: SourceOptions) -> Messages:
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


def spark_schema(schema: pa.Schema) -> StructType:
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


def columns_of_records(options: SourceOptions) -> pa.Schema:
    """The columns that the records have, or some of them: fields of the bodies and, if they are
    named, columns of the row."""
    found, beside = _inferred(options), _beside(options)
    taken = next((name for name in found.names if name in beside.names), None)
    if taken is not None and not options.columns:
        raise ClientError(
            f"the records have a field {taken}, and a column of that name is the row's; name those "
            "to be read by the option columns"
        )
    fields = [field for field in found if field.name not in beside.names]
    of_row = [field for field in beside if field.name in options.columns]
    if options.cdc and not options.columns:
        of_row = [field for field in CHANGE if field.name != "value"]
    return chosen(pa.schema([*fields, *of_row]), options.columns, "the records")


def _beside(options: SourceOptions) -> pa.Schema:
    """The columns that are not from the body."""
    found = {name: ROW.field(own).type for name, own in OF_THE_ROW.items()}
    if options.cdc:
        found |= {field.name: field.type for field in CHANGE if field.name != "value"}
    return pa.schema([*found.items()])


def _inferred(options: SourceOptions) -> pa.Schema:
    path = f"/v1/topics/{segment(options.topic)}/records"
    reply = options.server.arrow(path, filter=options.filter, top_n=0, **options.groups)
    schema: pa.Schema = pa.ipc.open_stream(reply.body).schema
    # A field within another one is read as part of it.
    schema = pa.schema(
        [one for one in schema if PATH_OF_COLUMN.encode() not in (one.metadata or {})]
    )
    found = inferred(schema, _bodies(options), messages_of(options)) if schema.names else schema
    if not found.names:
        raise ClientError(f"{options.topic} holds no records to take a schema from; give one")
    return found


def _bodies(options: SourceOptions) -> Iterator[Sequence[str]]:
    """The bodies of all records, whatever the filter: the type of a column does not depend on the
    rows of one read."""
    reader = SowReader(options, ROW, from_log=False)
    if not options.groups:
        reader.filters.clear()
    for batch in reader.rows():
        yield batch.column("value").to_pylist()


def chosen(schema: pa.Schema, columns: tuple[str, ...], of: str) -> pa.Schema:
    """The named columns, or all; raises ClientError for a missing one, which says what they are
    `of`, and for one that is named twice."""
    for name in columns:
        if name not in schema.names:
            raise ClientError(f"no column {name!r} of {of}{did_you_mean(name, schema.names)}")
        if columns.count(name) > 1:
            raise ClientError(f"columns names {name!r} twice; once is enough")
    return pa.schema([schema.field(name) for name in columns or schema.names])


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

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
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
            if len(set(kind.names)) < len(kind.names):
                raise ClientError(
                    f"column {name} has two fields of one name, {', '.join(kind.names)}; a "
                    "document has each field once"
                )
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
