"""Rows as JSON documents: how a write converts columns.

Numbers stay numbers (decimals with all their digits), times are ISO 8601 in UTC whatever the zone
of the session, bytes base64, maps objects. JSON has no NaN or infinity: an error names their
column.
"""

import base64
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sow.errors import ClientError, shown

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
        return pa.map_(kind.key_type, kind.item_field.with_type(_utc(kind.item_type)))
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
    values = column.to_pylist()
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
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(f"{name}.{field.name}", field.type) for field in kind}
        if not any(fields.values()):
            return None
        return lambda value: (
            None if value is None else {k: (fields[k] or _same)(v) for k, v in value.items()}
        )
    return None


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
