"""`sow load`: publishes the records of a file to a topic.

The file is one that `sow dump` writes, or of the same format. Each request carries some hundred
rows, is stored completely or not at all, and is acknowledged once it is on the server's disk. So a
load that fails reports how many records are stored, and can be repeated.
"""

import re
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from sow.cli.connecting import connected
from sow.cli.csv_tables import csv_tables
from sow.cli.dump import progress
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text
from sow.cli.publish import file_size, frames
from sow.cli.reading import MessagePlaces, chunks, lines
from sow.cli.table_files import (
    CSV_FILE,
    FILE_FORMS,
    NDJSON_FILE,
    form_of,
    open_parquet,
    parquet_lines,
)
from sow.cli.topic_names import topic_names
from sow.client import Client
from sow.client.http import records_of
from sow.core.humanize import counted
from sow.core.media_types import CSV, NDJSON
from sow.errors import BadMessage, SowError

STANDARD_INPUT = "standard input"


@click.command(
    epilog=example("sow load orders orders.parquet", "sow load orders feed.log --format ndjson")
)
@click.argument("topic", shell_complete=topic_names)
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
@url_option
@json_option
def load(
    topic: str, file: str, form: str | None, nan_as_null: bool, url: str, as_json: bool
) -> None:
    """Publish the records of FILE, or of standard input (-), to TOPIC.

    The suffix of FILE gives its format: .ndjson, .csv or .parquet. Ends when all are on the
    server's disk.
    """
    kind = form_of(file, form)
    loaded = LoadProgress(topic, STANDARD_INPUT if file == "-" else file, nan_as_null)
    if file == "-":
        run(_load(url, loaded, sys.stdin.buffer, kind))
    else:
        with Path(file).open("rb") as source:
            run(_load(url, loaded, source, kind))
    if as_json:
        click.echo(json_text({"loaded": loaded.records, "bookmark": loaded.bookmark}))
    else:
        at = f" (bookmark {loaded.bookmark})" if loaded.bookmark else ""
        click.echo(f"loaded {counted(loaded.records, 'record')} into {topic}{at}")


class LoadProgress:
    """A load: its source, format and progress."""

    def __init__(self, topic: str, name: str, nan_as_null: bool) -> None:
        self.topic = topic
        self.name = name
        self.nan_as_null = nan_as_null
        self.records = 0
        self.bookmark = ""


Requests = AsyncIterator[tuple[bytes, int]]
"""Bodies of requests, and the progress each adds."""


async def _load(url: str, loaded: LoadProgress, source: BinaryIO, kind: str) -> None:
    places = MessagePlaces()
    async with connected(url, "sow load") as client:
        if kind == CSV_FILE:
            tables = csv_tables(chunks(source))
            await _send(client, loaded, tables, file_size(source), "row", CSV)
        elif kind == NDJSON_FILE:
            requests = _lines(source, places)
            await _send(client, loaded, requests, file_size(source), places, NDJSON)
        else:
            with tempfile.TemporaryFile() as kept:
                if loaded.name == STANDARD_INPUT:
                    async for piece in chunks(source):
                        kept.write(piece)  # its footer, which is read first, comes last
                    source = kept
                file = open_parquet(source, loaded.name)
                rows = file.metadata.num_rows
                await _send(client, loaded, _rows(file, loaded), rows, "row", NDJSON)


async def _lines(source: BinaryIO, places: MessagePlaces) -> Requests:
    async for found in lines(chunks(source), places):
        for frame in frames(found):
            yield b"\n".join(frame), sum(map(len, frame)) + len(frame)


async def _rows(file: Any, loaded: LoadProgress) -> Requests:
    for documents in parquet_lines(file, loaded.name, loaded.nan_as_null):
        for frame in frames(documents):
            yield b"\n".join(frame), len(frame)


async def _send(
    client: Client,
    loaded: LoadProgress,
    requests: Requests,
    total: int,
    places: MessagePlaces | str,
    content_type: str,
) -> None:
    """Publish one request after another."""
    try:
        with progress("loading", total) as advance:
            async for body, size in requests:
                answer = await client.http.json(
                    "POST", records_of(loaded.topic), body=body, content_type=content_type
                )
                loaded.records += answer["published"]
                loaded.bookmark = str(answer["bookmark"])
                advance(size)
        if not loaded.records:
            await client.topic(loaded.topic)  # raises if there is none
    except SowError as error:
        _explain(error, loaded, places)
        raise


def _explain(error: SowError, loaded: LoadProgress, places: MessagePlaces | str) -> None:
    """Add the place in the file to an error, and the number of records loaded before it."""
    if isinstance(error, BadMessage):
        error.index += loaded.records
        at = error.index
        place = f"row {at + 1}" if isinstance(places, str) else places.name(at)
        detail = re.sub(r"^message \d+: ", "", error.detail)
        error.detail = f"{place} of {loaded.name}: {detail}"
    if loaded.records:
        error.detail += f"; loaded before it: {counted(loaded.records, 'record')}"
