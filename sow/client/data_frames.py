"""Rows of data frames as documents: frames of pandas and polars, and Arrow tables.

Columns are converted to Python values a thousand rows at a time, so that a long frame takes no
further memory. Missing values (None, NA, a null) become null; NaN stays NaN, which
`sow.client.encode` refuses or encodes as null, as configured. This module imports no package of
data frames: a caller with a frame has imported it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import orjson

from sow.client.tables import arrow
from sow.errors import BadMessage, ClientError, clipped, shown

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
