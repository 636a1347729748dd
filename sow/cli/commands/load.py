"""`sow load`: publishes the records of a file to a topic.

The file is one that `sow dump` writes, or of the same format. Each request carries some hundred
rows, is stored completely or not at all, and is acknowledged once it is on the server's disk. So a
load that fails reports how many records are stored, and can be repeated.
"""

import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import click

from sow.cli.commands.publish import Upload, file_size, frames, row
from sow.cli.completion import topic_argument
from sow.cli.connecting import server_command
from sow.cli.output import show
from sow.cli.reading import MessagePlaces, chunks, csv_tables, lines
from sow.cli.table_files import (
    CSV_FILE,
    FILE_FORMS,
    NDJSON_FILE,
    form_of,
    open_parquet,
    parquet_lines,
)
from sow.cli.tables import progress
from sow.client import Client
from sow.core.humanize import counted
from sow.core.media_types import CSV, NDJSON

STANDARD_INPUT = "standard input"


@server_command("sow load orders orders.parquet", "sow load orders feed.log --format ndjson")
@topic_argument
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(FILE_FORMS),
    help="The format of FILE, if its name does not show it.",
)
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
                await upload.send(_lines(source, places), NDJSON, places.name, advance)
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


async def _lines(source: BinaryIO, places: MessagePlaces) -> Bodies:
    async for found in lines(chunks(source), places):
        for frame in frames(found):
            yield b"\n".join(frame), sum(map(len, frame)) + len(frame)


async def _rows(file: Any, name: str, nan_as_null: bool) -> Bodies:
    for found in parquet_lines(file, name, nan_as_null):
        for frame in frames(found):
            yield b"\n".join(frame), len(frame)
