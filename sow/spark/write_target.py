"""The target of a write: the topic, and how columns become its messages.

The columns are checked before a row is written, so that the driver reports a mistake once.

Deletes find their records by the key fields of documents, or by SowKeys. A delete in a log has no
body, so its key fields are null and it has only a SowKey. A SowKey is specific to its topic, unless
two topics share a KeyDomain. If a row names its topic, a delete that could not match is refused.

Rows become JSON documents (`documents`). Numbers stay numbers (decimals with all their digits),
times are ISO 8601 in UTC whatever the zone of the session, bytes base64, maps objects, variants the
values that they hold. JSON has no NaN or infinity: an error names their column.
"""

import base64
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from types import NoneType
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import BinaryType, DataType, NullType, NumericType, StringType, StructType

from sow.core.humanize import did_you_mean
from sow.core.paths import parse_path
from sow.errors import ClientError, shown
from sow.spark.arrow_cast import is_variant, value_of
from sow.spark.changes import BESIDE_THE_BODY, CHANGE_TYPE
from sow.spark.columns import OF_THE_ROW, REMOVE, ROW
from sow.spark.http import ServerRefusal, SourceOptions, SowServer, segment

ROW_TYPES = {field.name: type(field.dataType) for field in from_arrow_schema(ROW)}
"""The columns of a row as it is read, which beside `value` name its origin."""
SAID_BY = (StringType, NumericType, NullType)
"""Types of the columns `op` and `key`: texts, and numbers as they are written."""


PART_BYTES_MAX = 1024**3
"""Of a server that does not tell: the default of Limits/BatchSize."""


def writer_of(pipeline: str) -> str:
    """The prefix of the names under which a pipeline writes."""
    return f"pipeline {pipeline} "


@dataclass(frozen=True)
class WriteTarget:
    """The target. `key_is_field`: its records are identified by a field with the name of the key
    column. `is_copy`: a conflated topic that Spark is the engine of. `messages`: the type of its
    messages. `keys`: the paths of its key fields; `domain`: the KeyDomain of its SowKeys.
    `part_bytes`: what one part of a batch may have."""

    key_is_field: bool
    is_copy: bool = False
    messages: str = "json"
    topic: str = ""
    keys: tuple[str, ...] = ()
    domain: str | None = None
    part_bytes: int = PART_BYTES_MAX

    def is_message(self, kind: DataType | pa.DataType | None) -> bool:
        """Whether a column `value` of a type, of Spark's or Arrow's, holds whole messages: texts
        and, where messages are no JSON, bytes."""
        if isinstance(kind, pa.DataType):
            kind = from_arrow_type(kind)
        if isinstance(kind, BinaryType):
            return self.messages != "json"
        return isinstance(kind, StringType)

    def key_in_other_case(self, names: Sequence[str]) -> str | None:
        """The column that is not called like a key field by its case alone."""
        wanted = {parse_path(key).steps[0] for key in self.keys} - {*names}
        lower = {name.lower() for name in wanted}
        return next((name for name in names if name.lower() in lower), None)


def check_columns(schema: StructType, options: SourceOptions, to: WriteTarget) -> None:
    """Raise ClientError for columns that cannot be written, and for a named column that does not
    exist: all its rows would be published."""
    names = schema.names
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ClientError(f"two columns are called {twice!r}; a document has each field once")
    kinds = {field.name: field.dataType for field in schema}
    fields = [name for name in names if name not in (options.op_column, options.key_column)]
    are_messages = to.is_message(kinds.get("value"))
    if to.messages != "json" and fields and not are_messages:
        raise ClientError(
            f"{options.topic} holds messages of type {to.messages}, which cannot be made of "
            f"columns such as {fields[0]}; write one column value, the text or the bytes of the "
            "message"
        )
    beside = [name for name in fields if not isinstance(kinds[name], ROW_TYPES.get(name, NoneType))]
    if CHANGE_TYPE in names:
        beside = [name for name in beside if name not in BESIDE_THE_BODY]
    beside = [name for name in beside if name not in OF_THE_ROW and name != "value"]
    if are_messages and beside:
        raise ClientError(
            f"the column value is the whole document, and {beside[0]} stands beside it: leave "
            f"{' and '.join(beside[:5])} out, or make documents of all columns, as "
            "select(to_json(struct('*')).alias('value')) does, or by another name for value"
        )
    for option, default, column in (
        ("opColumn", "op", options.op_column),
        ("keyColumn", "key", options.key_column),
    ):
        if column not in names and column != default:
            meant = did_you_mean(column, names)
            raise ClientError(f"there is no column {column!r}, which {option} names{meant}")
        is_field = option == "keyColumn" and to.key_is_field and "value" not in names
        if column in names and not is_field and not isinstance(kinds[column], SAID_BY):
            raise ClientError(
                f"the column {column} is {kinds[column].simpleString()}, and {option} is a text; "
                f"cast it to string, or name another column as {option}"
            )


def target(options: SourceOptions) -> WriteTarget:
    """The topic that options name; raises ClientError if it accepts no rows."""
    path = f"/v1/topics/{segment(options.topic)}"
    topic = options.server.json("GET", path, expected=True)
    if topic["kind"] == "pattern":
        raise ClientError(f"{options.topic} is a pattern of topics; write to one of its topics")
    if topic["kind"] == "view" and not (options.writer or "").startswith(
        writer_of(segment(options.topic))
    ):
        made_of = " or ".join(topic["underlyings"])
        raise ClientError(f"{options.topic} is a view, made of {made_of}; write to {made_of}")
    if topic["kind"] != "conflated":
        keys = tuple(topic.get("keys", ()))
        return WriteTarget(
            f"/{options.key_column}" in keys,
            messages=topic["message_type"],
            topic=options.topic,
            keys=keys,
            domain=topic.get("key_domain"),
            part_bytes=topic.get("batch_bytes", PART_BYTES_MAX),
        )
    if topic.get("engine") != "spark":
        raise ClientError(
            f"{options.topic} is a conflated topic, a copy of {topic['underlying']}; write to that"
        )
    return WriteTarget(key_is_field=False, is_copy=True)


DELETES = pa.array(REMOVE)


def by_sow_key(batch: pa.RecordBatch, operations: pa.Array, keys: Sequence[str]) -> pa.Array:
    """Which rows are deletes without a value for a key field."""
    deletes = pc.is_in(operations, DELETES)
    missing = [pc.is_null(_field(batch, text)) for text in keys]
    return pc.and_(deletes, reduce(pc.or_, missing)) if missing else deletes


def _field(batch: pa.RecordBatch, path: str) -> pa.Array:
    """The values of a field in columns; nulls without it."""
    first, *inside = parse_path(path).steps
    if first not in batch.schema.names:
        return pa.nulls(len(batch))
    column = batch.column(first)
    for step in inside:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(step) < 0:
            return pa.nulls(len(batch))
        column = pc.struct_field(column, step)
    return column


class KeysOfTopics:
    """The topics that share SowKeys with the target. Queries the server once for each other
    topic."""

    def __init__(self, server: SowServer, to: WriteTarget) -> None:
        self._server = server
        self._to = to
        self._known: set[str] = {to.topic}

    def check(self, topics: pa.Array) -> None:
        """Raise ClientError for the first topic whose deletes could not match."""
        for name in pc.unique(topics).to_pylist():
            if name is None or name in self._known:
                continue
            if (domain := self._domain(name)) != self._to.domain:
                raise ClientError(
                    f"a delete of {name} names its record by a SowKey, and {self._to.topic} has "
                    f"other SowKeys: {_sent(name, domain)}, that of {self._to.topic} is "
                    f"{self._to.domain}. Give both topics one KeyDomain, add the key fields to the "
                    "rows that delete, or leave these out"
                )
            self._known.add(name)

    def _domain(self, name: str) -> str | None:
        """The KeyDomain of a topic; None if the server has no such topic."""
        try:
            found: str | None = self._server.json("GET", f"/v1/topics/{segment(name)}").get(
                "key_domain"
            )
        except ServerRefusal:
            return None
        return found


def _sent(name: str, domain: str | None) -> str:
    if domain is None:
        return f"the server has no topic {name}"
    return f"the KeyDomain of {name} is {domain}"


Convert = Callable[[Any], Any]


def documents(
    batch: pa.RecordBatch, leave_out_nulls: bool, json_texts: Collection[str] = ()
) -> pa.StringArray:
    """Each row as a JSON document; a null is written as null, or left out. Without columns there
    are none. Columns that are `json_texts` hold the JSON text of each value."""
    names = batch.schema.names
    if not names:
        return pa.nulls(len(batch), pa.string())
    columns = [
        _fragments(name, batch.column(name))
        if name in json_texts
        else _values(name, _in_utc(batch.column(name)))
        for name in names
    ]
    rows: Iterator[dict[str, Any]] = (
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    )
    if leave_out_nulls:
        rows = ({k: v for k, v in row.items() if v is not None} for row in rows)
    return pa.array([_dumps(row) for row in rows], pa.string())


def _dumps(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=_encoded, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def _fragments(name: str, column: pa.Array) -> Sequence[Any]:
    """JSON texts as the values that they represent."""
    return [None if text is None else _fragment(name, text) for text in column.to_pylist()]


def _fragment(name: str, text: str) -> orjson.Fragment:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ClientError(
            f"column {name} holds JSON texts, and {shown(text)} is invalid ({error}); write it "
            f"under another name, such as {name} AS {name}_text"
        ) from None
    return orjson.Fragment(text)


def _in_utc(column: pa.Array) -> pa.Array:
    """Convert times to UTC, without changing the moment."""
    kind = _utc(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), kind.item_field.with_type(_utc(kind.item_type)))
    return kind


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    """The values of a column as JSON encodes them."""
    if pa.types.is_floating(column.type):
        # Checked as a whole column, which is faster than one by one.
        if pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise _no_number(name)
        values: list[Any] = column.to_pylist()
        return values
    convert = _converter(name, column.type)
    try:
        values = column.to_pylist()
    except OverflowError:  # Spark has years up to 294,247
        raise ClientError(
            f"column {name} holds a day or time outside of the years 1 to 9999 in UTC, which "
            f"messages lack; write null instead, or cast({name} as string)"
        ) from None
    return values if convert is None else list(map(convert, values))


def _converter(name: str, kind: pa.DataType) -> Convert | None:
    """The conversion of a type to JSON values; None: none needed."""
    if pa.types.is_floating(kind):
        return lambda value: _finite(name, value)
    if pa.types.is_map(kind):
        inner = _converter(name, kind.item_type) or _same
        return lambda pairs: None if pairs is None else {k: inner(v) for k, v in pairs}
    if pa.types.is_list(kind):
        element = _converter(name, kind.value_type)
        if element is None:
            return None
        return lambda values: None if values is None else list(map(element, values))
    if is_variant(kind):
        return lambda value: None if value is None else _of_variant(name, value)
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(f"{name}.{field.name}", field.type) for field in kind}
        if not any(fields.values()):
            return None
        return lambda value: (
            None if value is None else {k: (fields[k] or _same)(v) for k, v in value.items()}
        )
    return None


def _of_variant(name: str, variant: dict[str, bytes]) -> Any:
    try:
        found = value_of(variant)
    except ValueError as error:
        raise ClientError(
            f"column {name} holds a variant that messages cannot: {error}; write null instead, or "
            f"to_json({name})"
        ) from None
    _check_finite(name, found)
    return found


def _check_finite(name: str, value: Any) -> None:
    """Raise ClientError for a number within a value that JSON lacks."""
    if isinstance(value, float):
        _finite(name, value)
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            _check_finite(name, one)


def _same(value: Any) -> Any:
    return value


def _finite(name: str, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise _no_number(name)
    return value


def _no_number(name: str) -> ClientError:
    return ClientError(
        f"column {name} holds NaN or infinity, which JSON lacks; write null instead, such "
        f"as nullif({name}, double('NaN'))"
    )


def _encoded(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)
