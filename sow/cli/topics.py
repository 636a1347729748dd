"""`sow topics`: lists the topics of a server, and their sizes."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text, printable
from sow.cli.query import terminal_console
from sow.cli.tables import Column, figures
from sow.client import Client
from sow.client.errors import OlderServer
from sow.client.responses import understood
from sow.core.humanize import counted, size

TOPIC_COLUMNS = (
    Column("topic"),
    Column("records", is_number=True),
    Column("kind"),
    Column("size", is_number=True),
    Column("subscribed", is_number=True),
    Column("conflation", is_number=True),
    Column("pending", is_number=True),
    Column("type"),
    Column("keys"),
    Column("made of"),
)
Described = Mapping[str, Any]


@click.command(epilog=example("sow topics", "sow topics --all --json"))
@click.option("--all", "every", is_flag=True, help="The topics of each pattern too, one by one.")
@url_option
@json_option
def topics(every: bool, url: str, as_json: bool) -> None:
    """List the topics of a server; those of a pattern are one line."""
    found = run(_topics(url, every))
    if as_json:
        click.echo(json_text(found))
        return
    console = terminal_console()
    with understood(url):
        table = figures(TOPIC_COLUMNS, [*map(row, found)], console.width)
    console.print(table)
    stopped = [one for one in found if one.get("stopped")]
    for one in stopped:
        click.echo(printable(f"{one['name']}: {one['stopped']}"), err=True)
    click.echo(counted(len(found), "topic"), err=True)


async def _topics(url: str, every: bool) -> Sequence[Described]:
    async with connected(url, "sow topics") as client:
        return await listed(client, every)


async def listed(client: Client, every: bool) -> Sequence[Described]:
    """The topics of a server, with `every` those of patterns, too; an older server always sends
    these."""
    requested = {} if every else {"members": False}
    found: Sequence[Described]
    try:
        found = await client.http.json("GET", "/v1/topics", requested, kind=list)
    except OlderServer:
        found = await client.http.json("GET", "/v1/topics", kind=list)
    return found


def row(one: Described) -> dict[str, str]:
    """A topic as a row of the table."""
    ratio, members = one.get("conflation_ratio"), one.get("topics")
    is_held = one.get("bytes") is not None
    return {
        "topic": one["name"],
        "kind": "stopped" if one.get("stopped") else one["kind"],
        "records": f"{one['records']:,}",
        "size": size(one["bytes"]) if is_held else "",
        "subscribed": f"{one['subscriptions']:,}" if "subscriptions" in one else "",
        "conflation": f"{ratio:.1f}x" if ratio is not None else "",
        "pending": f"{one['pending']:,}" if "pending" in one else "",
        "type": one["message_type"],
        "keys": ", ".join(one.get("keys", ())),
        "made of": _made_of(one) if members is None else counted(members, "topic"),
    }


def _made_of(one: Described) -> str:
    made_of = one.get("underlying") or ", ".join(one.get("underlyings") or ())
    interval_ms = one.get("interval_ms")
    return f"{made_of} every {interval_ms / 1000:g} s" if made_of and interval_ms else made_of
