"""`sow why`: explains the state of a record, a query's access path, or what a session missed.

The sentences come from the server: this command requests and prints them.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

import click
import msgspec

from sow.cli.connecting import connected
from sow.cli.options import example, filter_option, json_option, run, url_option
from sow.cli.plain_output import json_text, printable
from sow.cli.query import terminal_console
from sow.cli.sessions import session_path, show_story
from sow.cli.tables import Column, figures
from sow.cli.topic_names import topic_names
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
Story = Mapping[str, Any]


@click.command(
    epilog=example(
        "sow why orders-C 7130219382",
        "sow why orders-C --filter '/order_id = 7'",
        "sow why orders --query --filter '/qty > 10'",
        "sow why --session s17",
    )
)
@click.argument("topic", required=False, shell_complete=topic_names)
@click.argument("key", required=False)
@filter_option
@click.option("--query", "of_query", is_flag=True, help="How the server runs the --filter.")
@click.option("--session", metavar="ID", help="What a session does not receive, and why.")
@url_option
@json_option
def why(
    topic: str | None,
    key: str | None,
    filter_text: str | None,
    of_query: bool,
    session: str | None,
    url: str,
    as_json: bool,
) -> None:
    """Explain one record of TOPIC: KEY is its SowKey, or --filter finds it.

    For a conflated topic: which updates were merged, in which window, what waits, and who receives
    it. With --query: which index or scan runs a query, and which index would help. With --session:
    what was conflated or dropped for a session, since when and why.
    """
    if session is not None:
        if topic is not None or of_query or filter_text is not None:
            raise click.UsageError("--session ID stands alone: a session has no TOPIC")
        show_story(run(_requested(url, session_path(session))), as_json)
    elif topic is None:
        raise click.UsageError("give a TOPIC and one of its records, or --session ID")
    elif of_query:
        if key is not None:
            raise click.UsageError("--query is about a filter: write --filter F in place of KEY")
        _show_plan(run(_plan(url, topic, filter_text)), as_json)
    elif (key is None) == (filter_text is None):
        raise click.UsageError("give either KEY, a SowKey, or --filter, such as '/id = 7'")
    else:
        _show_record(run(_why(url, topic, key, filter_text)), as_json)


def _show_record(story: Story, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(story))
        return
    _say(story["why"])
    if story["followers"]:
        console = terminal_console()
        console.print(figures(FOLLOWER_COLUMNS, [*map(_row, story["followers"])], console.width))
    else:
        click.echo("nobody follows it")


def _show_plan(plan: Story, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(plan))
    else:
        _say(plan["why"])


def _say(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(printable(sentence))


async def _requested(url: str, path: str) -> Story:
    async with connected(url, "sow why") as client:
        found: Story = await client.http.json("GET", path, kind=dict)
        return found


async def _plan(url: str, topic: str, filter_text: str | None) -> Story:
    async with connected(url, "sow why") as client:
        return await client.explain(topic, filter=filter_text)


async def _why(url: str, topic: str, key: str | None, filter_text: str | None) -> Story:
    async with connected(url, "sow why") as client:
        key = key or await _found(client, topic, filter_text)
        path = f"{records_of(topic)}/{quote(key, safe='')}/why"
        found: Story = await client.http.json("GET", path, kind=dict)
        return found


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
