"""`sow ping` and `sow bench`: measure a server, or a machine.

`ping` sends one request after another on an open connection, so it measures the round trip, the
server's work and, for a publish, its disk. It writes only to a topic given by --topic.

`bench` measures publishes, queries and subscriptions for a minute. By default it starts a server
with data in a temporary folder, so it measures this machine and its disk. It measures an existing
server only if --topic names a topic it may write to, and deletes its records afterwards. The client
is one process on the same machine and shares its processors with the server, so a server with many
clients does more. docs/performance.md has the figures of a careful measurement.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator
from time import perf_counter as clock
from typing import Any, NamedTuple

import click
import orjson
from click.core import ParameterSource

from sow.cli.connecting import connected, server_command
from sow.cli.measuring import SPREAD_COLUMNS, Percentiles, ProbeRecords, answered
from sow.cli.options import access, run, topic_names
from sow.cli.output import show
from sow.cli.tables import Column, write_table
from sow.client import Client, Publisher
from sow.core.humanize import duration
from sow.errors import ClientError

PINGS = 100
"""Requests to measure: enough for a 99th percentile, and a second on a slow disk."""
UNWRITTEN = (
    "durable and delivered not measured; name a topic that a record may be written to and "
    "deleted from: --topic TOPIC"
)


@server_command("sow ping", "sow ping --topic orders --count 1000")
@click.option(
    "--topic",
    metavar="T",
    shell_complete=topic_names,
    help="Write one record of T over and over, then delete it.",
)
@click.option(
    "--count",
    type=click.IntRange(1, 1_000_000),
    default=PINGS,
    show_default=True,
    metavar="N",
    help="How often.",
)
async def ping(client: Client, topic: str | None, count: int) -> None:
    """Measure how long the server takes to answer and, with --topic, to make a message durable and
    to deliver it to a subscriber."""
    # The server refuses a publish at once.
    scratch = None if topic is None else await ProbeRecords.begin(client, topic, "sow-ping")
    measured = {"round trip": await answered(client, count)}
    if scratch is not None:
        measured |= await _written(client, scratch, count)

    def write() -> None:
        write_table(SPREAD_COLUMNS, [one.row(what) for what, one in measured.items()])
        if scratch is None:
            click.echo(f"sow: {UNWRITTEN}", err=True)

    unmeasured = dict.fromkeys(("durable", "delivered"))
    documents = {what.replace(" ", "_"): one.document() for what, one in measured.items()}
    show(unmeasured | documents, write)


async def _written(client: Client, scratch: ProbeRecords, count: int) -> dict[str, Percentiles]:
    async with await client.publisher(scratch.topic) as publisher:
        try:
            durable_s = [await _durable_s(publisher, scratch, number) for number in range(count)]
            async with client.subscribe(scratch.topic, filter=scratch.filter_of(0)) as messages:
                delivered_s = [
                    await scratch.until_delivered_s(publisher, messages, ping=number)
                    for number in range(count)
                ]
        finally:
            if publisher.is_open:
                await scratch.take_away(publisher)
    return {"durable": Percentiles.of(durable_s), "delivered": Percentiles.of(delivered_s)}


async def _durable_s(publisher: Publisher, scratch: ProbeRecords, number: int) -> float:
    began_s = clock()
    await publisher.send([scratch.document(0, ping=number)])
    await publisher.drain()
    return clock() - began_s


SECONDS = 60.0
"""Long enough to include the effects of the disk cache and of a checkpoint."""
WORD = "sow-bench"
BENCH_TOPIC = f"{WORD}:/id"
"""The topic of the server that the bench starts."""
BENCH_RECORDS = 10_000
"""As many records as a desk has orders, so that publishes update existing records."""
FRAME = 100
"""Messages of a frame: what a feed collects in a millisecond or two."""
PADDING = "x" * 100
"""Pads a message to some 150 bytes, the size of an order or a quote."""
BENCH_COLUMNS = (
    Column("what"),
    Column("per second", is_number=True),
    Column("median", is_number=True),
    Column("p99", is_number=True),
    Column("times", is_number=True),
)


class BenchResult(NamedTuple):
    """The result of one kind of work: its rate, and the latency of each operation."""

    what: str
    per_s: float
    spread: Percentiles

    def row(self) -> dict[str, str]:
        """This result as a row of a table with `BENCH_COLUMNS`."""
        return {
            "what": self.what,
            "per second": f"{self.per_s:,.0f}",
            "median": duration(self.spread.median_s),
            "p99": duration(self.spread.p99_s),
            "times": f"{self.spread.times:,}",
        }

    def document(self) -> dict[str, Any]:
        """This result as JSON."""
        return {"what": self.what, "per_s": round(self.per_s, 1), **self.spread.document()}


@server_command("sow bench", "sow bench --seconds 10", "sow bench --topic scratch --json")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=SECONDS, show_default=True,
              metavar="S", help="Duration in all.")  # fmt: skip
@click.option("--topic", metavar="T", shell_complete=topic_names,
              help="Measure the server at --url, writing records into T.")  # fmt: skip
@click.option("--data-dir", metavar="D", type=click.Path(exists=True, file_okay=False), default=".",
              show_default=True, help="The disk to measure; without --topic.")  # fmt: skip
@click.pass_context
def bench(ctx: click.Context, seconds: float, topic: str | None, data_dir: str) -> None:
    """Measure durable publishes, queries and subscriptions.

    Without --topic the command starts a server in a folder of --data-dir, which it removes at the
    end. With --topic it writes records to the server at --url and deletes them again.
    """
    if topic is None and ctx.get_parameter_source("url") is not ParameterSource.DEFAULT:
        raise click.UsageError(
            f"records would be written to {access().url}; name a topic for them: --topic T"
        )
    found = run(_own(data_dir, seconds) if topic is None else _of_server(topic, seconds))
    rows = [one.row() for one in found]
    show([one.document() for one in found], lambda: write_table(BENCH_COLUMNS, rows))


async def _own(data_dir: str, seconds: float) -> list[BenchResult]:
    with tempfile.TemporaryDirectory(prefix=f"{WORD}-", dir=data_dir) as folder:
        async with _server(folder) as url, Client(url, name="sow bench") as client:
            return await _of(client, WORD, seconds)


async def _of_server(topic: str, seconds: float) -> list[BenchResult]:
    async with connected() as client:
        return await _of(client, topic, seconds)


@contextlib.asynccontextmanager
async def _server(folder: str) -> AsyncIterator[str]:
    """A server in a process of its own; raises ClientError if it does not start."""
    words = f"-m sow serve --topic {BENCH_TOPIC} --port 0 --json --data-dir".split()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        folder,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to the bench, which then ends it
    )
    assert process.stdout is not None
    try:
        ready = await process.stdout.readline()
        if not ready:
            raise ClientError("the server to measure did not start")
        yield orjson.loads(ready)["url"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _of(client: Client, topic: str, seconds: float) -> list[BenchResult]:
    scratch = await ProbeRecords.begin(client, topic, WORD)
    try:
        return [
            await _publishing(client, scratch, seconds / 3),
            await _querying(client, scratch, seconds / 3),
            await _following(client, scratch, seconds / 3),
        ]
    finally:
        async with await client.publisher(topic) as publisher:
            await scratch.take_away(publisher)


async def _publishing(client: Client, scratch: ProbeRecords, seconds: float) -> BenchResult:
    """Publish frames with the usual number in flight, then wait for each to be durable."""
    numbers = range(BENCH_RECORDS)
    frames = [
        [scratch.document(number, px=0.5, pad=PADDING) for number in numbers[at : at + FRAME]]
        for at in range(0, BENCH_RECORDS, FRAME)
    ]
    # Encoded beforehand, so that only the server is measured.
    encoded = [[orjson.dumps(one) for one in frame] for frame in frames]
    taken_s: list[float] = []
    sent, began_s = 0, clock()
    async with await client.publisher(scratch.topic) as publisher:
        while clock() - began_s < seconds / 2 or not sent:
            await publisher.send(encoded[sent % len(encoded)])
            sent += 1
        await publisher.drain()
        per_s = sent * FRAME / (clock() - began_s)
        ends_s = clock() + seconds / 2
        while not taken_s or clock() < ends_s:
            at_s = clock()
            await publisher.send(encoded[len(taken_s) % len(encoded)])
            await publisher.drain()
            taken_s.append(clock() - at_s)
    return BenchResult(f"publish, durable, {FRAME} in a frame", per_s, Percentiles.of(taken_s))


async def _querying(client: Client, scratch: ProbeRecords, seconds: float) -> BenchResult:
    """Query one record by its key, again and again."""
    taken_s: list[float] = []
    began_s = clock()
    while not taken_s or clock() - began_s < seconds:
        at_s = clock()
        await client.query(scratch.topic, filter=scratch.filter_of(len(taken_s) % BENCH_RECORDS))
        taken_s.append(clock() - at_s)
    return BenchResult("query by key", len(taken_s) / (clock() - began_s), Percentiles.of(taken_s))


async def _following(client: Client, scratch: ProbeRecords, seconds: float) -> BenchResult:
    """Publish one durable message at a time, and wait until a subscriber has it."""
    taken_s: list[float] = []
    async with (
        client.subscribe(scratch.topic, filter=scratch.filter_of(0)) as messages,
        await client.publisher(scratch.topic) as publisher,
    ):
        began_s = clock()
        while not taken_s or clock() - began_s < seconds:
            taken_s.append(await scratch.until_delivered_s(publisher, messages, at=len(taken_s)))
        per_s = len(taken_s) / (clock() - began_s)
    return BenchResult("publish until delivered", per_s, Percentiles.of(taken_s))
