"""`sow publish` and `sow delete`: send messages to a topic, or remove its records."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, TypedDict

import click
from rich.console import Console
from rich.progress import Progress

from sow.cli.connecting import connected
from sow.cli.csv_tables import csv_tables
from sow.cli.options import example, filter_option, json_option, run, url_option
from sow.cli.plain_output import json_text
from sow.cli.reading import MessagePlaces, chunks, documents, lines, records
from sow.cli.topic_names import topic_names
from sow.client import Client, Publisher
from sow.client.client import FRAME_MESSAGES
from sow.client.http import topic_path
from sow.core.humanize import counted
from sow.core.media_types import CSV
from sow.errors import BadMessage, SowError, UnknownTopic

FRAME_BYTES = 1024**2
"""Bodies of one frame: far below the limit, and enough to share its cost."""
BIG_BYTES = 8 * 1024**2
"""Size of a file that is worth a progress bar: a shorter one takes less than a second."""
BYTES_TYPES = frozenset(
    {"binary", "bflat", "bson", "msgpack", "composite-local", "composite-global"}
)
"""Message types in which a line break is an ordinary byte."""
CUTS = {"json": documents, "record": records}
"""How the input is split into messages; for other types each line is one."""

Advance = Callable[[int], None]


class How(TypedDict):
    """Options that apply to every message."""

    key: str | None
    expires_s: float | None
    delta: bool


@click.command(
    epilog=example(
        "sow publish orders orders.ndjson", "tail -f feed.ndjson | sow publish orders --delta"
    )
)
@click.argument("topic", shell_complete=topic_names)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--delta", is_flag=True, help="Merge each message into its record.")
@click.option("--key", metavar="K", help="The record's key, for a topic without Key; one message.")
@click.option(
    "--expiration",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Lifetime of the records; 0: for ever.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv"]),
    help="The format of FILE, if not messages of the topic's type: a table with a header line.",
)
@url_option
@json_option
def publish(
    topic: str,
    file: BinaryIO,
    delta: bool,
    key: str | None,
    expiration: float | None,
    form: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Publish the messages of FILE, or of standard input (-), to TOPIC.

    A json topic takes JSON lines, one array, or one document; a text type takes lines, or records
    that end with U+0001; a binary type or a composite takes the whole file as one message. With
    --format csv each row of a table becomes a message. Ends when all are on the server's disk.
    """
    name = "standard input" if file is sys.stdin.buffer else file.name
    how: How = {"key": key, "expires_s": expiration, "delta": delta}
    with progress(file) as advance:
        work = _publish if form is None else _publish_csv
        count, bookmark = run(work(url, topic, file, name, how, advance))
    if as_json:
        click.echo(json_text({"published": count, "bookmark": bookmark}))
    else:
        at = f" (bookmark {bookmark})" if bookmark else ""
        click.echo(f"published {counted(count, 'message')} to {topic}{at}")


@contextlib.contextmanager
def progress(file: BinaryIO) -> Iterator[Advance]:
    """Shows the progress of a big file on a terminal."""
    size = file_size(file)
    if size < BIG_BYTES or not sys.stderr.isatty():
        yield lambda _count: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("publishing", total=size)
        yield lambda count: bar.advance(task, count)


def file_size(file: BinaryIO) -> int:
    """Bytes of a file; 0 if unknown, as for a pipe."""
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


async def _publish(
    url: str,
    topic: str,
    file: BinaryIO,
    name: str,
    how: How,
    advance: Advance,
) -> tuple[int, str]:
    async with connected(url, "sow publish") as client:
        kind = await module_of(client, await message_type(client, topic))
        if kind in BYTES_TYPES:
            body = b"".join([piece async for piece in chunks(file)])
            publish = client.delta_publish if how["delta"] else client.publish
            return 1, await publish(topic, body, key=how["key"], expires_s=how["expires_s"])
        places = MessagePlaces()
        cut = CUTS.get(kind, lines)
        publisher = await client.publisher(topic)
        try:
            async for found in cut(chunks(file), places):
                for frame in frames(found):
                    await publisher.send(frame, **how)
                    advance(sum(map(len, frame)) + len(frame))
            await publisher.drain()
            if not publisher.sent:
                await _publish_nothing(client, topic)
        except SowError as error:
            await _explain(error, publisher, places, name)
            raise
        finally:
            await publisher.close()
        return publisher.published, publisher.bookmark


async def _publish_csv(
    url: str,
    topic: str,
    file: BinaryIO,
    name: str,
    how: How,
    advance: Advance,
) -> tuple[int, str]:
    count, bookmark = 0, ""
    method = "PATCH" if how["delta"] else "POST"
    requested = {"k": how["key"], "expiration": how["expires_s"]}
    async with connected(url, "sow publish") as client:
        try:
            async for table, size_bytes in csv_tables(chunks(file)):
                answer = await client.http.json(
                    method, f"{topic_path(topic)}/records", requested, body=table, content_type=CSV
                )
                count, bookmark = count + answer["published"], str(answer["bookmark"])
                advance(size_bytes)
            if not count:
                await _publish_nothing(client, topic)
        except BadMessage as error:
            detail = re.sub(r"^message \d+: ", "", error.detail)
            error.detail = f"row {count + error.index + 1} of {name}: {detail}"
            if count:
                error.detail += f"; {count:,} other messages were published"
            error.index += count
            raise
    return count, bookmark


async def _publish_nothing(client: Client, topic: str) -> None:
    """Fail if the topic takes no messages, even if there are none to send."""
    with contextlib.suppress(BadMessage):
        await client.http.json("POST", f"{topic_path(topic)}/records")


async def message_type(client: Client, topic: str) -> str:
    """The type of a topic's messages, or of the topic that a pattern would create."""
    try:
        return str((await client.topic(topic))["message_type"])
    except UnknownTopic:
        for pattern in await client.topics():
            if pattern["kind"] == "pattern" and "keys" in pattern:
                # Only to choose how to split the input; the server judges whether the name matches.
                with contextlib.suppress(re.error):
                    if re.search(pattern["pattern"], topic):
                        return str(pattern["message_type"])
        raise


async def module_of(client: Client, message_type: str) -> str:
    """The type that a message type is a variant of, or a built-in type itself."""
    configured = await client.http.json("GET", "/v1/message-types")
    modules = {str(one["name"]): str(one["module"]) for one in configured}
    return modules.get(message_type, message_type)


async def _explain(error: SowError, publisher: Publisher, places: MessagePlaces, name: str) -> None:
    """Add the place of the message to an error, and the number of messages published before it."""
    await publisher.settle()
    if isinstance(error, BadMessage):
        # The server counts within its frame; a user counts lines.
        detail = re.sub(r"^message \d+: ", "", error.detail)
        error.detail = f"{places.name(error.index)} of {name}: {detail}"
    if publisher.published:
        error.detail += f"; {publisher.published:,} other messages were published"


def frames(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Split bodies into frames, bounded in messages and bytes."""
    start = size = 0
    for at, body in enumerate(bodies):
        if at > start and (at - start == FRAME_MESSAGES or size + len(body) > FRAME_BYTES):
            yield bodies[start:at]
            start, size = at, 0
        size += len(body)
    if start < len(bodies):
        yield bodies[start:]


@click.command(epilog=example("sow delete orders --filter '/qty = 0'"))
@click.argument("topic", shell_complete=topic_names)
@filter_option
@click.option("--keys", metavar="K,..", help="SowKeys of the records, comma separated.")
@url_option
@json_option
def delete(topic: str, filter_text: str | None, keys: str | None, url: str, as_json: bool) -> None:
    """Delete records of TOPIC by --filter ("1=1" for all) or by --keys."""
    if (filter_text is None) == (keys is None):
        raise click.UsageError("give exactly one of --filter ('1=1' for all records) and --keys")
    deleted = run(_delete(url, topic, filter_text, keys.split(",") if keys is not None else None))
    if as_json:
        click.echo(json_text({"deleted": deleted}))
    else:
        click.echo(f"deleted {counted(deleted, 'record')} from {topic}")


async def _delete(url: str, topic: str, filter_text: str | None, keys: list[str] | None) -> int:
    async with connected(url, "sow delete") as client:
        if keys is None:
            return await client.delete(topic, filter=filter_text)
        return await client.delete(topic, keys=keys)
