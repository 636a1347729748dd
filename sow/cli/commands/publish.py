"""`sow publish` and `sow delete`: send messages to a topic, or remove its records."""

import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypedDict
from urllib.parse import quote

import click

from sow.cli.connecting import confirm, connected, server_command
from sow.cli.options import filter_option, key_option, run, topic_argument, yes_option
from sow.cli.output import show
from sow.cli.table_files import MessagePlaces, chunks, csv_tables, documents, lines, records
from sow.cli.tables import Advance, progress
from sow.client import Client
from sow.client.client import FRAME_MESSAGES
from sow.client.http import length_prefixed, records_of
from sow.core.humanize import counted
from sow.core.media_types import CSV, FRAMES
from sow.errors import BadMessage, SowError, UnknownRecord, UnknownTopic

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

Place = Callable[[int], str]
"""The place of a message in its source, by its index."""


class How(TypedDict):
    """Options that apply to every message."""

    key: str | None
    expires_s: float | None
    delta: bool


class Numbering(NamedTuple):
    """The durable name whose messages are numbered, if any, and the first number, if it is not the
    next one."""

    client: str | None = None
    seq: int | None = None


@server_command(
    "sow publish orders orders.ndjson", "tail -f feed.ndjson | sow publish orders --delta"
)
@topic_argument
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
@click.option(
    "--client",
    "name",
    metavar="NAME",
    help="Number the messages of this durable name: none is stored twice.",
)
@click.option(
    "--from-start",
    is_flag=True,
    help="The first message of FILE has the number 1: run again, it is published once.",
)
async def publish(
    client: Client,
    topic: str,
    file: BinaryIO,
    delta: bool,
    key: str | None,
    expiration: float | None,
    form: str | None,
    name: str | None,
    from_start: bool,
) -> None:
    """Publish the messages of FILE, or of standard input (-), to TOPIC.

    A json topic takes JSON lines, one array, or one document; a text type takes lines, or records
    that end with U+0001; a binary type or a composite takes the whole file as one message. With
    --format csv each row of a table becomes a message. Ends when all are on the server's disk.
    """
    if from_start and name is None:
        raise click.UsageError("--from-start numbers the messages of a name; give --client")
    how: How = {"key": key, "expires_s": expiration, "delta": delta}
    size_bytes, numbering = file_size(file), Numbering(name, 1 if from_start else None)
    with progress("publishing", size_bytes, is_shown=size_bytes >= BIG_BYTES) as advance:
        work = _publish if form is None else _publish_csv
        done = await work(numbering, client, topic, file, how, advance)
    at = f" (bookmark {done.bookmark})" if done.bookmark else ""
    before = f", {done.duplicates:,} of them before" if done.duplicates else ""
    report: dict[str, object] = {"published": done.published, "bookmark": done.bookmark}
    if name is not None:
        report["duplicates"] = done.duplicates
    show(report, f"published {counted(done.published, 'message')} to {topic}{before}{at}")


def file_size(file: BinaryIO) -> int:
    """Bytes of a file; 0 if unknown, as for a pipe."""
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def _name(file: BinaryIO) -> str:
    return "standard input" if file is sys.stdin.buffer else file.name


class Done(NamedTuple):
    """What was published, and how many of that the server had before."""

    published: int
    bookmark: str
    duplicates: int = 0


async def _publish(
    numbering: Numbering, client: Client, topic: str, file: BinaryIO, how: How, advance: Advance
) -> Done:
    kind = await module_of(client, topic)
    if kind in BYTES_TYPES:
        upload = await _upload(numbering, client, topic, file, how)
        await upload.send(_whole(file), FRAMES, lambda _index: "the message", advance)
        return upload.done
    places = MessagePlaces()
    cut = CUTS.get(kind, lines)
    publisher = await client.publisher(topic, **numbering._asdict())
    try:
        async for found in cut(chunks(file), places):
            for frame in frames(found):
                await publisher.send(frame, **how)
                advance(sum(map(len, frame)) + len(frame))
        await publisher.drain()
        if not publisher.sent:
            await _publish_nothing(client, topic)
    except SowError as error:
        await publisher.settle()
        _explain(error, places.name, _name(file), _others(publisher.published))
        raise
    finally:
        await publisher.close()
    return Done(publisher.published, publisher.bookmark, publisher.duplicates)


async def _publish_csv(
    numbering: Numbering, client: Client, topic: str, file: BinaryIO, how: How, advance: Advance
) -> Done:
    upload = await _upload(numbering, client, topic, file, how)
    await upload.send(csv_tables(chunks(file)), CSV, row, advance)
    if not upload.published:
        await _publish_nothing(client, topic)
    return upload.done


async def _whole(file: BinaryIO) -> AsyncIterator[tuple[bytes, int]]:
    """The whole input as one message."""
    body = b"".join([piece async for piece in chunks(file)])
    yield length_prefixed([body]), len(body)


async def _upload(
    numbering: Numbering, client: Client, topic: str, file: BinaryIO, how: How
) -> "Upload":
    upload = Upload(client, topic, _name(file), _others)
    if how["delta"]:
        upload.method = "PATCH"
    upload.parameters = {"k": how["key"], "expiration": how["expires_s"]}
    await upload.number(topic, numbering)
    return upload


def _others(published: int) -> str:
    return f"; {published:,} other messages were published" if published else ""


class Upload:
    """Messages for `topic`, published by one request after another. Each is stored completely or
    not at all, and once, if they have numbers. An error gets the place of its message in the source
    `name`, and what `others` says of the messages before it."""

    def __init__(self, client: Client, topic: str, name: str, others: Callable[[int], str]) -> None:
        self.published = 0
        self.duplicates = 0
        self.bookmark = ""
        self.method = "POST"
        self.parameters: dict[str, Any] = {}
        self._client = client
        self._path = records_of(topic)
        self._name = name
        self._others = others
        self._numbered: str | None = None
        self._seq = self._expected = 1

    async def number(self, topic: str, numbering: Numbering) -> None:
        """Number the messages of a durable name, from `seq` on or behind what the server has."""
        if numbering.client is not None:
            self._numbered = quote(numbering.client, safe="")
            async with await self._client.publisher(topic, client=numbering.client) as publisher:
                self._expected = publisher.seq or 1
            self._seq = numbering.seq or self._expected

    @property
    def done(self) -> Done:
        """What was published."""
        return Done(self.published, self.bookmark, self.duplicates)

    def _key(self) -> str | None:
        return None if self._numbered is None else f"{self._numbered}/{self._seq}"

    async def send(
        self,
        bodies: AsyncIterator[tuple[bytes, int]],
        content_type: str,
        place: Place,
        advance: Advance,
    ) -> None:
        """Publish these bodies, each with the progress that it adds."""
        try:
            async for body, done in bodies:
                request = partial(
                    self._client.http.json,
                    self.method,
                    self._path,
                    self.parameters,
                    body=body,
                    content_type=content_type,
                    idempotency_key=self._key(),
                )
                # What has numbers may be sent again, wherever that is taken.
                insist = self._numbered is not None
                answer = await (self._client.retry.insist(request) if insist else request())
                published = int(answer["published"])
                if self._numbered is not None:
                    self.duplicates += min(published, max(0, self._expected - self._seq))
                self._seq += published
                self.published += published
                self.bookmark = str(answer["bookmark"])
                advance(done)
        except SowError as error:
            if isinstance(error, BadMessage):
                error.index += self.published
            _explain(error, place, self._name, self._others(self.published))
            raise


def row(index: int) -> str:
    """The place of a message in a table."""
    return f"row {index + 1}"


def _explain(error: SowError, place: Place, name: str, others: str) -> None:
    """Add the place of the message to an error, and the number of messages published before it."""
    if isinstance(error, BadMessage):
        # The server counts within its frame; a user counts lines.
        detail = re.sub(r"^message \d+: ", "", error.detail)
        error.detail = f"{place(error.index)} of {name}: {detail}"
    error.detail += others


async def _publish_nothing(client: Client, topic: str) -> None:
    """Fail if the topic takes no messages, even if there are none to send."""
    with contextlib.suppress(BadMessage):
        await client.http.json("POST", records_of(topic))


async def module_of(client: Client, topic: str) -> str:
    """The built-in type of a topic's messages, which a configured type is a variant of."""
    message_type = await _message_type(client, topic)
    configured = await client.http.json("GET", "/v1/message-types")
    modules = {str(one["name"]): str(one["module"]) for one in configured}
    return modules.get(message_type, message_type)


async def _message_type(client: Client, topic: str) -> str:
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


@server_command("sow delete orders --filter '/qty = 0'", "sow delete orders --key o1 --yes")
@topic_argument
@yes_option
@filter_option
@key_option
@click.option("--keys", metavar="K,..", help="SowKeys of the records, comma separated.")
def delete(topic: str, filter_text: str | None, key: str | None, keys: str | None) -> None:
    """Delete records of TOPIC by --filter ("1=1" for all), --key or --keys.

    Ends when that is durable. A terminal asks first, and names the context and the address.
    """
    which = {"filter": filter_text, "key": key, "keys": keys}
    given = {name: text for name, text in which.items() if text is not None}
    if len(given) != 1:
        raise click.UsageError("give exactly one of --filter ('1=1' for all), --key and --keys")
    ((how, text),) = given.items()
    confirm(f"delete records of {topic} by {how} {text}")
    deleted = run(_delete(topic, given))
    if keys is not None and not deleted:
        raise UnknownRecord(
            f"topic {topic} has no record of these SowKeys; write --key for the values of key "
            "fields, such as --key ACME"
        )
    show({"deleted": deleted}, f"deleted {counted(deleted, 'record')} from {topic}")


async def _delete(topic: str, which: dict[str, str]) -> int:
    async with connected() as client:
        answer = await client.http.json("DELETE", records_of(topic), which, kind=dict)
        return int(answer["deleted"])
