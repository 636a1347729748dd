"""`sow dump`: writes the records of a topic, all as of one moment, to a file.

It queries the server's public API and writes records as they arrive. NDJSON holds them unchanged;
for tables the command reports what they cannot hold (`sow.cli.table_files`). CSV needs all columns
in its first line, so for CSV and Parquet a temporary file keeps the answer first.

The output appears as a whole or not at all: it is renamed once everything is on the disk.
"""

import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click
from rich.console import Console
from rich.progress import Progress

from sow.cli.connecting import connected, of_a_server
from sow.cli.options import example, filter_option, json_option, run, url_option
from sow.cli.plain_output import json_text
from sow.cli.publish import BYTES_TYPES, message_type, module_of
from sow.cli.table_files import CSV_FILE, FILE_FORMS, FILE_ROWS, NDJSON_FILE, CsvFields, form_of
from sow.cli.topic_names import topic_names
from sow.client import Client, Disconnected, Rows
from sow.client.errors import reported
from sow.client.http import records_of
from sow.client.tables import arrow
from sow.core.humanize import counted
from sow.core.media_types import ARROW, FRAMES
from sow.errors import ClientError, written_whole
from sow.messages.base import base64_line, string_line

SPOOLED_BYTES = 16 * 1024**2
"""Bytes of an answer kept in memory before it goes to a temporary file."""
PREFIX_BYTES = 4
"""The header of each message in a framed answer."""

Advance = Callable[[int], None]


@click.command(
    epilog=example(
        "sow dump orders orders.parquet",
        "sow dump orders - --filter '/qty > 10'",
    )
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", type=click.Path(allow_dash=True))
@filter_option
@click.option(
    "--format",
    "form",
    type=click.Choice(FILE_FORMS),
    help="The format of FILE, if its name does not show it.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@url_option
@json_option
def dump(
    topic: str,
    file: str,
    filter_text: str | None,
    form: str | None,
    force: bool,
    url: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC to FILE, or to standard output (-), as they are at one moment.

    The suffix of FILE chooses its format: .ndjson holds every record as it is, .csv and .parquet
    are tables of fields.
    """
    kind = form_of(file, form)
    check_is_new(file, force)
    dumped = Dumped(topic)
    with of_a_server():
        run(_dump(url, dumped, file, kind, filter_text, force))
    if as_json:
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
    url: str, dumped: Dumped, path: str, kind: str, filter_text: str | None, force: bool
) -> None:
    async with connected(url, "sow dump") as client:
        requested = {"filter": filter_text}
        if kind == NDJSON_FILE:
            module = await module_of(client, await message_type(client, dumped.topic))
            with new_file(path, force) as file:
                if module == "json":
                    await _write_documents(client, dumped, requested, file)
                else:
                    await _write_messages(client, dumped, requested, file, module in BYTES_TYPES)
            return
        with tempfile.SpooledTemporaryFile(SPOOLED_BYTES) as kept, new_file(path, force) as file:
            if kind == CSV_FILE:
                await _write_csv(client, dumped, requested, kept, file)
            else:
                await _write_parquet(client, dumped, requested, kept, file)


async def _write_documents(
    client: Client, dumped: Dumped, requested: dict[str, Any], file: Any
) -> None:
    """JSON documents, one per line."""
    async with client.http.rows(dumped.topic, requested) as rows:
        dumped.bookmark = rows.bookmark
        with progress("dumping", rows.matches) as advance:
            async for chunk in _whole(rows):
                file.write(b"".join([row + b"\n" for row in chunk]))
                dumped.records += len(chunk)
                advance(len(chunk))
        _check_all(dumped, rows.matches)


async def _whole(rows: Rows) -> AsyncIterator[list[bytes]]:
    async for chunk in rows.chunks():
        if chunk:
            yield chunk


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
    request = client.http.request("GET", records_of(dumped.topic), requested, accept=FRAMES)
    async with request as response:
        dumped.bookmark = response.headers.get("SOW-Bookmark", "")
        matches = int(response.headers.get("SOW-Matches", 0))
        with progress("dumping", matches) as advance:
            rest = b""
            while True:
                with reported(client.http.url):
                    data = await response.content.readany()
                if not data:
                    break
                bodies, rest = cut_frames(rest + data)
                file.write(b"".join([to_line(body) + b"\n" for body in bodies]))
                dumped.records += len(bodies)
                advance(len(bodies))
        _check_all(dumped, matches)


def cut_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete messages at the start of a framed answer, and the rest of it."""
    bodies, at = [], 0
    while len(data) - at >= PREFIX_BYTES:
        end = at + PREFIX_BYTES + int.from_bytes(data[at : at + PREFIX_BYTES], "big")
        if end > len(data):
            break
        bodies.append(data[at + PREFIX_BYTES : end])
        at = end
    return bodies, data[at:]


async def _write_csv(
    client: Client, dumped: Dumped, requested: dict[str, Any], kept: Any, file: BinaryIO
) -> None:
    await _write_documents(client, dumped, requested, kept)
    is_json = await module_of(client, await message_type(client, dumped.topic)) == "json"
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

    request = client.http.request("GET", records_of(dumped.topic), requested, accept=ARROW)
    async with request as response:
        dumped.bookmark = response.headers.get("SOW-Bookmark", "")
        matches = int(response.headers.get("SOW-Matches", 0))
        while True:
            with reported(client.http.url):
                data = await response.content.readany()
            if not data:
                break
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


@contextmanager
def progress(what: str, total: int) -> Iterator[Advance]:
    """Shows progress on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


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
