"""Files of messages: read from a file or a pipe, and the formats of `sow dump` and `sow load`.

Lines are passed on as they arrive, so that ``tail -f feed | sow publish`` publishes at once. An
array, or a JSON document over several lines, is read completely first. A table is the header line
and some rows of CSV, for one request. The server parses the cells (`sow.messages.csv_rows`); this
module only finds row ends, because a quoted line break does not end a row. Rows are passed on as
they arrive, including those that do not parse: the server refuses
them.

NDJSON holds every record of every message type unchanged: a JSON message is a line, any other one a
JSON string with its text or its base64. CSV and Parquet are tables of fields. A table does not
distinguish null, absent and (in CSV) the empty text; CSV does not mark texts, so a text that looks
like a number comes back as a number unless the topic's Schema declares it.
"""

import asyncio
import codecs
import contextlib
import csv
import io
import math
import os
import stat
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from sow.client.tables import arrow
from sow.errors import BadMessage, ClientError, SowError, clipped
from sow.messages import message_type
from sow.messages.csv_rows import CSV_ROW_CHARS_MAX, Cells, CsvReader, cells, csv_pieces

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
    from sow.cli.commands.replay import json_texts
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


CHUNK_BYTES = 256 * 1024
"""Bytes per read: thousands of lines, and four times the capacity of a pipe."""
QUEUED_CHUNKS = 8
"""Pieces that reading may be ahead of publishing: enough to keep both busy, two megabytes."""
WHITESPACE = b" \t\r\n"


async def chunks(source: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of a source in pieces. Waiting for a pipe does not block the loop. Raises OSError
    when the source cannot be read."""
    descriptor = _descriptor(source)
    if descriptor is None:
        while piece := source.read(CHUNK_BYTES):
            yield piece
        return
    queue: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(QUEUED_CHUNKS)
    _read_in_thread(descriptor, queue, room)
    while arrived := await queue.get():
        if isinstance(arrived, OSError):
            raise arrived
        room.release()
        yield arrived


def _read_in_thread(
    descriptor: int, queue: asyncio.Queue[bytes | OSError], room: threading.Semaphore
) -> None:
    """Put what is read into a queue, up to the empty piece or the error that ends it."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        piece: bytes | OSError = b"?"
        while piece and not isinstance(piece, OSError):
            try:
                piece = os.read(descriptor, CHUNK_BYTES)
            except OSError as error:
                piece = error
            room.acquire()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, piece)

    # A daemon thread: nothing can interrupt a read of a terminal when Ctrl-C ends the loop.
    threading.Thread(target=read, daemon=True).start()


def _descriptor(source: BinaryIO) -> int | None:
    """A descriptor to wait on, or None when reading never blocks."""
    try:
        descriptor = source.fileno()
    except OSError:
        return None
    return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor


async def without_mark(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A text without the byte order mark that some programs write first."""
    start = b""
    async for piece in source:
        start += piece
        if len(start) >= len(codecs.BOM_UTF8) or not codecs.BOM_UTF8.startswith(start):
            break
    if start := start.removeprefix(codecs.BOM_UTF8):
        yield start
    async for piece in source:
        yield piece


class MessagePlaces:
    """The place of each message in its source, for error messages."""

    def __init__(self) -> None:
        self.by_line = True
        self._messages = 0
        self._skipped: list[int] = []

    def message(self) -> None:
        """The next line is a message."""
        self._messages += 1

    def blank(self) -> None:
        """The next line is none."""
        self._skipped.append(self._messages)

    def name(self, index: int) -> str:
        """The place of message `index`: its line, or its place in an array."""
        if not self.by_line:
            return f"message {index + 1}"
        return f"line {index + 1 + bisect_right(self._skipped, index)}"


async def lines(source: AsyncIterator[bytes], places: MessagePlaces) -> AsyncIterator[list[bytes]]:
    """Lines as they arrive, in lists, without blank ones."""
    rest = b""
    async for piece in without_mark(source):
        *whole, rest = (rest + piece).split(b"\n")
        if found := _messages(whole, places):
            yield found
    if found := _messages([rest], places):
        yield found


async def records(
    source: AsyncIterator[bytes], places: MessagePlaces
) -> AsyncIterator[list[bytes]]:
    """The same for records that end with U+0001 or a line break."""
    places.by_line = False
    async for found in lines(_with_line_breaks(source), places):
        yield found


async def _with_line_breaks(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in source:
        yield piece.replace(b"\x01", b"\n")


def _messages(whole: Sequence[bytes], places: MessagePlaces) -> list[bytes]:
    found = []
    for line in whole:
        if line.strip():
            places.message()
            found.append(line.removesuffix(b"\r"))
        else:
            places.blank()
    return found


async def documents(
    source: AsyncIterator[bytes], places: MessagePlaces
) -> AsyncIterator[list[bytes]]:
    """JSON documents as they arrive: NDJSON lines, one array, or one document."""
    start, rest = b"", without_mark(source)
    async for piece in rest:
        start += piece
        if not is_of_lines(start):
            continue
        async for found in lines(_again(start, rest), places):
            yield found
        return
    if start.strip():
        yield whole_text(start, places)


async def _again(start: bytes, source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield start
    async for piece in source:
        yield piece


def is_of_lines(start: bytes) -> bool:
    """Whether the first line of a text is a message: then every line is one."""
    line, end, _ = start.lstrip(WHITESPACE).partition(b"\n")
    if not end or line.startswith(b"["):
        return False
    # The server refuses a first line that is no document, with its number.
    return is_json(line) or not line.strip().startswith(b"{") or line.rstrip().endswith(b"}")


def is_json(text: bytes) -> bool:
    """Whether this is one JSON value."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def whole_text(text: bytes, places: MessagePlaces) -> list[bytes]:
    """The messages of a complete text: the elements of an array, else one document or its lines.

    `places` records where each stood. Raises BadMessage for an invalid array.
    """
    text = text.strip(WHITESPACE)
    if text.startswith(b"["):
        places.by_line = False
        try:
            members = msgspec.json.decode(text, type=list[msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadMessage(f"not a JSON array: {error}") from None
        return [on_one_line(bytes(member)) for member in members]
    if is_json(text):
        return [on_one_line(text)]
    return _messages(text.split(b"\n"), places)


def on_one_line(text: bytes) -> bytes:
    """The same JSON without line breaks; numbers keep their spelling."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


TABLE_ROWS_MAX = 1_000
"""Rows of one request, as of one frame of messages: stored all or none."""
TABLE_BYTES = 1024**2
"""Bytes of rows that complete a request: far below the server's limit."""


async def csv_tables(source: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, int]]:
    """Tables, each with the number of bytes of its rows; none without rows."""
    names: bytes | None = None
    pending = b""
    async for piece in _and_an_end(source):
        rows, pending = rows_in(pending + piece, is_over=not piece)
        if names is None and rows:
            names, rows = rows[0], rows[1:]
        for some in _shares(rows):
            yield b"".join([names or b"", *some]), sum(map(len, some))


async def _and_an_end(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in source:
        yield piece
    yield b""


def _shares(rows: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The rows of each request."""
    start = size = 0
    for at, row in enumerate(rows, 1):
        size += len(row)
        if size > TABLE_BYTES or at - start == TABLE_ROWS_MAX or at == len(rows):
            yield rows[start:at]
            start, size = at, 0


def rows_in(text: bytes, is_over: bool) -> tuple[list[bytes], bytes]:
    """The complete rows at the start of a text, with their line ends, and the rest. The rest is
    empty if the text `is_over`, or if it is longer than a row that the server accepts."""
    lines = text.split(b"\n")
    lines = [
        *(line + b"\n" for line in lines[:-1]),
        *([lines[-1] + b"\n"] if is_over and lines[-1] else []),
    ]
    # Only delimiters matter here, so that each byte can be one character.
    reader = csv.reader((line.decode("latin-1") for line in lines), strict=True)
    rows: list[bytes] = []
    ended = 0
    try:
        for _ in reader:
            rows.append(b"".join(lines[ended : reader.line_num]))
            ended = reader.line_num
    except csv.Error:
        pass  # an incomplete row, or one that the server will refuse
    rest = text[sum(map(len, lines[:ended])) :]
    if rest and (is_over or len(rest) > CSV_ROW_CHARS_MAX):
        return [*rows, rest], b""
    return rows, rest
