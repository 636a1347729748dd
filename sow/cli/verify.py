"""`sow verify` and `sow repair`: find damaged files, and recover the intact part of one.

Verifying compares every checksum of a data directory, of a backup, or of a running server.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text, printable
from sow.core.humanize import size
from sow.store.backup import CONTENTS_FILE, StoredBackup
from sow.store.repair import main as repair_file
from sow.store.verifying import VerifiedFile, verify_directory


@click.command(epilog=example("sow verify", "sow verify data", "sow verify backups/monday"))
@click.argument("data_directory", type=click.Path(), required=False)
@url_option
@json_option
@click.pass_context
def verify(ctx: click.Context, data_directory: str | None, url: str, as_json: bool) -> None:
    """Verify every checksum of stored data, and name each damaged file.

    DATA_DIRECTORY is that of a stopped server, or a backup. Without it the server at --url verifies
    its own data. Exit code 1 means that something is damaged.
    """
    found = list(_offline(Path(data_directory))) if data_directory else run(_online(url))
    damaged = [one for one in found if one.problem]
    if as_json:
        report = {"whole": not damaged, "files": [one._asdict() for one in found]}
        click.echo(json_text(report))
    else:
        for one in found:
            state = one.problem or f"whole, {size(one.size_bytes)}"
            click.echo(printable(f"{one.file}: {state}"))
    ctx.exit(1 if damaged else 0)


def _offline(path: Path) -> Iterator[VerifiedFile]:
    if (path / CONTENTS_FILE).exists():
        for file, size_bytes, problem in StoredBackup(path).verify():
            reported = f"{problem}; take another backup" if problem else ""
            yield VerifiedFile(file, size_bytes, reported)
    else:
        yield from (one for one in verify_directory(path) if one is not None)


async def _online(url: str) -> list[VerifiedFile]:
    async with connected(url, "sow verify") as client:
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
