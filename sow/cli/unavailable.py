"""Commands that are planned and not built in this version: refused by name."""

import click

from sow.errors import NotAvailable

ANYTHING = {"ignore_unknown_options": True, "allow_extra_args": True}


def _unavailable(name: str, purpose: str) -> click.Command:
    """A command that takes whatever it is given and says that it is not there."""

    def refuse() -> None:
        raise NotAvailable(f"sow {name} is not available yet")

    anything = click.Argument(
        ["words"], nargs=-1, type=click.UNPROCESSED, metavar="...", expose_value=False
    )
    return click.Command(
        name,
        callback=refuse,
        params=[anything],
        context_settings=dict(ANYTHING),
        help=f"{purpose} (not available yet).",
    )


dump = _unavailable("dump", "Write a topic's records to a file")
load = _unavailable("load", "Read a topic's records from a file")
