"""`sow ping`: measures how long a server takes to answer, and to make a message durable.

It sends one request after another on an open connection, so it measures the round trip, the
server's work and, for a durable publish, its disk. It writes only to a topic given by --topic.
"""

import time

import click

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.percentiles import SPREAD_COLUMNS, Percentiles
from sow.cli.plain_output import json_text
from sow.cli.probe_records import ProbeRecords
from sow.cli.query import terminal_console
from sow.cli.tables import figures
from sow.cli.topic_names import topic_names
from sow.client import Client
from sow.client.errors import not_sow
from sow.client.http import taken

ALIVE = b"ok\n"
"""The server's answer to `/healthz`: the response time of any other page means nothing."""
PINGS = 100
"""Requests to measure: enough for a 99th percentile, and a second on a slow disk."""
WORD = "sow-ping"
UNWRITTEN = (
    "durable round trip not measured; name a topic that a record may be written to and "
    "deleted from: --topic TOPIC"
)


@click.command(epilog=example("sow ping", "sow ping --topic orders --count 1000"))
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
@url_option
@json_option
def ping(topic: str | None, count: int, url: str, as_json: bool) -> None:
    """Measure how long the server takes to answer and, with --topic, to make a message durable."""
    back, durable = run(_ping(url, topic, count))
    if as_json:
        found = {
            "round_trip": back.document(),
            "durable": None if durable is None else durable.document(),
        }
        click.echo(json_text(found))
        return
    rows = [back.row("round trip")]
    rows += [] if durable is None else [durable.row("durable")]
    console = terminal_console()
    console.print(figures(SPREAD_COLUMNS, rows, console.width))
    if durable is None:
        click.echo(f"sow: {UNWRITTEN}", err=True)


async def _ping(url: str, topic: str | None, count: int) -> tuple[Percentiles, Percentiles | None]:
    async with connected(url, "sow ping") as client:
        # The server refuses a publish at once.
        scratch = None if topic is None else await ProbeRecords.begin(client, topic, WORD)
        back = await answered(client, count)
        return back, None if scratch is None else await _durable(client, scratch, count)


async def answered(client: Client, count: int) -> Percentiles:
    """Response times of a trivial request."""
    taken_s, url = [], client.http.url
    for _ in range(count + 1):
        began_s = time.perf_counter()
        async with client.http.request("GET", "/healthz") as answer:
            body = await taken(url, answer)
        if body != ALIVE:
            raise not_sow(url, "something else to /healthz")
        taken_s.append(time.perf_counter() - began_s)
    # The first request has opened the connection.
    return Percentiles.of(taken_s[1:])


async def _durable(client: Client, scratch: ProbeRecords, count: int) -> Percentiles:
    taken_s = []
    async with await client.publisher(scratch.topic) as publisher:
        try:
            for number in range(count):
                message = scratch.document(0, ping=number)
                began_s = time.perf_counter()
                await publisher.send([message])
                await publisher.drain()
                taken_s.append(time.perf_counter() - began_s)
        finally:
            if publisher.is_open:
                await scratch.take_away(publisher)
    return Percentiles.of(taken_s)
