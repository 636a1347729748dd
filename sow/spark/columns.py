"""Between documents and columns: the body of a row as typed fields, and rows as bodies.

Reading, a user's schema says which fields of the body become columns; a field that is absent, or is
no value of the column's type, is null. Writing, each row becomes a JSON document with the values
as JSON has them: numbers stay numbers (decimals too), times are ISO 8601, bytes base64.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.json

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
SPARK_ROW = "bookmark long, topic string, key string, op string, ts timestamp, value string"
OF_THE_ROW = {f"_{name}": name for name in ROW.names if name != "value"}
"""Columns of a typed schema that are not fields of the body."""


def is_row_schema(schema: pa.Schema) -> bool:
    """It asks for columns of the row as it is, not for fields of the body."""
    return set(schema.names) <= set(ROW.names) and all(
        schema.field(name).type == ROW.field(name).type for name in schema.names
    )


def decoder(schema: pa.Schema) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """What turns rows into batches of this schema."""
    if is_row_schema(schema):
        return lambda batch: pa.RecordBatch.from_arrays(
            [batch.column(name) for name in schema.names], schema=schema
        )
    return lambda batch: _typed(batch, schema)


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if "_op" not in schema.names and batch.column("value").null_count:
        # A delete has no body; one who does not ask what a row does is not told of it.
        batch = batch.filter(batch.column("value").is_valid())
    fields = [field for field in schema if field.name not in OF_THE_ROW]
    bodies = _fields(batch.column("value"), pa.schema(fields))
    columns = [
        batch.column(OF_THE_ROW[field.name]).cast(field.type)
        if field.name in OF_THE_ROW
        else bodies[field.name]
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fields(values: pa.StringArray, schema: pa.Schema) -> dict[str, pa.Array]:
    """The fields of documents, as columns; nulls where a document has no such value."""
    texts = [text or "{}" for text in values.to_pylist()]
    lines = "\n".join(texts).encode()
    if texts and len(schema):
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(lines),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
                pyarrow.json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore"
                ),
            )
            if len(table) == len(texts) and table.schema.equals(schema):
                return {name: pa.concat_arrays(table.column(name).chunks) for name in schema.names}
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # some document does not fit; each is looked at by itself
    documents = [_document(text) for text in texts]
    return {
        field.name: pa.array(
            [_fitting(document.get(field.name), field.type) for document in documents], field.type
        )
        for field in schema
    }


def _document(text: str) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as one of an Arrow type, or None if it is none."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            return None
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            return None
        return [_fitting(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            return None
        return [(name, _fitting(one, kind.item_type)) for name, one in value.items()]
    return _scalar(value, kind)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and _fits(value, kind) else None
    if pa.types.is_floating(kind):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else None
    if pa.types.is_binary(kind):
        return value.encode() if isinstance(value, str) else None
    try:
        if pa.types.is_timestamp(kind):
            return datetime.fromisoformat(value) if isinstance(value, str) else None
        if pa.types.is_date(kind):
            return date.fromisoformat(value) if isinstance(value, str) else None
        if pa.types.is_decimal(kind):
            return pa.scalar(Decimal(str(value))).cast(kind).as_py()
    except (ValueError, ArithmeticError, pa.ArrowInvalid):
        return None
    return None


def _fits(value: int, kind: pa.DataType) -> bool:
    bits = int(kind.bit_width) - 1
    return -(1 << bits) <= value < 1 << bits


# Writing.


def documents(batch: pa.RecordBatch, leave_out_nulls: bool) -> pa.StringArray:
    """Each row as a JSON document; a null is written as null, or left out."""
    names = batch.schema.names
    columns = [_plain(batch.column(name)) for name in names]
    rows: Iterator[dict[str, Any]] = (
        dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)
    )
    if leave_out_nulls:
        rows = ({k: v for k, v in row.items() if v is not None} for row in rows)
    return pa.array([_dumps(row) for row in rows], pa.string())


def _dumps(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=_encoded, option=orjson.OPT_UTC_Z | orjson.OPT_NON_STR_KEYS)


def _plain(column: pa.Array) -> Sequence[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_map(column.type):
        return [None if value is None else dict(value) for value in values]
    return values


def _encoded(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(type(value).__name__)
