"""Errors as a person, or with --json a program, reads them on stderr."""

import click
import orjson

from sow.errors import BadFilter, SowError

AS_JSON = "sow.cli.json"
EXPRESSIONS = "sow.cli.expressions"
"""Keys of `click.Context.meta`: whether --json was given, and the expressions by reason."""


def show_error(ctx: click.Context, error: SowError) -> None:
    """Say what went wrong, with a caret under the place where an expression broke."""
    if ctx.meta.get(AS_JSON):
        document = {"error": error.reason, "detail": error.detail, **error.fields()}
        click.echo(orjson.dumps(document).decode(), err=True)
        return
    click.echo(f"sow: {error.detail or error}", err=True)
    text = ctx.meta.get(EXPRESSIONS, {}).get(error.reason)
    if isinstance(error, BadFilter) and text:
        click.echo(pointed(text, error.position), err=True)


def counted(count: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def pointed(text: str, position: int) -> str:
    """The line of `text` that holds `position`, and a caret under it."""
    start = text.rfind("\n", 0, position) + 1
    line = text[start:].split("\n", 1)[0].replace("\t", " ")
    return f"  {line}\n  {' ' * (position - start)}^"
