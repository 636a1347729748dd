"""`sow sessions`: lists connected clients, and what waits for them."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text, printable
from sow.cli.query import terminal_console
from sow.cli.tables import Column, Row, figures
from sow.client.responses import understood
from sow.core.humanize import counted, duration, size

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


@click.command(epilog=example("sow sessions", "sow sessions 17", "sow sessions --json"))
@click.argument("session_id", metavar="[ID]", required=False)
@url_option
@json_option
def sessions(session_id: str | None, url: str, as_json: bool) -> None:
    """List sessions, those furthest behind first; or describe the session ID."""
    if session_id is not None:
        show_story(run(_requested(url, session_path(session_id), dict)), as_json)
        return
    answered = run(_requested(url, "/v1/sessions", list))
    with understood(url):
        found = sorted(answered, key=slowness, reverse=True)
    if as_json:
        click.echo(json_text(found))
        return
    if found:
        console = terminal_console()
        with understood(url):
            rows = [*map(row, found)]
            table = figures(columns_for(rows), rows, console.width)
        console.print(table)
    click.echo(counted(len(found), "session"), err=True)


async def _requested(url: str, path: str, kind: type[Any]) -> Any:
    async with connected(url, "sow sessions") as client:
        return await client.http.json("GET", path, kind=kind)


def columns_for(rows: Sequence[Row]) -> list[Column]:
    """The columns with content: without authentication there are no users."""
    return [one for one in SESSION_COLUMNS if any(row[one.name] for row in rows)]


def slowness(one: Described) -> tuple[float, int]:
    """Extra columns of slow sessions."""
    return one["lag_ms"], one["queue_messages"]


def row(one: Described) -> dict[str, str]:
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


def session_path(session_id: str) -> str:
    """The server's report on a session."""
    return f"/v1/sessions/{quote(session_id, safe='')}/why"


def show_story(one: Described, as_json: bool) -> None:
    """Write the report on a session."""
    click.echo(json_text(one) if as_json else "\n".join(story(one)))


def story(one: Described) -> list[str]:
    """The server's sentences on a session and what to do, one per line."""
    subject = f"{one['client'] or 'a client without a name'}, session {one['id']}"
    return [printable(sentence) for sentence in [subject, *one["why"], *one["instead"]]]


def state(one: Described) -> str:
    """Whether its client is connected, or why the session is closing."""
    if one["reason"]:
        return str(one["reason"])
    return "connected" if one["connected"] else "away"
