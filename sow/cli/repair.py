"""`sow repair`: recovers the intact part of a damaged journal or checkpoint."""

import click

from sow.cli.options import example
from sow.store.repair import main as repair_file


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
