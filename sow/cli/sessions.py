"""`sow sessions`: who is connected, and what waits for them."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click
import orjson

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.query import terminal_console
from sow.cli.report import counted
from sow.cli.tables import Column, duration, figures, printable, size

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


@click.command(epilog=example("sow sessions", "sow sessions 17", "sow sessions --json"))
@click.argument("session_id", metavar="[ID]", required=False)
@url_option
@json_option
def sessions(session_id: str | None, url: str, as_json: bool) -> None:
    """List sessions, those that are furthest behind first; or say of one, ID, how it stands."""
    if session_id is not None:
        one = run(_asked(url, f"/v1/sessions/{quote(session_id, safe='')}"))
        click.echo(orjson.dumps(one) if as_json else "\n".join(story(one)))
        return
    found = sorted(run(_asked(url, "/v1/sessions")), key=slowness, reverse=True)
    if as_json:
        click.echo(orjson.dumps(found))
        return
    if found:
        console = terminal_console()
        console.print(figures(SESSION_COLUMNS, [*map(row, found)], console.width))
    click.echo(counted(len(found), "session"), err=True)


async def _asked(url: str, path: str) -> Any:
    async with connected(url, "sow sessions") as client:
        return await client.http.json("GET", path)


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


def story(one: Described) -> list[str]:
    """How a session stands, in sentences."""
    said = [f"{printable(one['client'] or 'a client without a name')}: {state(one)}"]
    said[0] += f", for {duration(one['connected_ms'] / 1000)}"
    if one["queue_messages"]:
        said.append(
            f"{counted(one['queue_messages'], 'message')} ({size(one['queue_bytes'])}) wait: it "
            f"reads more slowly than it is told, and is {duration(one['lag_ms'] / 1000)} behind"
        )
    else:
        said.append("nothing waits: it keeps up")
    if not one["conflated"]:
        said.append("nothing is conflated in its queue: that is switched off for it")
    elif one["conflated_messages"]:
        folded = counted(one["conflated_messages"], "message")
        said.append(f"{folded} folded into others of the same records, since its queue filled")
    if one["dropped_messages"]:
        dropped = counted(one["dropped_messages"], "message")
        said.append(f"{dropped} dropped, of topics with ConflationPolicy unsubscribe")
    return said + [_followed(followed) for followed in one.get("following", ())]


def _followed(one: Described) -> str:
    """One of its subscriptions, and what conflating it has saved."""
    said = f"follows {printable(one['topic'])}"
    said += f" where {printable(one['filter'])}" if one["filter"] else ""
    if one["interval_ms"] is not None:
        said += f", at most every {duration(one['interval_ms'] / 1000)}"
    elif one["auto"]:
        said += ", as fast as it reads"
    if "updates_in" in one:
        said += (
            f": {counted(one['updates_in'], 'update')} came, "
            f"{one['updates_out']:,} were told, {one['pending']:,} wait"
        )
    return said


def state(one: Described) -> str:
    """Whether its client is there, or why the session is being given up."""
    if one["reason"]:
        return str(one["reason"])
    return "connected" if one["connected"] else "away"
