"""Encodes published messages: bytes and str as they are, anything else as JSON.

Values that JSON does not have are refused with the path of the field before anything is sent. Above
all NaN and the infinities, which orjson would silently encode as null, and NaT in numpy arrays,
which it encodes as a time. A body without a null or that time holds none of them, so most documents
are never traversed.

The rows of a frame of pandas or polars, or of an Arrow table, are documents too. Columns are
converted to Python values a thousand rows at a time, so that a long frame takes no further memory.
Missing values (None, NA, a null) become null; NaN stays NaN, which is refused or encoded as null,
as configured. This module imports no package of data frames: a caller with a frame has imported it.
"""

import dataclasses
import datetime
import enum
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import orjson

from sow.client.tables import arrow
from sow.errors import BadMessage, ClientError, clipped, shown

Document = object
"""A message: bytes and str are bodies as they are, anything else is encoded as JSON. A type cannot
express which values are allowed (docs/clients.md, "What is published")."""

DEPTH_MAX = 250
"""Levels of nesting that the server accepts and orjson can encode; also finds cycles."""
INTEGERS = range(-(2**63), 2**64)
"""Integers that orjson can encode; the server accepts longer ones as text."""
READY = bytes | bytearray | memoryview
PLAIN = (str, int, float, bool, type(None), list)
"""Types without fields: nearly all values of documents."""
NO_VALUE = "send None, leave the field out, or say nan_as_null=True"
LEAVE_OUT = "send None, or leave the field out"
NOTHING_WRITTEN = (b"null", b"1677-09-21T00:12:43.145224", b"1970-01-01T00:00:00")
"""How orjson encodes NaN, and numpy's NaT, which is the least integer: in nanoseconds, and in
minutes to weeks, which overflow. It refuses other units."""
HOW = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATACLASS
"""Dataclasses are encoded here: orjson leaves out fields that begin with ``_``."""


class RowBodies:
    """Bodies of the rows of a data frame, a thousand at a time, encoded at each iteration, so that
    a long frame takes no further memory."""

    def __init__(self, frame: Any, nan_as_null: bool) -> None:
        self._frame = frame
        self._nan_as_null = nan_as_null

    def __iter__(self) -> Iterator[list[bytes]]:
        first = 0
        for rows in pieces_of_rows(self._frame):
            yield [encode(row, at, self._nan_as_null) for at, row in enumerate(rows, first)]
            first += len(rows)


def encode_all(messages: Any, nan_as_null: bool = False) -> list[bytes]:
    """Bodies of one message or many, in order.

    A mapping, str, bytes or an object that is not iterable is one message; any other iterable is
    many. Raises BadMessage with the index of the first that cannot be encoded.
    """
    if is_data_frame(messages):
        return [body for some in RowBodies(messages, nan_as_null) for body in some]
    one = isinstance(messages, READY | str | Mapping) or not isinstance(messages, Iterable)
    if one or _is_no_iterable_of_messages(messages):
        return [encode(messages, 0, nan_as_null)]
    return [
        message if type(message) is bytes else encode(message, index, nan_as_null)
        for index, message in enumerate(messages)
    ]


def encode(message: Any, index: int = 0, nan_as_null: bool = False) -> bytes:
    """The body of one message; `index` is its position, for the error. With `nan_as_null` NaN and
    pandas' NaT are encoded as null.

    Raises BadMessage with the path of a field whose value JSON does not have.
    """
    if isinstance(message, READY):
        return bytes(message)
    try:
        if isinstance(message, str):
            return message.encode()
        body = orjson.dumps(message, _native_or_null if nan_as_null else _native, HOW)
    except (TypeError, UnicodeEncodeError) as error:
        known = next(_unsuited(message, nan_as_null), None)
        path, why = known or ("", f"cannot be written as JSON: {error}")
    else:
        if not any(text in body for text in NOTHING_WRITTEN):
            return body
        found = next(_unsuited(message, nan_as_null), None)
        if found is None:
            return body
        path, why = found
    raise BadMessage(f"message {index}: {clipped(path) or 'it'} {why}", index=index)


def _is_no_iterable_of_messages(value: Any) -> bool:
    """Whether an iterable is a single message."""
    return _fields(value) is not None or (is_of("numpy", value, "ndarray") and not value.ndim)


def _is_row(value: object) -> bool:
    """Whether it is a named tuple, which is one document."""
    return isinstance(value, tuple) and hasattr(value, "_asdict")


def _is_no_time(value: object) -> bool:
    """Whether it is NaT of pandas: a datetime that is not equal to itself."""
    return isinstance(value, datetime.datetime) and value != value


def _is_na(value: object) -> bool:
    """Whether it is NA of pandas, a missing value."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and value is getattr(pandas, "NA", None)


def _native_or_null(value: Any) -> Any:
    is_nothing = _is_no_time(value) or (isinstance(value, Decimal) and value.is_nan())
    return None if is_nothing else _native(value)


def _native(value: Any) -> Any:
    """The JSON value for a type that orjson does not know; raises TypeError."""
    found = _fields(value)
    if found is not None:
        return found
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))  # every digit of it
    if isinstance(value, float):
        return float(value)
    if isinstance(value, datetime.datetime) and not _is_no_time(value):
        return value.isoformat()
    if is_of("numpy", value, "ndarray"):
        return _elements(value)
    if _is_na(value):
        return None
    raise TypeError


def _fields(value: Any) -> dict[Any, Any] | None:
    """The fields of a value as a dictionary; None if it has none."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        return {field.encode_name: getattr(value, field.name) for field in fields}
    if _is_row(value):
        return dict(value._asdict())
    if hasattr(value, "model_dump") and not isinstance(value, type):
        return dict(value.model_dump())  # as of pydantic
    return None


def _elements(array: Any) -> Any:
    """A numpy array that orjson does not accept as it is."""
    if not array.ndim:
        return array[()]
    if array.dtype.kind in "OUT":
        return array.tolist()
    if array.dtype.kind in "biufM" and not array.flags.c_contiguous:
        return array.copy()
    raise TypeError


def _unsuited(
    value: Any, nan_as_null: bool, path: str = "", depth: int = 0
) -> Iterator[tuple[str, str]]:
    """The values of a document that JSON does not have: the path, and the reason."""
    fields = None if type(value) in PLAIN else _fields(value)
    if depth > DEPTH_MAX:
        yield path, f"nests deeper than {DEPTH_MAX} levels, or contains itself; flatten it"
    elif fields is not None:
        for name, inner in fields.items():
            if type(name) is str:  # orjson accepts no subclass of it
                yield from _unsuited_text(name, path)
                yield from _unsuited(inner, nan_as_null, f"{path}/{name}", depth + 1)
            else:
                kind = type(name).__name__
                yield path, f"has a field named by {kind} {shown(repr(name))}; name it by text"
    elif isinstance(value, list | tuple) or (is_of("numpy", value, "ndarray") and value.ndim):
        for at, inner in enumerate(value):
            yield from _unsuited(inner, nan_as_null, f"{path}[{at}]", depth + 1)
    elif isinstance(value, enum.Enum):
        yield from _unsuited(value.value, nan_as_null, path, depth + 1)
    elif is_of("numpy", value, "ndarray"):
        yield from _unsuited(value[()], nan_as_null, path, depth + 1)
    else:
        yield from _unsuited_scalar(value, nan_as_null, path)


def _unsuited_scalar(value: Any, nan_as_null: bool, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield from _unsuited_text(value, path)
    elif isinstance(value, float | Decimal) or is_of("numpy", value, "floating"):
        yield from _unsuited_number(value, nan_as_null, path)
    elif _is_no_time(value):
        if not nan_as_null:
            yield path, f"is NaT, no time at all; {NO_VALUE}"
    elif is_of("numpy", value, "datetime64") and value != value:
        yield path, f"is NaT of numpy, no time at all; {LEAVE_OUT}"
    elif isinstance(value, int):
        if value not in INTEGERS:
            yield path, "is an integer of more than 64 bits; send the message as JSON text"
    elif value is not None:
        try:
            orjson.dumps(value, _native, HOW)
        except TypeError:
            kind = type(value).__name__
            yield path, f"is of the type {kind}, which JSON does not have; convert it{_to(value)}"


def _unsuited_number(value: Any, nan_as_null: bool, path: str) -> Iterator[tuple[str, str]]:
    decimal = isinstance(value, Decimal)  # which may be larger than any float
    if value.is_nan() if decimal else math.isnan(value):
        if not nan_as_null:
            yield path, f"is NaN, which JSON does not have; {NO_VALUE}"
    elif value.is_infinite() if decimal else math.isinf(value):
        name = "Infinity" if value > 0 else "-Infinity"
        yield path, f"is {name}, which JSON does not have; {LEAVE_OUT}"
    elif is_of("numpy", value, "longdouble"):
        yield path, "is of the type longdouble, which JSON does not have; convert it to a float"


def _unsuited_text(text: str, path: str) -> Iterator[tuple[str, str]]:
    try:
        text.encode()
    except UnicodeEncodeError:
        yield path, f"has half a surrogate pair in {text[:40]!a}; send whole characters"


def _to(value: object) -> str:
    if isinstance(value, set | frozenset | Iterator):
        return " to a list"
    if isinstance(value, READY):
        return " to text, such as base64"
    return " to text or a number"


PIECE_ROWS = 1000
"""Rows converted at once: as many as a frame to the server has, which is stored atomically."""
ARROW_TABLES = ("Table", "RecordBatch")


def is_data_frame(value: object) -> bool:
    """Whether a value is a DataFrame of pandas or polars, or a table or record batch of Arrow."""
    return (
        is_of("pandas", value, "DataFrame")
        or is_of("polars", value, "DataFrame")
        or is_of("polars", value, "LazyFrame")
        or any(is_of("pyarrow", value, kind) for kind in ARROW_TABLES)
    )


def is_of(package: str, value: object, kind: str) -> bool:
    """Whether a value is of this type of a package. The package is not imported, which would slow
    down the start of a command: a caller with such a value has imported it."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, kind, ()))


def pieces_of_rows(frame: Any) -> Iterator[list[dict[str, Any]]]:
    """The rows of a data frame as documents, in lists of up to 1,000.

    Named levels of a pandas index are fields too, as with `reset_index`; an unnamed index is
    dropped. Raises ClientError for columns with the same name, also as a level of the index, and
    for names that are not strings.
    """
    if is_of("polars", frame, "LazyFrame"):
        raise ClientError("the frame is lazy, and has no rows yet; publish what collect() gives")
    if is_of("pandas", frame, "DataFrame"):
        named = [name for name in frame.index.names if name is not None]
        if named:
            _check_names([*named, *frame.columns])
            frame = frame.reset_index(level=named)
        columns: Callable[[Any, int], list[Any]] = _of_pandas
        names = list(frame.columns)
    else:
        if is_of("polars", frame, "DataFrame"):
            arrow()
            frame = frame.to_arrow()
        columns, names = _of_arrow, list(frame.schema.names)
    _check_names(names)
    for start in range(0, len(frame), PIECE_ROWS):
        values = columns(frame, start)
        shown_names = [name for name, value in zip(names, values, strict=True) if value is not None]
        filled = [value for value in values if value is not None]
        count = min(PIECE_ROWS, len(frame) - start)
        rows = zip(*filled, strict=True) if filled else ((),) * count
        yield [dict(zip(shown_names, row, strict=True)) for row in rows]


def _check_names(names: Sequence[object]) -> None:
    known = set()
    for name in names:
        if not isinstance(name, str):
            raise ClientError(
                f"the frame has a column named by {type(name).__name__} {shown(repr(name))}; "
                "name it by text"
            )
        if name in known:
            raise ClientError(f"the frame has two columns called {shown(name)}; rename one")
        known.add(name)


def _of_pandas(frame: Any, start: int) -> list[Any]:
    part = frame.iloc[start : start + PIECE_ROWS]
    return [_of_column(part.iloc[:, at]) for at in range(part.shape[1])]


def _of_column(column: Any) -> list[Any]:
    """The values of a pandas column. In a column of strings NaN is a missing value."""
    values: list[Any] = column.tolist()
    if is_of("pandas", column.dtype, "StringDtype"):
        return [value if isinstance(value, str) else None for value in values]
    return values


def _of_arrow(table: Any, start: int) -> list[Any]:
    """Columns as Python values; None for one that repeats a field within another column."""
    from sow.messages.arrow import JSON_KIND, KIND_OF_COLUMN, PATH_OF_COLUMN

    part = table.slice(start, PIECE_ROWS)
    found: list[Any] = []
    for field, column in zip(part.schema, part.columns, strict=True):
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        if PATH_OF_COLUMN in metadata:
            found.append(None)
        elif metadata.get(KIND_OF_COLUMN) == JSON_KIND:
            texts = enumerate(column.to_pylist(), start)
            found.append([_json_text(field.name, text, row) for row, text in texts])
        else:
            found.append(_values(field.name, column))
    return found


def _values(name: str, column: Any) -> list[Any]:
    """A column as Python values; raises ClientError for a value that Python cannot represent, such
    as a time after the year 9999 or a struct with two fields of one name."""
    try:
        return list(_with_all_digits(column).to_pylist())
    except (OverflowError, ValueError) as error:
        raise ClientError(
            f"the frame has a value in column {shown(name)} that Python cannot represent: "
            f"{clipped(str(error))}; convert the column to text"
        ) from None


def _with_all_digits(column: Any) -> Any:
    """A column of times in nanoseconds as microseconds, or as strings if that would lose digits:
    Python's times have no nanoseconds."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) or kind.unit != "ns":
        return column
    shorter = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")
    try:
        return column.cast(shorter)
    except pa.ArrowInvalid:
        return _iso(column.cast(pa.string()))


def _iso(texts: Any) -> Any:
    """Arrow's strings of times, such as 2026-11-22 09:30:00.000000001+0100, as ISO 8601."""
    import pyarrow.compute as pc

    dated = pc.replace_substring(texts, " ", "T")
    return pc.replace_substring_regex(dated, r"([+-]\d\d)(\d\d)$", r"\1:\2")


def _json_text(name: str, text: str | None, row: int) -> object:
    """A value of a column of JSON text."""
    if text is None:
        return None
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise BadMessage(
            f"message {row}: the column {clipped(name)} is declared as JSON, and its value is not",
            index=row,
        ) from None
    # A line break is whitespace in JSON, but would end the message in a frame.
    return orjson.Fragment(text.replace("\n", " "))
