"""`sow query`, `events`, `watch` and `consume`: what a topic has, once or as it changes, as a table
or as lines.

Messages that a watch gets only change a dictionary of the table. The terminal is redrawn a few
times a second and reads only the rows that fit, so a fast topic costs little more than a slow one.

Messages of a queue are leased a few at a time, over HTTP, and each is acknowledged when its line is
written: a lease holds through a broken connection and a restart of the server. What is leased and
not written when the command ends is given back.
"""

import csv
import io
import re
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, Self
from urllib.parse import quote

import click
import msgspec
import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from sow.cli.connecting import connected, server_command
from sow.cli.options import (
    filter_option,
    grouping_option,
    key_option,
    order_option,
    projection_option,
    run,
    select_option,
    topic_argument,
)
from sow.cli.output import as_json, json_text, printable, show, write_data
from sow.cli.tables import as_table, terminal_console, waiting
from sow.client import Client, Disconnected, Message, Rows, Subscription
from sow.client.http import records_of, topic_path
from sow.core.delta import merged
from sow.core.humanize import counted
from sow.core.media_types import JSON
from sow.errors import SowError, UnknownRecord, UnknownTopic
from sow.messages.csv_rows import cells, column_of, columns

TABLE_ROWS = 1000
"""Default limit of records in a table: more than anybody reads, and column widths need all rows."""


@server_command(
    "sow query orders --filter \"/symbol = 'IBM'\" --order-by '/qty DESC' --top 10",
    "sow query orders --key o1",
    "sow query quotes-C --as-of 2026-11-21T14:32:05.2Z",
    "sow query orders --format csv > orders.csv",
)
@topic_argument
@filter_option
@key_option
@order_option
@click.option("--top", metavar="N", type=click.IntRange(0), help="At most N records.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="Leave out the first N records.")
@select_option
@projection_option
@grouping_option
@click.option(
    "--as-of", metavar="B", help="The state at a bookmark or a time, instead of the present."
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "ndjson", "csv"]),
    default="table",
    show_default=True,
    help="Output format of the records; a table shows the first 1,000 unless --top is given.",
)
@click.option("--explain", is_flag=True, help="Show how the server runs the query, not its answer.")
async def query(
    client: Client,
    topic: str,
    filter_text: str | None,
    top: int | None,
    skip: int | None,
    style: str,
    explain: bool,
    **more: str | None,
) -> None:
    """Write the records of TOPIC that match, or the rows of groups of them."""
    style = "json" if as_json() else style
    question: dict[str, Any] = {"filter": filter_text, "top_n": top, "skip_n": skip, **more}
    if explain:
        await _explain(client, topic, question, style != "table")
        return
    if style == "table" and top is None:
        question["top_n"] = TABLE_ROWS
    computes = None if more["as_of"] is None else f"computing {printable(topic)} as of then"
    async with waiting(computes) as arrived, client.http.rows(topic, question) as rows:
        arrived()
        say_advice(rows.advice)
        if style == "ndjson":
            await _write_lines(rows)
        elif style == "json":
            await _write_array(rows)
        else:
            records = [cells(row) async for row in rows]
            if style == "csv":
                _write_csv(records)
            else:
                keys = await key_columns(client, topic, question["grouping"]) if records else []
                _write_table(topic, rows, records, keys)


def say_advice(advice: Sequence[str]) -> None:
    """Write sentences on fields that no record has, for people."""
    if not as_json():
        for sentence in advice:
            click.echo(f"sow: {printable(sentence)}", err=True)


async def _write_lines(rows: Rows) -> None:
    async for chunk in rows.chunks():
        write_data(b"".join([row + b"\n" for row in chunk]))


async def _write_array(rows: Rows) -> None:
    before = b"[\n  "
    async for chunk in rows.chunks():
        if chunk:
            write_data(before + b",\n  ".join(chunk))
            before = b",\n  "
    write_data(b"[]\n" if before.startswith(b"[") else b"\n]\n")


def _write_csv(records: Sequence[dict[str, str]]) -> None:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(records), restval="", lineterminator="\n")
    if records:
        writer.writeheader()
    writer.writerows(records)
    write_data(out.getvalue().encode())


def _write_table(
    topic: str, rows: Rows, records: Sequence[dict[str, str]], keys: Sequence[str]
) -> None:
    served = printable(f"by {rows.index}, bookmark {rows.bookmark}")
    click.echo(f"{topic}: {len(records):,} of {rows.matches:,} records, {served}", err=True)
    if records:
        console = terminal_console()
        console.print(as_table(records, console.width, keys))


async def key_columns(client: Client, topic: str, grouping: str | None = None) -> list[str]:
    """The columns that identify rows of a topic, or of groups of its records."""
    if grouping is not None:
        paths = [path.strip() for path in grouping.split(",")]
    else:
        try:
            paths = await _keys_of(client, topic)
        except (SowError, re.error):
            return []  # a table does not depend on what cannot be read
    return [column_of(path.removeprefix("/").split("/")) for path in paths]


async def _keys_of(client: Client, topic: str) -> list[str]:
    """The key fields of a topic, or of all topics that a pattern names."""
    try:
        described = [await client.topic(topic)]
    except UnknownTopic:
        is_named = re.compile(topic).search
        described = [one for one in await client.topics() if is_named(one["name"])]
    return [*dict.fromkeys(path for one in described for path in one.get("keys") or [])]


async def _explain(client: Client, topic: str, question: dict[str, Any], raw: bool) -> None:
    requested = {**question, "explain": True}
    found = await client.http.json("GET", records_of(topic), requested, kind=dict)
    if raw:
        click.echo(json_text(found))
        return
    steps: list[dict[str, Any]] = found["terms"]
    table = [{name: str(value) for name, value in step.items()} for step in steps]
    console = terminal_console()
    console.print(as_table(table, console.width))
    click.echo(f"rows touched: {found['rows_touched']:,}")
    if found.get("advice"):
        click.echo(printable(found["advice"]))


@server_command(
    "sow events prices ACME --limit 20",
    "sow events prices ACME --from 2026-11-21T09:30:00Z --to 2026-11-21T10:00:00Z",
)
@topic_argument
@click.argument("key")
@click.option("--from", "from_", metavar="E", help="Events from this number or time on.")
@click.option("--to", metavar="E", help="Events up to this number or time.")
@click.option("--limit", metavar="N", type=click.IntRange(0), help="Only the newest N of them.")
async def events(
    client: Client, topic: str, key: str, from_: str | None, to: str | None, limit: int | None
) -> None:
    """Write the events of one record of a series: KEY is its SowKey or its key's values.

    They come in their order, each with its number, its time and its author.
    """
    bounds: dict[str, Any] = {"from_": from_, "to": to, "limit": limit}
    try:
        found = await client.events(topic, key, **bounds)
    except UnknownRecord:
        found = await client.events(topic, f"key={key}", **bounds)
    rows = [
        {"seq": str(one["seq"]), "ts": one["ts"], "author": one["author"], **_fields(one["d"])}
        for one in found
    ]
    console = terminal_console()
    show(found, lambda: console.print(as_table(rows, console.width, ["seq", "ts", "author"])))


def _fields(body: object) -> dict[str, str]:
    """An event's fields by column, those of its own columns left out."""
    found = cells(msgspec.json.encode(body))
    return {name: text for name, text in found.items() if name not in ("seq", "ts", "author")}


RECORD_LINES = frozenset({"sow", "p", "oof", "gap"})
"""Message types about records; the others report on the subscription."""
ENCODER = msgspec.json.Encoder()


@server_command(
    "sow watch orders --filter '/qty > 100' --conflation 1s",
    "sow watch quotes --live --order-by '/px DESC' --top 20",
)
@topic_argument
@filter_option
@select_option
@projection_option
@grouping_option
@click.option("--delta", is_flag=True, help="Only changed fields; a table shows merged records.")
@click.option("--oof", is_flag=True, help="Report records that no longer match, too.")
@click.option(
    "--conflation", metavar="1s", help="At most one update of a record per interval, or auto."
)
@click.option("--live", is_flag=True, help="Only the first --top in order, as they change.")
@click.option("--order-by", metavar="O", help="The order, such as '/px DESC,/id'.")
@click.option("--top", metavar="N", type=click.IntRange(0), help="At most N records.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="Leave out the first N records.")
@click.option("--bookmark", metavar="B", help="What was sent after B, without the records first.")
@click.option("--as-of", metavar="B", help="The records at a bookmark or a time, then what came.")
@click.option("--last", metavar="N", type=click.IntRange(1), help="Of a series, N events a record.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "ndjson"]),
    help="A live table or a line per message; the default is a table on a terminal.",
)
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
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
    last: int | None,
    bookmark: str | None,
    as_of: str | None,
    style: str | None,
    count: int | None,
) -> None:
    """Write the records of TOPIC that match, then each update of them, until Ctrl-C.

    TOPIC may be a regular expression of names. The live table always removes records that leave;
    lines report them with --oof. With --live and --top it is a window that stays in order.
    """
    if as_json() or style is None:
        style = "ndjson" if as_json() or not sys.stdout.isatty() else "table"
    in_table = style == "table"
    if live and top is None:
        raise click.UsageError("--live needs --top, the number of records to keep to")
    if bookmark is not None and (projection or grouping):
        raise click.UsageError("--bookmark reads the log, which has no groups of records")
    focus: dict[str, Any] = {
        "filter": filter_text,
        "select": select,
        "delta": delta,
        "oof": oof or in_table,
        "conflation": conflation,
    }
    page = _page(live, order_by, top, skip)
    groups = {"projection": projection, "grouping": grouping}
    page |= {name: text for name, text in groups.items() if text is not None}
    page |= {} if last is None else {"last": last}
    if bookmark is not None:
        if page:
            raise click.UsageError("--bookmark reads the log, which has its own order and no end")
        if as_of is not None:
            raise click.UsageError("--bookmark and --as-of both say where to begin; give one")
        focus["bookmark"] = bookmark
    if as_of is not None:
        page["as_of"] = as_of
    table = LiveTable(topic) if in_table else None
    with table or nullcontext():
        run(_watch(topic, focus, page, count, table))


def _page(live: bool, order_by: str | None, top: int | None, skip: int | None) -> dict[str, Any]:
    """The range of the records to start with, or to follow."""
    page: dict[str, Any] = {"order_by": order_by, "top_n": top, "skip_n": skip}
    if live or (top is not None and skip is not None):
        page |= {"live": True, "positions": True}
    return {name: value for name, value in page.items() if value is not None}


async def _watch(
    topic: str,
    focus: dict[str, Any],
    page: dict[str, Any],
    count: int | None,
    table: "LiveTable | None",
) -> None:
    show = write_lines if table is None else table.show
    left = count
    computes = f"computing {printable(topic)} as of then" if "as_of" in page else None
    async with (
        connected() as client,
        waiting(computes, None if table is None else table.say) as arrived,
        _follow(client, topic, focus, page) as messages,
    ):
        if table is not None:
            keys = await key_columns(client, topic, page.get("grouping"))
            table.begin_with(keys, messages.advice)
        else:
            say_advice(messages.advice)
        while batch := await messages.batch():
            arrived()
            records = [message for message in batch if message.c in RECORD_LINES][:left]
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


REFRESHES_PER_S = 8
"""Redraws per second: as often as eyes can follow figures."""
OTHER_LINES = 3
"""Heading, table header and the line for the cursor."""


class LiveTable:
    """The records in focus of `topic`, drawn on `console` while the context is open or, without a
    terminal, at its end."""

    def __init__(self, topic: str, console: Console | None = None) -> None:
        self._topic = topic
        self._keys: Sequence[str] = ()
        self._console = console or terminal_console()
        self._records: dict[str, bytes] = {}
        self._order: list[str] = []
        """The records of a live window, which are ordered."""
        self._messages = 0
        self._waits_for = ""
        self._advice: Sequence[str] = ()
        self._live = Live(
            console=self._console,
            get_renderable=self.render,
            refresh_per_second=REFRESHES_PER_S,
            vertical_overflow="crop",
        )

    def show(self, messages: Sequence[Message]) -> None:
        """Apply messages: set a record, or remove it when it left focus."""
        self._messages += len(messages)
        for message in messages:
            key = f"{message.t} {message.k or ''}"
            if message.c == "gap":
                self._records.clear()
                self._order.clear()
            elif message.c == "oof":
                self._records.pop(key, None)
            elif message.past:
                continue  # an edit of an older event than the one that the record is
            elif message.delta and key in self._records:
                document = merged(msgspec.json.decode(self._records[key]), message.document())
                self._records[key] = msgspec.json.encode(document)
            else:
                self._records[key] = bytes(message.d)
            if message.at is not None:
                self._place(key, message)
        if self._order:
            # In one step: another thread draws the table.
            self._records = {key: self._records[key] for key in self._order}

    def _place(self, key: str, message: Message) -> None:
        """Move a record of a live window, or remove it."""
        if key in self._order:
            self._order.remove(key)
        if message.c != "oof":
            self._order.insert(message.at or 0, key)

    def render(self) -> RenderableType:
        """The first records, as many as fit."""
        # Copied in one step: another thread draws the table.
        records = self._records.copy()
        other = OTHER_LINES + len(self._advice)
        room = self._console.height - other if self._console.is_terminal else len(records)
        shown = [cells(record) for record in list(records.values())[: max(1, room)]]
        rest = len(records) - len(shown)
        counts = f"{counted(len(records), 'record')}, {counted(self._messages, 'message')}"
        heading = f"{self._topic}: {counts}"
        more = f", {counted(rest, 'record')} below" if rest > 0 else ""
        more += f"; {self._waits_for}" if self._waits_for else ""
        table = as_table(shown, self._console.width, self._keys) if shown else Text("")
        advice = [Text(sentence) for sentence in self._advice]
        return Group(Text(heading + more, style="dim"), *advice, table)

    def say(self, waits_for: str) -> None:
        """Show what is waited for, beside the heading."""
        self._waits_for = waits_for

    def begin_with(self, keys: Sequence[str], advice: Sequence[str] = ()) -> None:
        """Put the identifying columns first, and advice above the table."""
        self._keys, self._advice = keys, [*map(printable, advice)]

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif self._messages:
            self._console.print(self.render())


LEASED_AT_ONCE = 10
"""Messages of one request: the others of a queue's consumers get theirs meanwhile."""
WAIT_S = 20.0
"""How long a request waits for a message before it is sent again."""


@server_command("sow consume to-route --count 10", "sow consume to-route --follow")
@click.argument("queue", metavar="QUEUE")
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
@click.option("--follow", is_flag=True, help="Wait for more when the queue is empty.")
async def consume(client: Client, queue: str, count: int | None, follow: bool) -> None:
    """Write the messages of QUEUE as lines, and acknowledge each once it is written.

    It ends when the queue is empty, unless it is to --follow. A message that others have leased is
    not waited for.
    """
    path, left = f"{topic_path(queue)}/lease", count
    while left is None or left > 0:
        wanted = LEASED_AT_ONCE if left is None else min(left, LEASED_AT_ONCE)
        body = {"n": wanted, "wait": WAIT_S if follow else 0}
        leased = deque(await client.http.json("POST", path, body, kind=list))
        if not leased and not follow:
            return
        left = None if left is None else left - len(leased)
        await _write(client, path, leased)


async def _write(client: Client, path: str, leased: deque[dict[str, Any]]) -> None:
    """Write and acknowledge messages; where that fails, give back those that are left."""
    try:
        while leased:
            line = {name: leased[0][name] for name in leased[0] if name not in ("lease", "until")}
            write_data(orjson.dumps(line) + b"\n")
            one = leased.popleft()
            with suppress(UnknownRecord):  # its lease is over; somebody else gets it again
                await _settle(client, "DELETE", path, one)
    finally:
        for one in leased:
            with suppress(SowError):
                await _settle(client, "PATCH", path, one, b'{"cancel":true}')


async def _settle(
    client: Client, method: str, path: str, one: dict[str, Any], body: bytes | None = None
) -> None:
    lease = f"{path}/{quote(one['lease'], safe='')}"
    kind = None if body is None else JSON
    async with client.http.request(method, lease, body=body, content_type=kind):
        pass
