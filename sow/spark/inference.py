"""The columns of a read: those that a topic's records have, or some of them.

With `inferSchema` columns and their types are derived from the records of the topic.

The server reports the types of the outermost fields over everything that a topic has ever held.
This module inspects those that are JSON texts: flags, objects and arrays become columns of
booleans, structs and arrays if every value of the records has that type. If some do not, at
whatever depth, the column stays one of JSON texts, which can hold any value. A field that no record
has any more is no column.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from sow.core.definitions import MessageTypeOptions, message_type_options
from sow.core.humanize import did_you_mean
from sow.core.lossless_numbers import LosslessNumber
from sow.errors import ClientError
from sow.messages.arrow import ARROW_TYPES, JSON_KIND, KIND_OF_COLUMN, PATH_OF_COLUMN, is_json_text
from sow.messages.column_types import COLUMNS_MAX, INT_DIGITS_MAX, kind_of_value, type_of
from sow.messages.json_texts import JSON_NULL, FieldTexts
from sow.spark.changes import CHANGE
from sow.spark.columns import JSON_MESSAGES, OF_THE_ROW, ROW, Messages
from sow.spark.http import segment
from sow.spark.options import SourceOptions
from sow.spark.reader import SowReader

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
            raise ClientError(f"no column {name!r}{did_you_mean(name, schema.names)} of {of}")
        if columns.count(name) > 1:
            raise ClientError(f"columns names {name!r} twice; once is enough")
    return pa.schema([schema.field(name) for name in columns or schema.names])
