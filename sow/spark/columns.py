"""Rows as columns: those of the row as it is, or fields of the body in the types of a schema.

A schema selects fields of the body as columns, whatever their names; the columns of the row have a
prefix (`_key`). A field that is absent, or no value of the column's type, is null, and an error
names it where the schema says `not null`. Neighbours never affect a value: Arrow reads the JSON of
many rows at once if all fit, and otherwise the rows are halved until a misfit is among a few, which
are read one by one.

A column that `inferSchema` has typed as JSON texts holds them as the server does, texts in quotes:
a column of a topic has the same values wherever it is read.

The server's parsers read messages of other types. Those of the FIX family hold only texts, which
become numbers or times if the column has such a type; those without fields have one column,
`value`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from sow.core.definitions import MessageTypeOptions
from sow.errors import BadMessage, ClientError
from sow.messages import message_type
from sow.messages.arrow import is_json_text
from sow.messages.json_texts import JSON_NULL, FieldTexts
from sow.messages.json_texts import json_text as value_text
from sow.spark.arrow_cast import ArrowCast, document_of

ONE_BY_ONE = 64
"""Among so few rows each is read by itself."""
YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
"""Times of Python and Spark begin with the year 1, those of Arrow with the year 0."""
UTC_TIME = f"^{YEAR}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\\.[0-9]{{1,6}})?Z?$"
TEXT_MODULES = ("fix", "nvfix", "xml")
WITHOUT_FIELDS = ("binary", "string", "int64", "double")
ROW = pa.schema(
    [
        ("bookmark", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("op", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("value", pa.string()),
    ]
)
REMOVE = ("delete", "expire", "match")
"""Values of a row's `op` that remove its record."""
SPARK_ROW = "bookmark long, topic string, key string, op string, ts timestamp, value string"
OF_THE_ROW = {f"_{name}": name for name in ROW.names if name != "value"}
"""Columns of a typed schema that are not fields of the body."""
BOOKMARK_DIGITS = 19
"""Digits of the longest 64-bit number."""


def check_row_columns(schema: pa.Schema) -> None:
    """Raise ClientError for a column of the row, such as `_key`, in a type that may not hold it."""
    for field in schema:
        if field.name in OF_THE_ROW and not holds(field.type, ROW.field(field.name[1:]).type):
            wanted = next(one for one in SPARK_ROW.split(", ") if one.startswith(field.name[1:]))
            raise ClientError(
                f"the column {field.name} cannot be read as {field.type}: it belongs to the row, "
                f"not to the body; write _{wanted}, and cast it afterwards"
            )


def holds(kind: pa.DataType, own: pa.DataType) -> bool:
    """Whether a column of the row has each of its values in a type: in its own, as text, a bookmark
    also as a decimal, and a time also without its zone or as its day."""
    if kind.equals(own) or pa.types.is_string(kind):
        return True
    if pa.types.is_timestamp(own):
        return bool(pa.types.is_date(kind) or kind.equals(pa.timestamp("us")))
    digits = kind.precision - kind.scale if pa.types.is_decimal(kind) else 0
    return bool(pa.types.is_integer(own) and digits >= BOOKMARK_DIGITS)


OF_JSON = MessageTypeOptions("json", "json")


@dataclass(frozen=True, slots=True)
class Messages:
    """The configured message type of a topic's bodies."""

    options: MessageTypeOptions = OF_JSON

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.options.name

    @property
    def module(self) -> str:
        """The type that it is a variant of."""
        return self.options.module

    @property
    def is_json(self) -> bool:
        """Whether the text of a row is a JSON document."""
        return self.module == "json"

    def check(self, schema: pa.Schema) -> None:
        """Raise ClientError for columns that such messages cannot have."""
        fields = [name for name in schema.names if name not in OF_THE_ROW]
        if self.module in WITHOUT_FIELDS and fields != ["value"]:
            raise ClientError(
                f"messages of type {self.name} have no fields, so there is no column "
                f"{next((name for name in fields if name != 'value'), 'but value')}; select "
                "value, with the type you want"
            )

    def parser(self) -> Callable[[str], Mapping[str, Any]]:
        """A function from the text of a row to its fields."""
        if self.is_json:
            return document_of
        kind = message_type(self.name, {self.name: self.options})

        def parsed(text: str) -> Mapping[str, Any]:
            try:
                found = kind.parse(kind.from_line(orjson.dumps(text)))
            except BadMessage:
                return {}
            return found if isinstance(found, dict) else {"value": found}

        return parsed


JSON_MESSAGES = Messages()


NAMED_CHARS_MAX = 2_000
"""Characters of a select list in an address: proxies bound an address at some 8,000."""
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def requested_columns(schema: pa.Schema, messages: Messages | None) -> dict[str, str]:
    """The parameters of a request for what a schema needs of a row: the server sends no other
    columns and, of bodies, no other fields."""
    if messages is None:
        return {"columns": ",".join(schema.names)}
    names = {OF_THE_ROW[name] for name in schema.names if name in OF_THE_ROW} | {"value"}
    if not all(field.nullable for field in schema):
        names |= {"key", "bookmark"}  # an error names the record
    requested = {"columns": ",".join(name for name in ROW.names if name in names)}
    fields = [name for name in schema.names if name not in OF_THE_ROW]
    select = ",".join(f"/{name}" for name in fields) or "-/"
    if messages.is_json and all(map(PLAIN_NAME.match, fields)) and len(select) <= NAMED_CHARS_MAX:
        requested["select"] = select
    return requested


def decoder(
    schema: pa.Schema, messages: Messages | None = JSON_MESSAGES
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What converts rows to batches of this schema: fields of these messages or, without messages,
    columns of the row as it is."""
    if messages is None:
        return lambda batch: pa.RecordBatch.from_arrays(
            [batch.column(name) for name in schema.names], schema=schema
        )
    return _Typed(schema, messages).batch


class _Typed:
    """Fields of bodies as columns."""

    def __init__(self, schema: pa.Schema, messages: Messages) -> None:
        self._schema = schema
        fields = [field for field in schema if field.name not in OF_THE_ROW]
        self._fields = [field for field in fields if not is_json_text(field)]
        self._json_fields = [field.name for field in fields if is_json_text(field)]
        self._is_json = messages.is_json
        self._parse = messages.parser()
        self._fitting = ArrowCast(from_texts=messages.module in TEXT_MODULES)
        self._quick = _quick_schema(self._fields) if messages.is_json else None

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the schema; raises ClientError for a null that it does not allow."""
        if "_op" not in self._schema.names and batch.column("value").null_count:
            # A delete has no body; readers without the column `op` do not receive it.
            batch = batch.filter(batch.column("value").is_valid())
        bodies = self._bodies([text or "{}" for text in batch.column("value").to_pylist()])
        columns = []
        for field in self._schema:
            if field.name in OF_THE_ROW:
                columns.append(batch.column(OF_THE_ROW[field.name]).cast(field.type))
                continue
            columns.append(bodies[field.name])
            _check_nulls(field, bodies[field.name], field.name, batch)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _bodies(self, texts: Sequence[str]) -> dict[str, pa.Array]:
        """The fields of documents, as columns."""
        pieces = self._pieces(texts) if self._fields else []
        found = self._json_texts(texts) if self._json_fields else {}
        return found | {
            field.name: pa.concat_arrays([piece[at] for piece in pieces])
            if pieces
            else pa.array([], field.type)
            for at, field in enumerate(self._fields)
        }

    def _json_texts(self, texts: Sequence[str]) -> dict[str, pa.Array]:
        """Fields of any values, as the server's columns have them."""
        if self._is_json:
            read = FieldTexts(self._json_fields)([text.encode() for text in texts])
            return {
                name: pa.array([None if one == JSON_NULL else one for one in found], pa.string())
                for name, found in zip(self._json_fields, read, strict=True)
            }
        documents = list(map(self._parse, texts))
        return {
            name: pa.array(
                [
                    None if (value := document.get(name)) is None else value_text(value)
                    for document in documents
                ],
                pa.string(),
            )
            for name in self._json_fields
        }

    def _pieces(self, texts: Sequence[str]) -> list[list[pa.Array]]:
        """The same, in pieces of rows that were read together."""
        if not texts:
            return []
        found = None if self._quick is None else self._at_once(texts)
        if found is not None:
            return [found]
        if self._quick is None or len(texts) <= ONE_BY_ONE:
            return [self._one_by_one(texts)]
        half = len(texts) // 2
        return self._pieces(texts[:half]) + self._pieces(texts[half:])

    def _one_by_one(self, texts: Sequence[str]) -> list[pa.Array]:
        rows, fit = list(map(self._parse, texts)), self._fitting.fit
        return [
            pa.array([fit(row.get(field.name), field.type) for row in rows], field.type)
            for field in self._fields
        ]

    def _at_once(self, texts: Sequence[str]) -> list[pa.Array] | None:
        """All rows in one call; None if any row does not fit."""
        lines = "\n".join(texts).encode()
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                pyarrow.json.ParseOptions(
                    explicit_schema=self._quick, unexpected_field_behavior="ignore"
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if len(table) != len(texts) or not table.schema.equals(self._quick):
            return None
        if not all(map(_has_room, table.columns)):
            return None
        return [self._as_wanted(field, table.column(field.name)) for field in self._fields]

    def _as_wanted(self, field: pa.Field, column: pa.ChunkedArray) -> pa.Array:
        """A column read as text, converted to its type."""
        array = pa.concat_arrays(column.chunks)
        if array.type.equals(field.type):
            return array
        if pa.types.is_timestamp(field.type):
            right = pc.match_substring_regex(array, UTC_TIME)
            if pc.all(right).as_py() is not False:
                try:
                    plain = pc.utf8_rtrim(array, "Z").cast(pa.timestamp("us"))
                    return plain.cast(pa.int64()).cast(field.type)
                except pa.ArrowInvalid:
                    pass  # some are no times, such as the 30th of February
        fit = self._fitting.fit
        return pa.array([fit(text, field.type) for text in array.to_pylist()], field.type)


def _quick_schema(fields: Sequence[pa.Field]) -> pa.Schema | None:
    """Types in which Arrow reads JSON as this module does: exactly, and texts only as texts. Times
    and bytes are read as texts. None if Arrow reads a column differently."""
    found = []
    for field in fields:
        kind = field.type
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_binary(kind):
            kind = pa.string()
        elif not _is_quick(kind):
            return None
        found.append(pa.field(field.name, kind))
    return pa.schema(found) if found else None


def _is_quick(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(field.nullable and _is_quick(field.type) for field in kind)
    if pa.types.is_list(kind):
        return bool(kind.value_field.nullable) and _is_quick(kind.value_type)
    return any(
        check(kind)
        for check in (
            pa.types.is_integer,
            pa.types.is_decimal,
            pa.types.is_floating,
            pa.types.is_boolean,
            pa.types.is_string,
        )
    )


def _has_room(column: pa.ChunkedArray) -> bool:
    """Whether decimals have no more digits than their type: Arrow reads 123 as decimal(4, 2), too,
    which would be 123.00."""
    if not _has_decimals(column.type):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return True
    inner = range(kind.num_fields)
    return any(_has_decimals(kind.field(at).type) for at in inner)


def _check_nulls(field: pa.Field, array: pa.Array, path: str, batch: pa.RecordBatch) -> None:
    """Raise ClientError if a field is null that the schema requires."""
    if not field.nullable and array.null_count:
        where = ""
        if len(array) == len(batch):
            at = array.is_null().index(True).as_py()
            key, bookmark = batch.column("key")[at].as_py(), batch.column("bookmark")[at].as_py()
            where = f" of record {key} at bookmark {bookmark}"
        raise ClientError(
            f"the field {path} is missing{where}, or is no {field.type}, and the schema says not "
            "null; leave out NOT NULL, or read it as another type"
        )
    there = array.filter(array.is_valid()) if array.null_count else array
    if pa.types.is_struct(field.type):
        for inner in field.type:
            _check_nulls(inner, pc.struct_field(there, inner.name), f"{path}.{inner.name}", batch)
    elif pa.types.is_list(field.type):
        _check_nulls(field.type.value_field, there.flatten(), f"{path}[]", batch)
