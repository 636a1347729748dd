"""Splits CSV from a file or a pipe into tables, each sent in one request.

A table is the header line and some rows. The server parses the cells (`sow.messages.csv_rows`);
this module only finds row ends, because a quoted line break does not end a row. Rows are passed on
as they arrive, including those that do not parse: the server refuses them.
"""

import csv
from collections.abc import AsyncIterator, Iterator, Sequence

from sow.messages.csv_rows import CSV_ROW_CHARS_MAX

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
