"""`sow ping`: measures how long a server takes to answer, to make a message durable, to deliver it.

It sends one request after another on an open connection, so it measures the round trip, the
server's work and, for a publish, its disk. It writes only to a topic given by --topic.
"""

import time

import click

from sow.cli.connecting import server_command
from sow.cli.measuring import SPREAD_COLUMNS, Percentiles, ProbeRecords, answered
from sow.cli.options import topic_names
from sow.cli.output import show
from sow.cli.tables import write_table
from sow.client import Client, Publisher

PINGS = 100
"""Requests to measure: enough for a 99th percentile, and a second on a slow disk."""
WORD = "sow-ping"
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
    scratch = None if topic is None else await ProbeRecords.begin(client, topic, WORD)
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
    began_s = time.perf_counter()
    await publisher.send([scratch.document(0, ping=number)])
    await publisher.drain()
    return time.perf_counter() - began_s
