"""`sow watch`: queries a topic and follows it, as a live table or as lines."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click
import msgspec

from sow.cli.live import LiveTable
from sow.cli.options import filter_option, json_option, run, select_option, url_option
from sow.client import Client, Disconnected, Message, Subscription
from sow.client.questions import LiveFocus

SHOWN = frozenset({"sow", "p", "oof", "gap"})
"""Kinds of messages that say something of records; the others say how the subscription goes."""
ENCODER = msgspec.json.Encoder()


@click.command()
@click.argument("topic")
@filter_option
@select_option
@click.option("--delta", is_flag=True, help="Only what has changed; a table shows merged records.")
@click.option("--oof", is_flag=True, help="Also say when a record no longer matches or is deleted.")
@click.option(
    "--conflation", metavar="1s", help="At most one update of a record in so long, or auto."
)
@click.option(
    "--bookmark", metavar="B", help="Instead of the records as they stand, the log after B."
)
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
    select: str | None,
    delta: bool,
    oof: bool,
    conflation: str | None,
    bookmark: str | None,
    style: str | None,
    count: int | None,
    url: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC that match, then each update of them, until Ctrl-C.

    TOPIC may be a regular expression of names. The live table always follows records that leave;
    lines tell of them with --oof.
    """
    if as_json or style is None:
        style = "ndjson" if as_json or not sys.stdout.isatty() else "table"
    live = style == "table"
    if bookmark is not None and (delta or oof):
        raise click.UsageError("--bookmark reads the log, which has neither deltas nor oofs")
    focus: LiveFocus = {
        "filter": filter_text,
        "select": select,
        "delta": delta,
        "oof": oof or (live and bookmark is None),
        "conflation": conflation,
    }
    if bookmark is not None:
        focus["bookmark"] = bookmark
    table = LiveTable(topic) if live else None
    with table or nullcontext():
        run(_watch(url, topic, focus, count, table))


async def _watch(
    url: str, topic: str, focus: LiveFocus, count: int | None, table: LiveTable | None
) -> None:
    show = write_lines if table is None else table.show
    left = count
    async with Client(url, name="sow watch") as client, _follow(client, topic, focus) as messages:
        while batch := await messages.batch():
            records = [message for message in batch if message.c in SHOWN][:left]
            show(records)
            if left is not None:
                left -= len(records)
                if left == 0:
                    return
            _refuse_end(batch)


def _follow(client: Client, topic: str, focus: LiveFocus) -> Subscription:
    if "bookmark" in focus:
        return client.subscribe(topic, **focus)
    snapshot: dict[str, Any] = dict(focus)
    return client.sow_and_subscribe(topic, **snapshot)


def _refuse_end(messages: Sequence[Message]) -> None:
    """A subscription that the server ended is a failure, and says so."""
    for message in messages:
        if message.c == "unsubscribed":
            why = message.detail or message.reason
            raise Disconnected(f"the server ended the subscription: {why}")


def write_lines(messages: Sequence[Message]) -> None:
    """Messages as JSON lines, there to be read at once."""
    if messages:
        out = sys.stdout.buffer
        out.write(b"".join([ENCODER.encode(message) + b"\n" for message in messages]))
        out.flush()
