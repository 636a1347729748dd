"""`sow restore`: makes a data directory from a backup."""

import time
from pathlib import Path

import click

from sow.cli.dump import progress
from sow.cli.options import example, json_option
from sow.cli.plain_output import json_text
from sow.errors import Damaged, written_whole
from sow.history.bookmarks import moment_us, number_of
from sow.store.backup import StoredBackup
from sow.store.restoring import restore as restored_to
from sow.store.restoring import until_time


@click.command(
    epilog=example(
        "sow restore backups/monday data",
        "sow restore backups/monday data --as-of 2026-11-21T09:30:00Z",
    )
)
@click.argument("backup", type=click.Path())
@click.argument("data_directory", type=click.Path())
@click.option(
    "--as-of",
    metavar="MOMENT",
    help="A bookmark of the original server, or a time: leave out everything after it.",
)
@json_option
def restore(backup: str, data_directory: str, as_of: str | None, as_json: bool) -> None:
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
    if as_json:
        report = {"bookmark": str(made.bookmark), "was": str(made.until_seq)}
        click.echo(json_text({"data_directory": data_directory, **report}))
    else:
        click.echo(
            f"{data_directory}: as of bookmark {made.until_seq} of the old log, which is "
            f"{made.bookmark} in the new one"
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
