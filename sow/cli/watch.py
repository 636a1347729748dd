"""`sow watch`: queries a topic and follows it, as a live table or as lines."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click
import msgspec

from sow.cli.connecting import connected
from sow.cli.live import LiveTable
from sow.cli.options import (
    example,
    filter_option,
    groups_options,
    json_option,
    run,
    select_option,
    url_option,
)
from sow.cli.plain_output import write_data
from sow.cli.query import key_columns
from sow.cli.topic_names import topic_names
from sow.client import Client, Disconnected, Message, Subscription

SHOWN = frozenset({"sow", "p", "oof", "gap"})
"""Message types about records; the others report on the subscription."""
ENCODER = msgspec.json.Encoder()


@click.command(
    epilog=example(
        "sow watch orders --filter '/qty > 100' --conflation 1s",
        "sow watch quotes --live --order-by '/px DESC' --top 20",
    )
)
@click.argument("topic", shell_complete=topic_names)
@filter_option
@select_option
@groups_options
@click.option("--delta", is_flag=True, help="Only changed fields; a table shows merged records.")
@click.option("--oof", is_flag=True, help="Report records that no longer match, too.")
@click.option(
    "--conflation", metavar="1s", help="At most one update of a record per interval, or auto."
)
@click.option("--live", is_flag=True, help="Only the first --top in order, as they change.")
@click.option("--order-by", metavar="O", help="The order, such as '/px DESC,/id'.")
@click.option("--top", metavar="N", type=click.IntRange(0), help="At most N records.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="Leave out the first N records.")
@click.option("--bookmark", metavar="B", help="The log after B instead of the current records.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "ndjson"]),
    help="A live table or a line per message; the default is a table on a terminal.",
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
@url_option
@json_option
def watch(
    topic: str,
    filter_text: str | None,
    select: str | None,
    projection: str | None,
    grouping: str | None,
    delta: bool,
    oof: bool,
    conflation: str | None,
    live: bool,
    order_by: str | None,
    top: int | None,
    skip: int | None,
    bookmark: str | None,
    style: str | None,
    count: int | None,
    url: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC that match, then each update of them, until Ctrl-C.

    TOPIC may be a regular expression of names. The live table always removes records that leave;
    lines report them with --oof. With --live and --top it is a window that stays in order.
    """
    if as_json or style is None:
        style = "ndjson" if as_json or not sys.stdout.isatty() else "table"
    in_table = style == "table"
    if live and top is None:
        raise click.UsageError("--live needs --top, the number of records to keep to")
    if bookmark is not None and (delta or oof):
        raise click.UsageError("--bookmark reads the log, which has neither deltas nor oofs")
    if bookmark is not None and (projection or grouping):
        raise click.UsageError("--bookmark reads the log, which has no groups of records")
    focus: dict[str, Any] = {
        "filter": filter_text,
        "select": select,
        "delta": delta,
        "oof": oof or (in_table and bookmark is None),
        "conflation": conflation,
    }
    page = _page(live, order_by, top, skip)
    groups = {"projection": projection, "grouping": grouping}
    page |= {name: text for name, text in groups.items() if text is not None}
    if bookmark is not None:
        if page:
            raise click.UsageError("--bookmark reads the log, which has its own order and no end")
        focus["bookmark"] = bookmark
    table = LiveTable(topic) if in_table else None
    with table or nullcontext():
        run(_watch(url, topic, focus, page, count, table))


def _page(live: bool, order_by: str | None, top: int | None, skip: int | None) -> dict[str, Any]:
    """The range of the records to start with, or to follow."""
    page: dict[str, Any] = {"order_by": order_by, "top_n": top, "skip_n": skip}
    if live or (top is not None and skip is not None):
        page |= {"live": True, "positions": True}
    return {name: value for name, value in page.items() if value is not None}


async def _watch(
    url: str,
    topic: str,
    focus: dict[str, Any],
    page: dict[str, Any],
    count: int | None,
    table: LiveTable | None,
) -> None:
    show = write_lines if table is None else table.show
    left = count
    async with (
        connected(url, "sow watch") as client,
        _follow(client, topic, focus, page) as messages,
    ):
        if table is not None:
            table.begin_with(await key_columns(client, topic, page.get("grouping")))
        while batch := await messages.batch():
            records = [message for message in batch if message.c in SHOWN][:left]
            show(records)
            if left is not None:
                left -= len(records)
                if left == 0:
                    return
            _refuse_end(batch)


def _follow(
    client: Client, topic: str, focus: dict[str, Any], page: dict[str, Any]
) -> Subscription:
    if "bookmark" in focus:
        return client.subscribe(topic, **focus)
    snapshot: dict[str, Any] = {**focus, **page}
    return client.sow_and_subscribe(topic, **snapshot)


def _refuse_end(messages: Sequence[Message]) -> None:
    """Treat a subscription that the server ended as a failure."""
    for message in messages:
        if message.c == "unsubscribed":
            why = message.detail or message.reason
            raise Disconnected(f"the server ended the subscription: {why}")


def write_lines(messages: Sequence[Message]) -> None:
    """Write messages as JSON lines, and flush them."""
    if messages:
        write_data(b"".join([ENCODER.encode(message) + b"\n" for message in messages]))
