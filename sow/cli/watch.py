"""`sow watch`: queries a topic and follows it, as a live table or as lines."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext

import click
import msgspec

from sow.cli.live import LiveTable
from sow.cli.options import filter_option, json_option, later_option, run, url_option
from sow.client import Client, Disconnected, Message

RECORDS = frozenset({"sow", "p", "oof"})
ENCODER = msgspec.json.Encoder()


@click.command()
@click.argument("topic")
@filter_option
@later_option("--delta", is_flag=True, help="Only changed fields (not available yet).")
@click.option("--oof", is_flag=True, help="Also say when a record no longer matches or is deleted.")
@later_option("--conflation", metavar="1s", help="A rate of our own (not available yet).")
@later_option("--bookmark", metavar="B", help="Where to go on from (not available yet).")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "ndjson"]),
    help="A live table or a line for each message; a table where there is a terminal.",
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
@url_option
@json_option
def watch(
    topic: str,
    filter_text: str | None,
    oof: bool,
    style: str | None,
    count: int | None,
    url: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC that match, then each update of them, until Ctrl-C.

    The live table always follows records that leave; lines tell of them with --oof.
    """
    if as_json or style is None:
        style = "ndjson" if as_json or not sys.stdout.isatty() else "table"
    live = style == "table"
    table = LiveTable(topic) if live else None
    with table or nullcontext():
        run(_watch(url, topic, filter_text, oof or live, count, table))


async def _watch(
    url: str,
    topic: str,
    filter_text: str | None,
    oof: bool,
    count: int | None,
    table: LiveTable | None,
) -> None:
    show = write_lines if table is None else table.show
    left = count
    async with (
        Client(url, name="sow watch") as client,
        client.sow_and_subscribe(topic, filter=filter_text, oof=oof) as subscription,
    ):
        while messages := await subscription.batch():
            records = [message for message in messages if message.c in RECORDS][:left]
            show(records)
            if left is not None:
                left -= len(records)
                if left == 0:
                    return
            _refuse_end(messages)


def _refuse_end(messages: Sequence[Message]) -> None:
    """A subscription that the server ended is a failure, and says so."""
    for message in messages:
        if message.c == "unsubscribed":
            raise Disconnected(f"the server ended the subscription: {message.reason}")


def write_lines(messages: Sequence[Message]) -> None:
    """Messages as JSON lines, there to be read at once."""
    if messages:
        out = sys.stdout.buffer
        out.write(b"".join([ENCODER.encode(message) + b"\n" for message in messages]))
        out.flush()
