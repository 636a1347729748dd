"""Reads messages from a file or a pipe, and splits the bytes into messages, or CSV into tables.

Lines are passed on as they arrive, so that ``tail -f feed | sow publish`` publishes at once. An
array, or a JSON document over several lines, is read completely first.

A table is the header line and some rows of CSV, for one request. The server parses the cells
(`sow.messages.csv_rows`); this module only finds row ends, because a quoted line break does not end
a row. Rows are passed on as they arrive, including those that do not parse: the server refuses
them.
"""

import asyncio
import codecs
import contextlib
import csv
import os
import stat
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import BinaryIO

import msgspec

from sow.errors import BadMessage
from sow.messages.csv_rows import CSV_ROW_CHARS_MAX

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
