"""Rows as JSON documents: what a write makes of columns.

Numbers stay numbers (decimals with all their digits), times are ISO 8601, bytes base64, maps
objects. NaN and infinity have no JSON, and are refused by the name of their column.
"""

import base64
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from sow.errors import ClientError

Convert = Callable[[Any], Any]


def documents(batch: pa.RecordBatch, leave_out_nulls: bool) -> pa.StringArray:
    """Each row as a JSON document; a null is written as null, or left out. Without columns there
    are none."""
    names = batch.schema.names
    if not names:
        return pa.nulls(len(batch), pa.string())
    columns = [_values(name, batch.column(name)) for name in names]
    rows: Iterator[dict[str, Any]] = (
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    )
    if leave_out_nulls:
        rows = ({k: v for k, v in row.items() if v is not None} for row in rows)
    return pa.array([_dumps(row) for row in rows], pa.string())


def _dumps(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=_encoded, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    """The values of a column as what JSON is made of."""
    if pa.types.is_floating(column.type):
        # Looked at as a whole, which is quicker than one by one.
        if pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise _no_number(name)
        values: list[Any] = column.to_pylist()
        return values
    convert = _converter(name, column.type)
    values = column.to_pylist()
    return values if convert is None else list(map(convert, values))


def _converter(name: str, kind: pa.DataType) -> Convert | None:
    """What a value of a type needs to be made JSON of; None: nothing."""
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
        f"column {name} holds NaN or infinity, which JSON has not; write null in its place, such "
        f"as nullif({name}, double('NaN'))"
    )


def _encoded(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)
