"""`sow dump` and `sow load`: the records of a topic to a file, all as of one moment, and back.

A dump queries the server's public API and writes records as they arrive. NDJSON holds them
unchanged, one that expires as a pair of when it does and the record, which no record is itself. For
tables the command reports what they cannot hold (`sow.cli.table_files`). CSV needs
all columns in its first line, so for CSV and Parquet a temporary file keeps the answer first. The
output appears as a whole or not at all: it is renamed once everything is on the disk.

A load reads a file of these formats. Each request carries some hundred rows, is stored completely
or not at all, and is acknowledged once it is on the server's disk. So a load that fails reports how
many records are stored, and can be repeated.
"""

import contextlib
import os
import re
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from sow.cli.commands.publish import BYTES_TYPES, Upload, file_size, frames, module_of, row
from sow.cli.connecting import of_a_server, server_command
from sow.cli.options import filter_option, topic_argument, topic_names
from sow.cli.output import as_json, json_text, show
from sow.cli.table_files import (
    CSV_FILE,
    FILE_FORMS,
    FILE_ROWS,
    NDJSON_FILE,
    CsvFields,
    MessagePlaces,
    chunks,
    csv_tables,
    form_of,
    lines,
    open_parquet,
    parquet_lines,
)
from sow.cli.tables import progress
from sow.client import Client, Disconnected
from sow.client.http import pieces, records_of, taken
from sow.client.tables import arrow
from sow.core.humanize import counted
from sow.core.media_types import ARROW, CSV, FRAMES, NDJSON
from sow.errors import ClientError, UnknownRecord, written_whole
from sow.messages.base import base64_line, string_line

SPOOLED_BYTES = 16 * 1024**2
"""Bytes of an answer kept in memory before it goes to a temporary file."""
PREFIX_BYTES = 4
"""The header of each message in a framed answer."""


form_option = click.option(
    "--format",
    "form",
    type=click.Choice(FILE_FORMS),
    help="The format of FILE, if its name does not show it.",
)


@server_command("sow dump orders orders.parquet", "sow dump orders --filter '/qty > 10'")
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", default="-", type=click.Path(allow_dash=True))
@filter_option
@form_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
async def dump(
    client: Client, topic: str, file: str, filter_text: str | None, form: str | None, force: bool
) -> None:
    """Write the records of TOPIC to FILE, or to standard output, as they are at one moment.

    The suffix of FILE chooses its format: .ndjson holds every record as it is, and the events of a
    series; .csv and .parquet are tables of fields, without events and lifetimes.
    """
    kind = form_of(file, form)
    check_is_new(file, force)
    dumped = Dumped(topic)
    with of_a_server():
        await _dump(client, dumped, file, kind, filter_text, force)
    if as_json():
        report = json_text({"records": dumped.records, "bookmark": dumped.bookmark})
        click.echo(report, err=file == "-")
    else:
        sent_text = f"{counted(dumped.records, 'record')} of {topic}, bookmark {dumped.bookmark}"
        click.echo(sent_text, err=True)
    if dumped.warning:
        click.echo(f"sow: {dumped.warning}", err=True)


class Dumped:
    """The result of a dump."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.records = 0
        self.bookmark = ""
        self.warning = ""


async def _dump(
    client: Client, dumped: Dumped, path: str, kind: str, filter_text: str | None, force: bool
) -> None:
    requested: dict[str, Any] = {"filter": filter_text}
    if kind == NDJSON_FILE:
        module = await module_of(client, dumped.topic)
        is_series = await _is_series(client, dumped)
        with new_file(path, force) as file:
            requested["meta"] = True
            if module == "json" and is_series:
                dumped.warning = ""
                await _write_events(client, dumped, requested, file)
            elif module == "json":
                await _write_documents(client, dumped, requested, file, line_of)
            else:
                await _write_messages(client, dumped, requested, file, module in BYTES_TYPES)
        return
    await _is_series(client, dumped)
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as kept, new_file(path, force) as file:
        if kind == CSV_FILE:
            await _write_csv(client, dumped, requested, kept, file)
        else:
            await _write_parquet(client, dumped, requested, kept, file)


async def _is_series(client: Client, dumped: Dumped) -> bool:
    """Whether a topic keeps more than the newest event of a record; then most files do not."""
    is_series = "series" in await client.topic(dumped.topic)
    if is_series:
        dumped.warning = (
            "the file has the newest event of each record only; .ndjson of JSON has all that are "
            "retained, and sow backup has them of every type"
        )
    return is_series


class Row(msgspec.Struct):
    """A record as a query with `meta` shows it; `expires` is UNSET where its topic says so too."""

    k: str = ""
    d: msgspec.Raw = msgspec.Raw(b"")
    expires: str | msgspec.UnsetType | None = msgspec.UNSET


class Lifetime(msgspec.Struct):
    """What a line says of its record; `expires` None is never."""

    expires: str | None


class DumpedEvent(msgspec.Struct):
    """An event of a record of a series."""

    seq: int
    d: msgspec.Raw


EVENTS_AT_ONCE = 10_000
"""Events of one answer, at most what the server gives."""
EVENTS = msgspec.json.Decoder(list[DumpedEvent])
DUMPED_ROW = msgspec.json.Decoder(Row)
TIMED = msgspec.json.Decoder(tuple[Lifetime, msgspec.Raw])
MAY_BE_TIMED = re.compile(rb'\s*\[\s*\{\s*"expires"')


def line_of(text: bytes) -> bytes:
    """The line of a record in a file."""
    row = DUMPED_ROW.decode(text)
    return _timed(row, bytes(row.d))


def _timed(row: Row, line: bytes) -> bytes:
    if isinstance(row.expires, msgspec.UnsetType):
        return line
    return b"[%b,%b]" % (msgspec.json.encode(Lifetime(row.expires)), line)


def row_of(line: bytes) -> bytes:
    """The inverse of `line_of`."""
    if MAY_BE_TIMED.match(line):
        # Any other line is refused by the server, with its place.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            lifetime, record = TIMED.decode(line)
            expires = msgspec.json.encode(lifetime.expires)
            return b'{"expires":%b,"d":%b}' % (expires, bytes(record))
    return b'{"d":%b}' % line


async def _write_documents(
    client: Client,
    dumped: Dumped,
    requested: dict[str, Any],
    file: Any,
    line: Callable[[bytes], bytes] = bytes,
) -> None:
    """JSON documents, one per line."""
    async with client.http.rows(dumped.topic, requested) as rows:
        dumped.bookmark = rows.bookmark
        with progress("dumping", rows.matches) as advance:
            async for chunk in rows.chunks():
                file.write(b"".join([line(row) + b"\n" for row in chunk]))
                dumped.records += len(chunk)
                advance(len(chunk))
        _check_all(dumped, rows.matches)


async def _write_events(
    client: Client, dumped: Dumped, requested: dict[str, Any], file: Any
) -> None:
    """The events of each record that are retained, a line for each and the oldest first: `load`
    appends them again."""
    async with client.http.rows(dumped.topic, requested) as rows:
        dumped.bookmark = rows.bookmark
        with progress("dumping", rows.matches) as advance:
            async for chunk in rows.chunks():
                for text in chunk:
                    row = DUMPED_ROW.decode(text)
                    events = await _events_of(client, dumped, row)
                    file.write(b"".join([_timed(row, bytes(one)) + b"\n" for one in events]))
                dumped.records += len(chunk)
                advance(len(chunk))
        _check_all(dumped, rows.matches)


async def _events_of(client: Client, dumped: Dumped, row: Row) -> list[msgspec.Raw]:
    """The events of a record up to the moment of the dump; the newest alone if it is gone since."""
    found: list[DumpedEvent] = []
    until, path = int(dumped.bookmark), f"{records_of(dumped.topic)}/{row.k}/events"
    try:
        while until:
            query = {"to": until, "limit": EVENTS_AT_ONCE}
            async with client.http.request("GET", path, query) as response:
                some = EVENTS.decode(await taken(client.url, response))
            found[:0] = some
            until = some[0].seq - 1 if len(some) == EVENTS_AT_ONCE else 0
    except ClientError as error:
        if error.status != UnknownRecord.status:
            raise
    return [one.d for one in found] or [row.d]


@asynccontextmanager
async def _answer(
    client: Client, dumped: Dumped, requested: dict[str, Any], accept: str
) -> AsyncIterator[tuple[AsyncIterator[bytes], int]]:
    """The answer to a query in another format, as it arrives, and its number of records."""
    request = client.http.request("GET", records_of(dumped.topic), requested, accept=accept)
    async with request as response:
        dumped.bookmark = response.headers.get("SOW-Bookmark", "")
        yield pieces(client.url, response), int(response.headers.get("SOW-Matches", 0))


def _check_all(dumped: Dumped, promised: int) -> None:
    if dumped.records != promised:
        raise Disconnected(
            f"the server ended its answer after {dumped.records:,} of {promised:,} records; "
            "nothing was written, try again"
        )


async def _write_messages(
    client: Client, dumped: Dumped, requested: dict[str, Any], file: Any, in_base64: bool
) -> None:
    """Messages of another type, each as the JSON string that represents it."""
    to_line = base64_line if in_base64 else string_line
    async with _answer(client, dumped, requested, FRAMES) as (arriving, matches):
        with progress("dumping", matches) as advance:
            rest = b""
            async for data in arriving:
                found, rest = cut_frames(rest + data, 2)
                heads, bodies = map(DUMPED_ROW.decode, found[::2]), map(to_line, found[1::2])
                written = [_timed(*pair) + b"\n" for pair in zip(heads, bodies, strict=True)]
                file.write(b"".join(written))
                dumped.records += len(written)
                advance(len(written))
        _check_all(dumped, matches)


def cut_frames(data: bytes, together: int = 1) -> tuple[list[bytes], bytes]:
    """The complete messages at the start of a framed answer, so many `together`, and the rest."""
    bodies, ends, at = [], [0], 0
    while len(data) - at >= PREFIX_BYTES:
        end = at + PREFIX_BYTES + int.from_bytes(data[at : at + PREFIX_BYTES], "big")
        if end > len(data):
            break
        bodies.append(data[at + PREFIX_BYTES : end])
        at = end
        ends.append(at)
    whole = len(bodies) - len(bodies) % together
    return bodies[:whole], data[ends[whole] :]


async def _write_csv(
    client: Client, dumped: Dumped, requested: dict[str, Any], kept: Any, file: BinaryIO
) -> None:
    await _write_documents(client, dumped, requested, kept)
    is_json = await module_of(client, dumped.topic) == "json"
    fields = CsvFields()
    for rows in _kept_rows(kept):
        fields.look(rows)
    file.write(fields.header())
    for rows in _kept_rows(kept):
        file.write(fields.lines(rows))
    if fields.changed and is_json:
        dumped.warning = (
            f"CSV does not hold all of {counted(fields.changed, 'record')}, the first "
            f"{fields.first_changed}: null, absent and empty are one there, and texts that look "
            "like numbers are numbers unless the Schema declares them; .ndjson holds all"
        )


def _kept_rows(kept: Any) -> Iterator[list[bytes]]:
    kept.seek(0)
    while rows := [line.rstrip(b"\n") for line in islice(kept, FILE_ROWS)]:
        yield rows


async def _write_parquet(
    client: Client, dumped: Dumped, requested: dict[str, Any], kept: Any, file: BinaryIO
) -> None:
    pa = arrow()
    import pyarrow.parquet as pq

    async with _answer(client, dumped, requested, ARROW) as (arriving, matches):
        async for data in arriving:
            kept.write(data)
    kept.seek(0)
    try:
        stream = pa.ipc.open_stream(kept)
        with pq.ParquetWriter(file, stream.schema) as out, progress("dumping", matches) as advance:
            for batch in stream:
                out.write_batch(batch)
                dumped.records += len(batch)
                advance(len(batch))
    except pa.ArrowException:
        _check_all(dumped, matches)
        raise
    _check_all(dumped, matches)


STANDARD = "-"
"""Stands for standard input or output in place of a file name."""


def check_is_new(path: str, force: bool) -> None:
    """Refuse to overwrite a file unless `force` allows it; raises ClientError."""
    if path == STANDARD:
        return
    if Path(path).is_dir():
        raise ClientError(f"{path} is a directory; name a file in it")
    if Path(path).exists() and not force:
        raise ClientError(f"{path} exists already; --force overwrites it")


@contextmanager
def new_file(path: str, force: bool = False) -> Iterator[BinaryIO]:
    """The file at `path`, or standard output, for writing (`with`); raises ClientError, StoreError
    if the disk is full, OSError."""
    check_is_new(path, force)
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = Path(f"{path}.{secrets.token_hex(4)}.unfinished")
    try:
        with written_whole(path), unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check_is_new(path, force)  # another process may have created it meanwhile
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


STANDARD_INPUT = "standard input"


@server_command("sow load orders orders.parquet", "sow load orders feed.log --format ndjson")
@topic_argument
@click.argument("file", type=click.Path(allow_dash=True))
@form_option
@click.option(
    "--nan-as-null",
    is_flag=True,
    help="Load NaN and infinities of Parquet as no value; else they are refused.",
)
async def load(client: Client, topic: str, file: str, form: str | None, nan_as_null: bool) -> None:
    """Publish the records of FILE, or of standard input (-), to TOPIC.

    The suffix of FILE gives its format: .ndjson, .csv or .parquet. Ends when all are on the
    server's disk.
    """
    kind, is_input = form_of(file, form), file == "-"
    name = STANDARD_INPUT if is_input else file
    upload = Upload(client, topic, name, _loaded_before)
    with nullcontext(sys.stdin.buffer) if is_input else Path(file).open("rb") as source:
        await _load(upload, source, kind, name, nan_as_null)
    if not upload.published:
        await client.topic(topic)  # raises if there is none
    at = f" (bookmark {upload.bookmark})" if upload.bookmark else ""
    show(
        {"loaded": upload.published, "bookmark": upload.bookmark},
        f"loaded {counted(upload.published, 'record')} into {topic}{at}",
    )


def _loaded_before(records: int) -> str:
    return f"; loaded before it: {counted(records, 'record')}" if records else ""


async def _load(upload: Upload, source: BinaryIO, kind: str, name: str, nan_as_null: bool) -> None:
    if kind in (CSV_FILE, NDJSON_FILE):
        places = MessagePlaces()
        with progress("loading", file_size(source)) as advance:
            if kind == CSV_FILE:
                await upload.send(csv_tables(chunks(source)), CSV, row, advance)
            else:
                bodies = _lines(upload, source, places)
                await upload.send(bodies, NDJSON, places.name, advance)
        return
    with tempfile.TemporaryFile() as kept:
        if name == STANDARD_INPUT:
            async for piece in chunks(source):
                kept.write(piece)  # its footer, which is read first, comes last
            source = kept
        file = open_parquet(source, name)
        with progress("loading", file.metadata.num_rows) as advance:
            await upload.send(_rows(file, name, nan_as_null), NDJSON, row, advance)


Bodies = AsyncIterator[tuple[bytes, int]]
"""Bodies of requests, and the progress each adds."""


async def _lines(upload: Upload, source: BinaryIO, places: MessagePlaces) -> Bodies:
    """Lines of a file; where some say when their records expire, `upload` sends all as rows."""
    async for found in lines(chunks(source), places):
        for frame in frames(found):
            is_timed = any(map(MAY_BE_TIMED.match, frame))
            upload.parameters["meta"] = True if is_timed else None
            body = b"\n".join(map(row_of, frame) if is_timed else frame)
            yield body, sum(map(len, frame)) + len(frame)


async def _rows(file: Any, name: str, nan_as_null: bool) -> Bodies:
    for found in parquet_lines(file, name, nan_as_null):
        for frame in frames(found):
            yield b"\n".join(frame), len(frame)
