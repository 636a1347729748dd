"""`sow backup`: copies everything a running server stores, as of one moment, to a local directory.

The server streams its data and writes nothing itself; the command chooses the destination.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sow.cli.connecting import connected, of_a_server
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text
from sow.client import Disconnected
from sow.client.errors import reported
from sow.core.humanize import size
from sow.core.media_types import FRAMES
from sow.errors import written_whole
from sow.store.backup import BackupContents, BackupWriter, FrameReader


@click.command(epilog=example("sow backup backups/monday", "sow backup /mnt/backup/desk --json"))
@click.argument("directory", type=click.Path())
@url_option
@json_option
def backup(directory: str, url: str, as_json: bool) -> None:
    """Copy everything a running server stores, as of one moment, to a new local DIRECTORY.

    Publishing goes on meanwhile. DIRECTORY appears once everything is on the disk. On a server with
    authentication only administrators may do this.
    """
    with of_a_server():
        contents = run(_backup(url, Path(directory)))
    size_bytes = sum(file.size_bytes for file in contents.files)
    if as_json:
        report = {"directory": directory, "bookmark": contents.bookmark, "bytes": size_bytes}
        click.echo(json_text({**report, "time": _time(contents)}))
    else:
        click.echo(
            f"{directory}: {size(size_bytes)} as of bookmark {contents.bookmark}, {_time(contents)}"
        )


def _time(contents: BackupContents) -> str:
    at = datetime.fromtimestamp(contents.time_us / 1_000_000, UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


async def _backup(url: str, directory: Path) -> BackupContents:
    async with connected(url, "sow backup") as client:
        with written_whole(directory), BackupWriter(directory) as writer, _progress() as bar:
            task = bar.add_task("copying", total=None)
            reader = FrameReader(writer.take)
            async with client.http.request("POST", "/v1/backup", accept=FRAMES) as response:
                while True:
                    with reported(url):
                        data = await response.content.readany()
                    if not data:
                        break
                    reader.feed(data)
                    bar.advance(task, len(data))
            if writer.contents is None:
                raise Disconnected(f"{url} ended the backup before its end; nothing is kept of it")
            return writer.contents


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
