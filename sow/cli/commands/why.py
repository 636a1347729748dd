"""`sow why`: explains the state of a record, a query's access path, or what a session missed.

The sentences come from the server: this command requests and prints them.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import click
import msgspec

from sow.cli.commands.admin import show_session
from sow.cli.completion import topic_names
from sow.cli.connecting import connected, server_command
from sow.cli.options import filter_option, run
from sow.cli.output import printable, show
from sow.cli.tables import Column, write_table
from sow.client import Client
from sow.client.http import records_of
from sow.errors import ClientError, shown

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
    "sow why orders --query --filter '/qty > 10'",
    "sow why --session s17",
)
@click.argument("topic", required=False, shell_complete=topic_names)
@click.argument("key", required=False)
@filter_option
@click.option("--query", "of_query", is_flag=True, help="How the server runs the --filter.")
@click.option("--session", metavar="ID", help="What a session does not receive, and why.")
def why(
    topic: str | None,
    key: str | None,
    filter_text: str | None,
    of_query: bool,
    session: str | None,
) -> None:
    """Explain one record of TOPIC: KEY is its SowKey, or --filter finds it.

    For a conflated topic: which updates were merged, in which window, what waits, and who receives
    it. With --query: which index or scan runs a query, and which index would help. With --session:
    what was conflated or dropped for a session, since when and why.
    """
    if session is not None:
        if topic is not None or of_query or filter_text is not None:
            raise click.UsageError("--session ID stands alone: a session has no TOPIC")
    elif topic is None:
        raise click.UsageError("give a TOPIC and one of its records, or --session ID")
    elif of_query:
        if key is not None:
            raise click.UsageError("--query is about a filter: write --filter F in place of KEY")
    elif (key is None) == (filter_text is None):
        raise click.UsageError("give either KEY, a SowKey, or --filter, such as '/id = 7'")
    run(_why(topic or "", key, filter_text, of_query, session))


async def _why(
    topic: str, key: str | None, filter_text: str | None, of_query: bool, session: str | None
) -> None:
    async with connected() as client:
        if session is not None:
            await show_session(client, session)
        elif of_query:
            plan = await client.explain(topic, filter=filter_text)
            show(plan, lambda: _say(plan))
        else:
            key = key or await _found(client, topic, filter_text)
            path = f"{records_of(topic)}/{quote(key, safe='')}/why"
            record = await client.http.json("GET", path, kind=dict)
            show(record, lambda: _show_record(record))


def _show_record(record: Mapping[str, Any]) -> None:
    _say(record)
    if record["followers"]:
        write_table(FOLLOWER_COLUMNS, [*map(_row, record["followers"])])
    else:
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
