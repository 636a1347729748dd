"""Infers a topic from a data file: the types of its fields, and a key.

Arrow reads the first rows of Parquet and JSON lines. A type is suggested if every value of the
sample has it; a field with several types, or none, stays undeclared. CSV is read as the server
reads it (`sow.messages.csv_rows`), so that each type accepts every cell of the sample. The key is a
guess for the user to confirm: a column that identifies rows, or whose name suggests it.
"""

import codecs
import contextlib
import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from sow.core.paths import Path, parse_path
from sow.errors import ClientError, shown
from sow.messages.csv_rows import steps_of
from sow.messages.declared import VALUE_TYPES, from_text

SAMPLE_BYTES = 16 * 1024**2
"""Bytes of a file to sample: a second of work, and enough rows to recognize a key."""
SAMPLE_ROWS = 100_000
"""The same for Parquet, whose rows are compressed."""
CALLED_AS_KEY = re.compile(r"(^|_)(id|key|symbol|sym|isin|ticker|code|uuid)$", re.IGNORECASE)
"""Usual names of identifying columns."""

OTHER_COMMAS = {";": "semicolons", "\t": "tabs", "|": "bars"}
"""Delimiters of other programs, such as spreadsheets in many countries."""


class Sample(NamedTuple):
    """The inferred topic: its `name`, the type of each field by path, and a key."""

    name: str
    types: dict[str, str]
    keys: list[str]
    rows: int


def sample(path: str) -> Sample:
    """Sample a file; raises ClientError if it holds no usable data."""
    read = _reader(path)
    try:
        found, rows = read(path)
    except (pa.ArrowException, csv.Error, OSError, UnicodeDecodeError) as error:
        problem = str(error).splitlines()[0][:200]
        raise ClientError(f"{path} cannot be read as {_kind(path)}: {problem}") from None
    if not found:
        raise ClientError(f"{path} has no columns that could be fields of a topic")
    columns = {name: column for name, (column, _) in found.items()}
    types = {name: kind for name, (_, kind) in found.items() if kind is not None}
    return Sample(_topic_name(path), types, _key(columns, types), rows)


def _kind(path: str) -> str:
    return {".csv": "CSV", ".parquet": "Parquet"}.get(PurePath(path).suffix.lower(), "JSON lines")


Columns = dict[str, tuple[Any, str | None]]
"""The values of each field by its path, and its suggested type."""


def _reader(path: str) -> Callable[[str], tuple[Columns, int]]:
    readers = {".parquet": _parquet, ".csv": _csv}
    readers |= dict.fromkeys((".ndjson", ".jsonl", ".json"), _json)
    suffix = PurePath(path).suffix.lower()
    if suffix not in readers:
        raise ClientError(
            f"{shown(path)} is not one of {', '.join(readers)}; name the topic instead: "
            "sow init --topic quotes:/symbol"
        )
    return readers[suffix]


def _parquet(path: str) -> tuple[Columns, int]:
    rows = pq.ParquetFile(path).iter_batches(SAMPLE_ROWS)
    first = next(rows, None)
    return _of_table(pa.table({}) if first is None else pa.Table.from_batches([first]))


def _json(path: str) -> tuple[Columns, int]:
    options = pyarrow.json.ReadOptions(block_size=SAMPLE_BYTES)
    text = _beginning(path).removeprefix(codecs.BOM_UTF8)
    return _of_table(pyarrow.json.read_json(io.BytesIO(text), read_options=options))


def _of_table(table: Any) -> tuple[Columns, int]:
    return {name: (column, _type(column)) for name, column in _columns(table)}, table.num_rows


def _csv(path: str) -> tuple[Columns, int]:
    try:
        text = _beginning(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ClientError(
            f"{path} is not UTF-8; save it as UTF-8 (in a spreadsheet: CSV UTF-8)"
        ) from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    names = next(rows, [])
    if not names and text.strip():
        raise ClientError(
            f"{path} begins with a blank line; its first line has to name the columns"
        )
    if len(names) == 1 and (apart := next((one for one in OTHER_COMMAS if one in names[0]), "")):
        raise ClientError(
            f"{path} has one column, {shown(names[0])}; if {OTHER_COMMAS[apart]} stand between its "
            "cells, save it with commas"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ClientError(f"{path} has the column {shown(twice)} twice; rename one")
    read: list[list[str]] = []
    try:
        read += (row for row in rows if row)
    except csv.Error:
        if len(text.encode()) < SAMPLE_BYTES // 2:
            raise
        # The sample may end within a row of several lines.
    if long := next((row for row in read if len(row) > len(names)), None):
        raise ClientError(
            f"{path} has a row of {len(long)} cells, and {len(names)} columns; it begins with "
            f"{shown(long[0])}"
        )
    found: Columns = {}
    for at, name in enumerate(names):
        cells = [row[at] if at < len(row) else "" for row in read]
        path_text = _path_of(steps_of(name))
        if path_text is not None:
            column = pa.array([cell or None for cell in cells], pa.string())
            found[path_text] = (column, _type_of_cells([cell for cell in cells if cell]))
    return found, len(read)


def _type_of_cells(cells: Sequence[str]) -> str | None:
    """The first type that accepts every cell as the server reads it; None without cells."""
    if not cells:
        return None
    if all(cell in ("true", "false") for cell in cells):
        return "bool"
    if all(cell[0] in "[{" and _is_json(cell) for cell in cells):
        return "json"
    for name in ("int64", "float64", "date", "timestamp"):
        kind = VALUE_TYPES[name]
        if all(from_text(cell, kind) is not None for cell in cells):
            return name
    return "string"


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def _beginning(path: str) -> bytes:
    """The first complete lines of a file."""
    with open(path, "rb") as file:
        text = file.read(SAMPLE_BYTES)
        return text if len(text) == os.fstat(file.fileno()).st_size else text[: text.rfind(b"\n")]


def _columns(table: Any) -> Iterator[tuple[str, Any]]:
    """Each field by its path; fields of nested objects count one by one."""
    for name in table.schema.names:
        yield from _within((name,), table.column(name).combine_chunks())


def _within(steps: tuple[str, ...], column: Any) -> Iterator[tuple[str, Any]]:
    if pa.types.is_struct(column.type):
        for field in column.type:
            yield from _within((*steps, field.name), pc.struct_field(column, field.name))
        return
    # The name of a column may be a path itself.
    text = _path_of(steps_of(steps[0]) if len(steps) == 1 else steps)
    if text is not None:
        yield text, column


def _path_of(steps: tuple[str, ...]) -> str | None:
    """The path of a field as text; None if no path leads to it."""
    with contextlib.suppress(ClientError):
        path = parse_path(str(Path(steps)))
        if path.index is None and path.steps == steps:
            return str(path)
    return None


def _type(column: Any) -> str | None:
    """The type that a Schema may declare for a column; None if there is none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return None if pa.types.is_uint64(kind) else "int64"
    if pa.types.is_floating(kind):
        return "float64"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})" if kind.scale >= 0 else None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_timestamp(kind):
        return "timestamp" if _is_of_microseconds(column) else "string"
    if pa.types.is_nested(kind):
        return "json"
    return None


def _is_of_microseconds(column: Any) -> bool:
    try:
        column.cast(pa.timestamp("us", column.type.tz))
    except pa.ArrowInvalid:
        return False
    return True


def _key(columns: dict[str, Any], types: dict[str, str]) -> list[str]:
    """The column that identifies rows, or is named like one; the first of the best."""

    def worth(name: str) -> tuple[bool, bool]:
        return bool(CALLED_AS_KEY.search(name.rpartition("/")[2])), _reports_apart(columns[name])

    fit = [name for name in columns if types.get(name) in ("int64", "string")]
    fit = [name for name in fit if not columns[name].null_count and any(worth(name))]
    # A column named like a key need not identify rows: they may be updates of the same records.
    return [max(fit, key=worth)] if fit else []


def _reports_apart(column: Any) -> bool:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return len(column) > 1 and bool(pc.count_distinct(column).as_py() == len(column))


def _topic_name(path: str) -> str:
    """The name of the file as a valid topic name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", PurePath(path).stem).strip("-") or "topic"
