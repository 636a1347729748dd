"""`sow token`: tokens of programs, in the file that the configuration names.

A token is shown once, when it is created: the file holds its hash. `sow reload` applies changes to
a running server.
"""

from datetime import UTC, datetime, timedelta

import click

from sow.cli.credential_files import config_options, file_named, refused
from sow.cli.options import example, json_option
from sow.cli.plain_output import json_text
from sow.config.diagnostics import MistakeError
from sow.config.value_types import duration_us
from sow.security.authentication import tokens


@click.group(epilog=example("sow token create feed --expires 90d", "sow token list"))
def token() -> None:
    """Create, remove and list tokens."""


@token.command("create", epilog=example("sow token create feed --group feeds --expires 90d"))
@click.argument("name")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; repeated.")
@click.option(
    "--expires",
    default="",
    metavar="WHEN",
    help="Lifetime, such as 90d, or end, such as 2027-01-31T00:00:00Z.",
)
@config_options("tokens_file", "Tokens")
def create(name: str, groups: tuple[str, ...], expires: str, file: str) -> None:
    """Create a token for NAME and write it to stdout, only once."""
    with refused():
        made = tokens.create(file, name, groups, expires and _time(expires))
    of = f"of {', '.join(groups)}" if groups else "of no group; add groups by --group"
    click.echo(f"{file}: a token of {name} was added, {of}", err=True)
    click.echo(made)


@token.command("remove", epilog=example("sow token remove feed"))
@click.argument("name")
@config_options("tokens_file", "Tokens")
def remove(name: str, file: str) -> None:
    """Take all tokens of NAME out of the file."""
    found = tokens.remove(file, name)
    if not found:
        raise file_named(file, name)
    click.echo(f"{file}: {found} of {name} removed", err=True)


@token.command("list", epilog=example("sow token list --json"))
@config_options("tokens_file", "Tokens")
@json_option
def list_tokens(file: str, as_json: bool) -> None:
    """List users with tokens, their groups, and when the tokens expire."""
    lines = tokens.read_lines(file)
    if as_json:
        shown = [
            {"name": one.name, "groups": one.groups, "expires": one.expires or None}
            for one in lines
        ]
        click.echo(json_text(shown))
        return
    for one in lines:
        parts = (one.name, ",".join(one.groups), one.expires)
        click.echo(" ".join(part for part in parts if part))


def _time(text: str) -> str:
    """When a token expires, as its line has it."""
    if "T" in text:
        tokens.time_us(text)
        return text
    try:
        us = duration_us(text)
    except MistakeError:
        raise ValueError(
            f"{text} is neither a duration such as 90d nor {tokens.TIME_SAID}"
        ) from None
    ends = datetime.now(UTC) + timedelta(microseconds=us)
    return ends.strftime("%Y-%m-%dT%H:%M:%SZ")
