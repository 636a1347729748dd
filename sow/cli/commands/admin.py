"""`sow topics`, `sow sessions`, `sow reload`: what a server has, and its configuration again."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from sow.cli.connecting import server_command
from sow.cli.output import printable, show
from sow.cli.rates import slowness
from sow.cli.tables import Column, Row, write_table
from sow.client import Client
from sow.client.errors import OlderServer
from sow.client.http import understood
from sow.core.humanize import counted, duration, size

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
SESSION_COLUMNS = (
    Column("client"),
    Column("lag", is_number=True),
    Column("queue", is_number=True),
    Column("state"),
    Column("user"),
    Column("address"),
    Column("since", is_number=True),
    Column("conflated", is_number=True),
    Column("dropped", is_number=True),
    Column("subscribed", is_number=True),
    Column("size", is_number=True),
    Column("id"),
)
Described = Mapping[str, Any]


@server_command("sow topics", "sow topics --all --json")
@click.option("--all", "every", is_flag=True, help="The topics of each pattern too, one by one.")
async def topics(client: Client, every: bool) -> None:
    """List the topics of a server; those of a pattern are one line."""
    found = await listed(client, every)

    def write() -> None:
        with understood(client.url):
            write_table(TOPIC_COLUMNS, [*map(topic_row, found)])
        for one in found:
            if one.get("stopped"):
                click.echo(printable(f"{one['name']}: {one['stopped']}"), err=True)
        click.echo(counted(len(found), "topic"), err=True)

    show(found, write)


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


def topic_row(one: Described) -> Row:
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


@server_command("sow sessions", "sow sessions 17", "sow sessions --json")
@click.argument("session_id", metavar="[ID]", required=False)
async def sessions(client: Client, session_id: str | None) -> None:
    """List sessions, those furthest behind first; or describe the session ID."""
    if session_id is not None:
        await show_session(client, session_id)
        return
    answered = await client.http.json("GET", "/v1/sessions", kind=list)
    with understood(client.url):
        found = sorted(answered, key=slowness, reverse=True)

    def write() -> None:
        if found:
            with understood(client.url):
                rows = [*map(session_row, found)]
                write_table(columns_for(rows), rows)
        click.echo(counted(len(found), "session"), err=True)

    show(found, write)


def columns_for(rows: Sequence[Row]) -> list[Column]:
    """The columns with content: without authentication there are no users."""
    return [one for one in SESSION_COLUMNS if any(row[one.name] for row in rows)]


def session_row(one: Described) -> Row:
    """A session as a row of the table."""
    return {
        "client": one["client"] or "(no name)",
        "state": state(one),
        "user": one["user"] or "",
        "address": one["address"],
        "lag": duration(one["lag_ms"] / 1000),
        "queue": f"{one['queue_messages']:,}",
        "size": size(one["queue_bytes"]),
        "conflated": f"{one['conflated_messages']:,}" if one["conflated"] else "off",
        "dropped": f"{one['dropped_messages']:,}",
        "subscribed": f"{one['subscriptions']:,}",
        "since": duration(one["connected_ms"] / 1000),
        "id": one["id"],
    }


def state(one: Described) -> str:
    """Whether its client is connected, or why the session is closing."""
    if one["reason"]:
        return str(one["reason"])
    return "connected" if one["connected"] else "away"


async def show_session(client: Client, session_id: str) -> None:
    """Write the server's report on a session: what it does not receive, and what to do."""
    path = f"/v1/sessions/{quote(session_id, safe='')}/why"
    found = await client.http.json("GET", path, kind=dict)
    show(found, lambda: click.echo("\n".join(story(found))))


def story(one: Described) -> list[str]:
    """The server's sentences on a session and what to do, one per line."""
    subject = f"{one['client'] or 'a client without a name'}, session {one['id']}"
    return [printable(sentence) for sentence in [subject, *one["why"], *one["instead"]]]


@server_command("sow reload")
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Remove topics that are not in the file: their records move to removed/.",
)
async def reload(client: Client, allow_loss: bool) -> None:
    """Make the server read its configuration again, and show what changed.

    The server adds, removes and changes conflated topics and indexes without a restart. If anything
    else differs, or the file has a mistake, it changes nothing and reports every reason.
    """
    path = "/v1/config/reload" + ("?allow_loss=true" if allow_loss else "")
    changes = list((await client.http.json("POST", path, kind=dict))["changes"])
    show({"changes": changes}, "\n".join(map(printable, changes)) or "nothing changed")
