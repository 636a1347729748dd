"""`sow sessions`: who is connected, and what waits for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import orjson

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.query import terminal_console
from sow.cli.report import counted
from sow.cli.tables import Column, duration, figures, size

SESSION_COLUMNS = (
    Column("client"),
    Column("lag", is_number=True),
    Column("queue", is_number=True),
    Column("state"),
    Column("conflated", is_number=True),
    Column("dropped", is_number=True),
    Column("subscribed", is_number=True),
    Column("size", is_number=True),
    Column("since", is_number=True),
    Column("id"),
)
Described = Mapping[str, Any]


@click.command(epilog=example("sow sessions", "sow sessions --json"))
@url_option
@json_option
def sessions(url: str, as_json: bool) -> None:
    """List sessions, those that are furthest behind first."""
    found = sorted(run(_sessions(url)), key=slowness, reverse=True)
    if as_json:
        click.echo(orjson.dumps(found))
        return
    if found:
        console = terminal_console()
        console.print(figures(SESSION_COLUMNS, [*map(row, found)], console.width))
    click.echo(counted(len(found), "session"), err=True)


async def _sessions(url: str) -> Sequence[Described]:
    async with connected(url, "sow sessions") as client:
        found: list[Described] = await client.http.json("GET", "/v1/sessions")
        return found


def slowness(one: Described) -> tuple[float, int]:
    """What slow sessions have more of."""
    return one["lag_ms"], one["queue_messages"]


def row(one: Described) -> dict[str, str]:
    """A session as a row of the table."""
    return {
        "client": one["client"] or "(no name)",
        "state": state(one),
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
    """Whether its client is there, or why the session is being given up."""
    if one["reason"]:
        return str(one["reason"])
    return "connected" if one["connected"] else "away"
