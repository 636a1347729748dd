"""`sow topics`, `sow sessions`, `sow why`, `sow reload`: what a server has, and why it is so.

The sentences of `sow why`, on the state of a record, a query's access path or what a session
missed, come from the server: the command requests and prints them.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click
import msgspec

from sow.cli.connecting import confirm, connected, server_command
from sow.cli.measuring import slowness
from sow.cli.options import filter_option, run, topic_names, yes_option
from sow.cli.output import json_text, printable, show
from sow.cli.tables import Column, Row, write_table
from sow.client import Client
from sow.client.errors import OlderServer
from sow.client.http import records_of, understood
from sow.core.humanize import counted, duration, size
from sow.errors import ClientError, UnknownRecord, shown

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


@server_command("sow sessions", "sow sessions 17", "sow sessions 17 --disconnect")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--disconnect", is_flag=True, help="Close the session ID and its connection.")
@yes_option
def sessions(session_id: str | None, disconnect: bool) -> None:
    """List sessions, those furthest behind first; or describe the session ID.

    The description says what the session does not receive, why, and what to do. Before it closes a
    session a terminal asks, and names the context and the address.
    """
    if disconnect and session_id is None:
        raise click.UsageError("--disconnect closes one session: give its ID")
    if disconnect:
        confirm(f"disconnect session {session_id}")
    run(_sessions(session_id, disconnect))


async def _sessions(session_id: str | None, disconnect: bool) -> None:
    async with connected() as client:
        if session_id is None:
            await _show_sessions(client)
        elif disconnect:
            path = f"/v1/sessions/{quote(session_id, safe='')}"
            closed = await client.http.json("DELETE", path, kind=dict)
            show(closed, printable(f"disconnected session {session_id}"))
        else:
            await show_session(client, session_id)


async def _show_sessions(client: Client) -> None:
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


FOLLOWER_COLUMNS = (
    Column("follower"),
    Column("told"),
    Column("conflated"),
    Column("filter"),
    Column("session"),
)


@server_command(
    "sow why orders-C 7130219382",
    "sow why orders-C --filter '/order_id = 7'",
    "sow why orders-C 7130219382 --as-of 2026-11-21T14:32:05.2Z --for ann",
    "sow why orders --query --filter '/qty > 10'",
    "sow why --session s17",
)
@click.argument("topic", required=False, shell_complete=topic_names)
@click.argument("key", required=False)
@filter_option
@click.option("--query", "of_query", is_flag=True, help="How the server runs the --filter.")
@click.option("--session", metavar="ID", help="What a session does not receive, and why.")
@click.option("--as-of", metavar="T", help="What a subscriber had been sent by this time, or up to "
              "this bookmark.")  # fmt: skip
@click.option(
    "--for", "reader", metavar="U", help="With --as-of: under the rights that U had then."
)
@click.option("--opts", metavar="O", help='With --as-of: options, such as "conflation=1s".')
def why(
    topic: str | None,
    key: str | None,
    filter_text: str | None,
    of_query: bool,
    session: str | None,
    as_of: str | None,
    reader: str | None,
    opts: str | None,
) -> None:
    """Explain one record of TOPIC: KEY is its SowKey or its key's values, or --filter finds it.

    For a conflated topic: which updates were merged, in which window, what waits, and who receives
    it. With --as-of: what a subscriber had been sent of it then. With --query: which index or scan
    runs a query, and which index would help. With --session: what was conflated or dropped for a
    session, since when and why.
    """
    then = {"as_of": as_of, "user": reader, "opts": opts}
    if as_of is None and (reader is not None or opts is not None):
        raise click.UsageError("--for and --opts say who the subscriber was: give --as-of T too")
    if as_of is not None and (of_query or session is not None):
        raise click.UsageError("--as-of is about a record: give a TOPIC and KEY, or --filter F")
    if session is not None:
        if topic is not None or of_query or filter_text is not None:
            raise click.UsageError("--session ID stands alone: a session has no TOPIC")
    elif topic is None:
        raise click.UsageError("give a TOPIC and one of its records, or --session ID")
    elif of_query:
        if key is not None:
            raise click.UsageError("--query is about a filter: write --filter F in place of KEY")
    elif (key is None) == (filter_text is None):
        raise click.UsageError(
            "give either KEY, a SowKey or the key's values, or --filter '/id = 7'"
        )
    run(_why(topic or "", key, filter_text, of_query, session, then))


async def _why(
    topic: str,
    key: str | None,
    filter_text: str | None,
    of_query: bool,
    session: str | None,
    then: Mapping[str, str | None],
) -> None:
    async with connected() as client:
        if session is not None:
            await show_session(client, session)
        elif of_query:
            plan = await client.explain(topic, filter=filter_text)
            show(plan, lambda: _say(plan))
        else:
            named = await _found(client, topic, filter_text) if key is None else key
            record = await _story(client, topic, named, then)
            show(record, lambda: _show_record(record))


async def _story(
    client: Client, topic: str, key: str, then: Mapping[str, str | None]
) -> Mapping[str, Any]:
    """What the server says of a record: of that SowKey if there is one, else of these values."""

    async def of(named: str) -> dict[str, Any]:
        path = f"{records_of(topic)}/{quote(named, safe='')}/why"
        found: dict[str, Any] = await client.http.json("GET", path, then, kind=dict)
        return found

    try:
        return await of(key)
    except UnknownRecord:
        return await of(f"key={key}")


def _show_record(record: Mapping[str, Any]) -> None:
    if last := record.get("told"):
        click.echo(f"{last['c']} {json_text(last['d'])}")
    _say(record)
    if record["followers"]:
        write_table(FOLLOWER_COLUMNS, [*map(_row, record["followers"])])
    elif "told" not in record:  # who followed it then is not known
        click.echo("nobody follows it")


def _say(explained: Mapping[str, Any]) -> None:
    for sentence in explained["why"]:
        click.echo(printable(sentence))


async def _found(client: Client, topic: str, filter_text: str | None) -> str:
    """The SowKey of the only record that a filter matches."""
    async with client.rows(topic, meta=True, filter=filter_text, top_n=1) as rows:
        matches, found = rows.matches, [row async for row in rows]
    if matches != 1:
        raise ClientError(
            f"{matches:,} records of {shown(topic)} match; name one, by a filter of its key alone"
        )
    return str(msgspec.json.decode(found[0])["k"])


def _row(one: Mapping[str, Any]) -> dict[str, str]:
    interval_ms = one["interval_ms"]
    conflated = "as read" if one["auto"] else ""
    return {
        "follower": one["client"] or "(no name)",
        "told": "yes" if one["told"] else "no",
        "conflated": conflated if interval_ms is None else f"{interval_ms / 1000:g} s",
        "filter": one["filter"] or "",
        "session": one["session"],
    }
