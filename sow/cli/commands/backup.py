"""`sow backup`, `restore`, `verify`, `repair` and `log`: what is stored, as a whole.

Copies of it, its checksums, damaged files; and a shared log: look at it, verify it, trim it, and
move a data directory into one or out. Records by themselves are read and written by other commands
(`sow.cli.commands.dump`).
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.progress import DownloadColumn, TextColumn, TransferSpeedColumn

from sow.cli.connecting import confirm, connected, of_a_server, server_command
from sow.cli.options import command, example, run, variables_option, yes_option
from sow.cli.output import printable, show
from sow.cli.tables import Column, progress, write_table
from sow.client import Client, Disconnected
from sow.client.http import pieces
from sow.config import require
from sow.core.humanize import counted, duration, size
from sow.core.media_types import FRAMES
from sow.errors import ClientError, Damaged, written_whole
from sow.history.bookmarks import moment_us, number_of
from sow.store.backup import CONTENTS_FILE, BackupContents, BackupWriter, FrameReader, StoredBackup
from sow.store.repair import main as repair_file
from sow.store.restoring import VerifiedFile, until_time, verify_directory
from sow.store.restoring import restore as restored_to


@server_command("sow backup backups/monday", "sow backup /mnt/backup/desk --json")
@click.argument("directory", type=click.Path())
async def backup(client: Client, directory: str) -> None:
    """Copy everything a running server stores, as of one moment, to a new local DIRECTORY.

    Publishing goes on meanwhile. DIRECTORY appears once everything is on the disk. On a server with
    authentication only administrators may do this.
    """
    with of_a_server():
        contents = await _backup(client, Path(directory))
    size_bytes = sum(file.size_bytes for file in contents.files)
    at = datetime.fromtimestamp(contents.time_us / 1_000_000, UTC)
    time_text = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    report = {"directory": directory, "bookmark": contents.bookmark, "bytes": size_bytes}
    show(
        {**report, "time": time_text},
        f"{directory}: {size(size_bytes)} as of bookmark {contents.bookmark}, {time_text}",
    )


async def _backup(client: Client, directory: Path) -> BackupContents:
    columns = (TextColumn("{task.description}"), DownloadColumn(), TransferSpeedColumn())
    with (
        written_whole(directory),
        BackupWriter(directory) as writer,
        progress("copying", None, *columns) as advance,
    ):
        reader = FrameReader(writer.take)
        async with client.http.request("POST", "/v1/backup", accept=FRAMES) as response:
            async for data in pieces(client.url, response):
                reader.feed(data)
                advance(len(data))
        if writer.contents is None:
            raise Disconnected(
                f"{client.url} ended the backup before its end; nothing is kept of it"
            )
        return writer.contents


@command(
    "sow restore backups/monday data",
    "sow restore backups/monday data --as-of 2026-11-21T09:30:00Z",
)
@click.argument("backup", type=click.Path())
@click.argument("data_directory", type=click.Path())
@click.option(
    "--as-of",
    metavar="MOMENT",
    help="A bookmark of the original server, or a time: leave out everything after it.",
)
def restore(backup: str, data_directory: str, as_of: str | None) -> None:
    """Make DATA_DIRECTORY, which must be empty or missing, from BACKUP.

    All checksums are verified first. The new log has another name, and its numbers begin after all
    earlier ones: it refuses bookmarks of the old log.
    """
    stored = StoredBackup(Path(backup))
    _verify(stored)
    until = None if as_of is None else _until(stored, as_of)
    with written_whole(data_directory), progress("restoring", stored.size_bytes) as advance:
        made = restored_to(
            stored,
            Path(data_directory),
            now_us=time.time_ns() // 1000,
            until_seq=until,
            advance=advance,
        )
    report = {"bookmark": str(made.bookmark), "was": str(made.until_seq)}
    show(
        {"data_directory": data_directory, **report},
        f"{data_directory}: as of bookmark {made.until_seq} of the old log, which is "
        f"{made.bookmark} in the new one",
    )


def _verify(stored: StoredBackup) -> None:
    with progress("verifying", stored.size_bytes) as advance:
        for file, size_bytes, problem in stored.verify():
            if problem:
                raise Damaged(f"{file}: {problem}; take another backup, nothing was restored")
            advance(size_bytes)


def _until(stored: StoredBackup, text: str) -> int:
    """The last record to restore."""
    number = number_of(text, stored.contents.log)
    if number is not None:
        return number
    at_us = moment_us(text)
    if at_us is None:
        raise click.BadParameter(
            f"{text[:40]!r} is neither a bookmark nor a time; write 4711 or 2026-11-21T09:30:00Z",
            param_hint="--as-of",
        )
    return until_time(stored, at_us)


@server_command("sow verify", "sow verify data", "sow verify backups/monday")
@click.argument("data_directory", type=click.Path(), required=False)
@click.pass_context
def verify(ctx: click.Context, data_directory: str | None) -> None:
    """Verify every checksum of stored data, and name each damaged file.

    DATA_DIRECTORY is that of a stopped server, or a backup. Without it the server at --url verifies
    its own data. Exit code 1 means that something is damaged.
    """
    found = list(_offline(Path(data_directory))) if data_directory else run(_online())
    damaged = [one for one in found if one.problem]
    states = [(one.file, one.problem or f"whole, {size(one.size_bytes)}") for one in found]
    show(
        {"whole": not damaged, "files": [one._asdict() for one in found]},
        [printable(f"{file}: {state}") for file, state in states],
    )
    ctx.exit(1 if damaged else 0)


def _offline(path: Path) -> Iterator[VerifiedFile]:
    if (path / CONTENTS_FILE).exists():
        for file, size_bytes, problem in StoredBackup(path).verify():
            reported = f"{problem}; take another backup" if problem else ""
            yield VerifiedFile(file, size_bytes, reported)
    else:
        yield from (one for one in verify_directory(path) if one is not None)


async def _online() -> list[VerifiedFile]:
    async with connected() as client:
        answer = await client.http.json("POST", "/v1/verify", kind=dict)
    return [VerifiedFile(**one) for one in answer["files"]]


@click.command(epilog=example("sow repair data journal --after 4711"))
@click.argument("data_directory", type=click.Path(exists=True, file_okay=False))
@click.argument("path", type=click.Path())
@click.option(
    "--after",
    metavar="SEQ",
    type=click.IntRange(0),
    default=0,
    help="The newest record that checkpoints hold, as the server's error names it.",
)
@click.pass_context
def repair(ctx: click.Context, data_directory: str, path: str, after: int) -> None:
    """Keep the intact part of PATH in DATA_DIRECTORY, and set the damaged file aside.

    PATH is the directory of the journal, the file of a topic, or the manifest, as the error of a
    failed start names it. Stop the server first. Nothing is deleted.
    """
    ctx.exit(repair_file([data_directory, path, "--after", str(after)]))


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
def verify_log(ctx: click.Context) -> None:
    """Read a shared log again, and compare it with what a node has applied.

    The node at --url compares the hash of the chain of entries, and the state hashes of nodes that
    are at its bookmark. Exit code 1 means that nodes differ.
    """
    found = run(_verify_log())
    lines = [
        f"entries {found['first']:,} to {found['last']:,}: {counted(found['groups'], 'group')} of "
        f"changes, {found['void']:,} void, chain {found['hash']}"
    ]
    states = {True: "the same records", False: "OTHER RECORDS", None: "at another bookmark"}
    lines += [f"{one['url']}: {states[one['same']]}" for one in found["nodes"]]
    show(found, [*map(printable, lines)])
    ctx.exit(0 if found["equal"] else 1)


async def _verify_log() -> dict[str, Any]:
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


for one in (status, step_down, trim, move):
    log.add_command(one)
log.add_command(verify_log, "verify")
