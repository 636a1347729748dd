"""`sow why`: why a record is told of as it is: what became one update, and what waits."""

from collections.abc import Mapping
from typing import Any

import click
import msgspec
import orjson

from sow.cli.connecting import connected
from sow.cli.options import example, filter_option, json_option, run, url_option
from sow.cli.query import terminal_console
from sow.cli.tables import Column, figures
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
    epilog=example("sow why orders-C 7130219382", "sow why orders-C --filter '/order_id = 7'")
)
@click.argument("topic")
@click.argument("key", required=False)
@filter_option
@url_option
@json_option
def why(topic: str, key: str | None, filter_text: str | None, url: str, as_json: bool) -> None:
    """Tell the story of one record of TOPIC: KEY is its SowKey, or --filter finds it.

    Of a conflated topic: which updates became one, in which window, what waits, and who is told.
    """
    if (key is None) == (filter_text is None):
        raise click.UsageError("give either KEY, a SowKey, or --filter, such as '/id = 7'")
    story = run(_why(url, topic, key, filter_text))
    if as_json:
        click.echo(orjson.dumps(story))
        return
    for sentence in story["why"]:
        click.echo(sentence)
    if story["followers"]:
        console = terminal_console()
        console.print(figures(FOLLOWER_COLUMNS, [*map(_row, story["followers"])], console.width))
    else:
        click.echo("nobody follows it")


async def _why(url: str, topic: str, key: str | None, filter_text: str | None) -> Story:
    async with connected(url, "sow why") as client:
        key = key or await _found(client, topic, filter_text)
        found: Story = await client.http.json("GET", f"{records_of(topic)}/{key}/why")
        return found


async def _found(client: Client, topic: str, filter_text: str | None) -> str:
    """The SowKey of the only record that a filter finds."""
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
