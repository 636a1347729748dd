"""CSV from a file or a pipe, cut into tables that the server takes in one request each.

A table is the line of names and some rows. What the cells mean is the server's business
(`sow.messages.csv_rows`); here is only found out where a row ends, which a line break within quotes
does not. Rows are handed on as they arrive; what cannot be read is, too, for the server to refuse.
"""

import csv
from collections.abc import AsyncIterator, Iterator, Sequence

from sow.messages.csv_rows import CSV_ROW_CHARS_MAX

TABLE_ROWS_MAX = 1_000
"""Rows of one request, as of one frame of other messages: they are stored all or none."""
TABLE_BYTES = 1024**2
"""Bytes of its rows from which on it is sent: far below what a request may have."""


async def csv_tables(source: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, int]]:
    """Tables, each with how many bytes its rows have; without rows there is none."""
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
    """The rows of one request after the other."""
    start = size = 0
    for at, row in enumerate(rows, 1):
        size += len(row)
        if size > TABLE_BYTES or at - start == TABLE_ROWS_MAX or at == len(rows):
            yield rows[start:at]
            start, size = at, 0


def rows_in(text: bytes, is_over: bool) -> tuple[list[bytes], bytes]:
    """The whole rows that a text begins with, with their line ends, and the rest, of which there is
    none if the text `is_over`, nor where it is longer than a row that the server takes."""
    lines = text.split(b"\n")
    lines = [
        *(line + b"\n" for line in lines[:-1]),
        *([lines[-1] + b"\n"] if is_over and lines[-1] else []),
    ]
    # What stands between commas and quotes does not matter: each byte is a character.
    reader = csv.reader((line.decode("latin-1") for line in lines), strict=True)
    rows: list[bytes] = []
    ended = 0
    try:
        for _ in reader:
            rows.append(b"".join(lines[ended : reader.line_num]))
            ended = reader.line_num
    except csv.Error:
        pass  # a row that is not whole yet, or that the server will say what is wrong with
    rest = text[sum(map(len, lines[:ended])) :]
    if rest and (is_over or len(rest) > CSV_ROW_CHARS_MAX):
        return [*rows, rest], b""
    return rows, rest
