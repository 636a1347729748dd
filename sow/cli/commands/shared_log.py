"""`sow log`: look at a shared log, verify it, trim it, and move a data directory into one or out.

All but the move ask a node (`sow.server.api.shared_log`). The node that leads
trims the log, whichever of them the command asks.
"""

import os
from dataclasses import replace
from typing import Any

import click

from sow.cli.connecting import confirm, connected, server_command
from sow.cli.options import command, example, run, variables_option, yes_option
from sow.cli.output import printable, show
from sow.cli.tables import Column, write_table
from sow.client import Client
from sow.config import require
from sow.core.humanize import counted, duration
from sow.errors import ClientError

LOG_NODE_COLUMNS = (
    Column("node"),
    Column("role"),
    Column("bookmark", is_number=True),
    Column("checkpoint", is_number=True),
    Column("lag", is_number=True),
    Column("state hash"),
)


@click.group("log", epilog=example("sow log status", "sow log trim --before 4711"))
def log() -> None:
    """Look at a shared log, verify it and trim it; move data in and out."""


@server_command("sow log status", "sow log status --json")
async def status(client: Client) -> None:
    """Show who leads a shared log, and how far each node is.

    The checkpoint of a node is the bookmark up to which it needs nothing of the log.
    """
    found = await client.http.json("GET", "/v1/log/status", kind=dict)

    def write() -> None:
        if found["node"] is None:
            click.echo(f"{found['engine']}: this server has a log of its own")
            return
        write_table(LOG_NODE_COLUMNS, [_row(one) for one in found["nodes"]])
        leader = found["leader"] or "nobody"
        text = f"{leader} leads, in term {found['term']}; node {found['node']} has read the log up "
        text += f"to position {found['position']}"
        if found["stale"]:
            text += f", and has heard nothing for {duration(found['silent_ms'] / 1000)}"
        click.echo(printable(text), err=True)

    show(found, write)


def _row(one: dict[str, Any]) -> dict[str, str]:
    lag_ms, mark = one["lag_ms"], one["checkpoint"]
    return {
        "node": one["url"],
        "role": one["role"],
        "bookmark": one["bookmark"] or "",
        "checkpoint": "" if mark is None else mark["bookmark"],
        "lag": "" if lag_ms is None else duration(lag_ms / 1000),
        "state hash": one["state_hash"] or "",
    }


@server_command("sow log step-down", "sow log step-down --url http://a:8080")
async def step_down(client: Client) -> None:
    """Have another node lead a shared log, such as before an upgrade of the one that does.

    The node that leads ends to do so once all that it was given is in the log, and does not lead
    again for ten leases while another one can.
    """
    found = await client.http.json("POST", "/v1/log/step-down", kind=dict)
    show(found, printable(f"node {found['node']} has stepped down"))


@server_command("sow log verify", "sow log verify --url http://b:8080")
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Read a shared log again, and compare it with what a node has applied.

    The node at --url compares the hash of the chain of entries, and the state hashes of nodes that
    are at its bookmark. Exit code 1 means that nodes differ.
    """
    found = run(_verify())
    lines = [
        f"entries {found['first']:,} to {found['last']:,}: {counted(found['groups'], 'group')} of "
        f"changes, {found['void']:,} void, chain {found['hash']}"
    ]
    states = {True: "the same records", False: "OTHER RECORDS", None: "at another bookmark"}
    lines += [f"{one['url']}: {states[one['same']]}" for one in found["nodes"]]
    show(found, [*map(printable, lines)])
    ctx.exit(0 if found["equal"] else 1)


async def _verify() -> dict[str, Any]:
    async with connected() as client:
        return dict(await client.http.json("POST", "/v1/log/verify", kind=dict))


@server_command("sow log trim --before 4711", "sow log trim --before 4711 --yes")
@yes_option
@click.option(
    "--before", metavar="BOOKMARK", required=True, help="The first record that stays in the log."
)
def trim(before: str) -> None:
    """Let go of the entries of a shared log before a bookmark.

    It is refused beyond the oldest checkpoint of any node. A new node copies a checkpoint first. A
    terminal asks first, and names the context and the address.
    """
    confirm(f"trim the shared log before bookmark {before}")
    found = run(_trim(before))
    show(found, f"the shared log begins at position {found['position']} now")


async def _trim(before: str) -> dict[str, Any]:
    async with connected() as client:
        answer = await client.http.json("POST", "/v1/log/trim", {"before": before}, kind=dict)
        return dict(answer)


@command("sow log move config.xml", "sow log move config.xml --out", options=[variables_option])
@click.argument("config", default="config.xml", type=click.Path())
@click.option(
    "--out", is_flag=True, help="The other way: the directory goes on as that of a local server."
)
@click.option(
    "--data-dir", metavar="DIRECTORY", help="The data directory; the default is that of CONFIG."
)
def move(config: str, variables: dict[str, str], out: bool, data_dir: str | None) -> None:
    """Make a data directory the beginning of an empty shared log, or end that log.

    CONFIG is that of a node, with its <Log>. Stop the server of the directory first, and with --out
    all nodes: then a node of the log, which holds all of it, goes on without <Log>.
    """
    from sow.server.boot.log_move import move_in, move_out

    found = require(config, variables, os.environ)
    if found.shared_log.engine == "local":
        raise ClientError(f"{config} has no <Log>: name the configuration of a node")
    if data_dir is not None:
        found = replace(found, data_directory=data_dir)
    bookmark = run((move_out if out else move_in)(found))
    where, name = found.data_directory, found.shared_log.node
    text = f"the shared log begins with {where}, up to bookmark {bookmark}: start node {name}"
    if out:
        text = f"the shared log has ended at bookmark {bookmark}: start {where} without <Log>"
    show({"data_directory": where, "bookmark": str(bookmark)}, printable(text))


for one in (status, step_down, verify, trim, move):
    log.add_command(one)
