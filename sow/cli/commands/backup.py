"""`sow backup`, `restore`, `verify`, `repair`: copies of everything stored, and damaged files.

A running server streams its data and writes nothing itself; the command chooses the destination. A
restore makes a data directory from such a copy. Verifying compares every checksum of a data
directory, of a backup, or of a running server; a repair recovers the intact part of a file.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.progress import DownloadColumn, TextColumn, TransferSpeedColumn

from sow.cli.connecting import connected, of_a_server, server_command
from sow.cli.options import command, example, run
from sow.cli.output import printable, show
from sow.cli.tables import progress
from sow.client import Client, Disconnected
from sow.client.http import pieces
from sow.core.humanize import size
from sow.core.media_types import FRAMES
from sow.errors import Damaged, written_whole
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
