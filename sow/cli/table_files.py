"""File formats of `sow dump` and `sow load`, and what each cannot hold.

NDJSON holds every record of every message type unchanged: a JSON message is a line, any other one a
JSON string with its text or its base64. CSV and Parquet are tables of fields. A table does not
distinguish null, absent and (in CSV) the empty text; CSV does not mark texts, so a text that looks
like a number comes back as a number unless the topic's Schema declares it.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sow.client.tables import arrow
from sow.errors import BadMessage, ClientError, SowError, clipped
from sow.messages import message_type
from sow.messages.csv_rows import Cells, CsvReader, cells, csv_pieces

NDJSON_FILE, CSV_FILE, PARQUET_FILE = FILE_FORMS = ("ndjson", "csv", "parquet")
ENDINGS: Mapping[str, str] = {
    ".ndjson": NDJSON_FILE, ".jsonl": NDJSON_FILE, ".json": NDJSON_FILE, ".csv": CSV_FILE,
    ".parquet": PARQUET_FILE, ".pq": PARQUET_FILE,
}  # fmt: skip
"""Formats by the suffix of a file name."""
FILE_ROWS = 1_000
"""Rows converted at once, and sent in one request: stored all or none, as frames are."""
JSON_TYPE = message_type("json")


def form_of(path: str, given: str | None) -> str:
    """The format of a file; raises ClientError if neither the option nor the name gives it."""
    if given is not None:
        return given
    if path == "-":
        return NDJSON_FILE
    found = ENDINGS.get(Path(path).suffix.lower())
    if found is None:
        raise ClientError(
            f"the name {clipped(Path(path).name)} does not show its format; end it "
            "with .ndjson, .csv or .parquet, or give --format"
        )
    return found


class CsvFields:
    """The columns of records written as CSV, and whether they can be read back.

    `changed` counts records that a topic without Schema would not return unchanged.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.changed = 0
        self.first_changed: str | None = None

    def look(self, rows: Sequence[bytes]) -> None:
        """Add records, given as JSON texts."""
        found = [cells(row) for row in rows]
        for one in found:
            self.names |= dict.fromkeys(one)
        try:
            again = _read_again(found)
        except SowError:
            again = [{}] * len(rows)
        for row, read in zip(rows, again, strict=True):
            if msgspec.json.decode(row) != read:
                self.changed += 1
                self.first_changed = self.first_changed or clipped(row.decode())

    def lines(self, rows: Sequence[bytes]) -> bytes:
        """Records as lines."""
        out = io.StringIO()
        writer = csv.writer(out)
        for row in rows:
            found = cells(row)
            writer.writerow([found.get(name, "") for name in self.names])
        return out.getvalue().encode()

    def header(self) -> bytes:
        """The header line."""
        return b"".join(csv_pieces(list(self.names), ())) or b"\r\n"


def _read_again(rows: Sequence[Cells]) -> list[Any]:
    """Rows of CSV as a topic without Schema reads them."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        return [{} for _ in rows]
    text = b"".join(csv_pieces(names, [rows]))
    reader = CsvReader(JSON_TYPE, None, text, len(text) * 8 + 2**20)
    return [msgspec.json.decode(body) for some in reader.pieces() for body in some]


def open_parquet(source: Any, name: str) -> Any:
    """A Parquet file to read; raises ClientError if it is not a complete one."""
    pa = arrow()
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        raise ClientError(
            f"{name} is not a complete Parquet file: {clipped(str(error))}; was it written "
            "completely?"
        ) from None


def parquet_lines(file: Any, name: str, nan_as_null: bool = False) -> Iterator[list[bytes]]:
    """The rows of a Parquet file as JSON documents, in lists; raises ClientError, and BadMessage
    with its row in the next list for a number that JSON lacks, unless `nan_as_null` makes it
    null."""
    pa = arrow()
    read = 0
    try:
        for batch in file.iter_batches(FILE_ROWS):
            if not nan_as_null:
                _check_numbers(batch)
            yield row_documents(batch)
            read += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise ClientError(
            f"{name} cannot be read behind row {read:,}: {clipped(str(error))}"
        ) from None


def row_documents(batch: Any) -> list[bytes]:
    """Rows of Arrow as JSON documents; without nulls, and without columns that only repeat a
    field within another one."""
    from sow.cli.recording import json_texts
    from sow.messages.arrow import JSON_KIND, KIND_OF_COLUMN, PATH_OF_COLUMN

    columns: dict[bytes, Sequence[bytes | None]] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        if PATH_OF_COLUMN in metadata:
            continue
        name = msgspec.json.encode(field.name)
        if metadata.get(KIND_OF_COLUMN) == JSON_KIND:
            texts = [None if text is None else text.encode() for text in column.to_pylist()]
            _check_json(field.name, texts)
            columns[name] = texts
        else:
            columns[name] = [None if text == b"null" else text for text in json_texts(column)]
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(batch)
    return [
        b"{%b}"
        % b",".join(
            [b"%b:%b" % (name, text) for name, text in zip(columns, row, strict=True) if text]
        )
        for row in rows
    ]


def _check_numbers(batch: Any) -> None:
    """Refuse NaN and infinities, which JSON would silently turn into null."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        index = _not_finite(column)
        if index is not None:
            raise BadMessage(
                f"the column {clipped(field.name)} is NaN or infinite, which JSON cannot hold; "
                "--nan-as-null loads it as no value",
                index=index,
            )


def _not_finite(column: Any) -> int | None:
    """The first row in which a column holds a non-finite number, at any depth."""
    pa = arrow()
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _not_finite(column.dictionary_decode())
    if pa.types.is_floating(kind):
        finite = pc.is_finite(column.cast(pa.float64()))
        index = pc.index(finite, False).as_py()
        return None if index < 0 else int(index)
    if pa.types.is_nested(kind):
        rows = enumerate(column.to_pylist())
        return next((index for index, row in rows if _holds_not_finite(row)), None)
    return None


def _holds_not_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_not_finite, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_not_finite, value))


def _check_json(name: str, texts: Sequence[bytes | None]) -> None:
    for index, text in enumerate(texts):
        try:
            if text is not None:
                msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            raise BadMessage(
                f"the column {clipped(name)} is declared as JSON, but holds something else",
                index=index,
            ) from None
