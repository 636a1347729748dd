"""Writes errors to stderr: for people or, with --json, for programs."""

import click

from sow.cli.plain_output import json_text, lines_printable
from sow.errors import ClientError, SowError

AS_JSON = "sow.cli.json"
EXPRESSIONS = "sow.cli.expressions"
"""Keys of `click.Context.meta`: whether --json was given, and the expressions by the first words of
their errors, "" for the filter."""
LINE_MAX = 76
"""Characters of a long line to show, around the position: it fits a terminal of 80 characters with
an indent of two."""


def show_error(ctx: click.Context, error: SowError) -> None:
    """Report an error, with a caret under the position of a mistake in an expression."""
    if ctx.meta.get(AS_JSON):
        document = {"error": error.reason, "detail": error.detail, **error.fields()}
        click.echo(json_text(document), err=True)
        return
    # Parts of the text come from the server, and names from publishers.
    click.echo(f"sow: {lines_printable(error.detail or str(error))}", err=True)
    if isinstance(error, ClientError) and error.position is not None:
        given = ctx.meta.get(EXPRESSIONS, {})
        what = next((what for what in given if what and error.detail.startswith(what)), "")
        if (text := given.get(what)) is not None:
            click.echo(pointed(text, error.position), err=True)


def pointed(text: str, position: int) -> str:
    """The line of `text` that holds `position`, and a caret under it."""
    start = text.rfind("\n", 0, position) + 1
    line = text[start:].split("\n", 1)[0].replace("\t", " ")
    at = position - start
    if len(line) > LINE_MAX:
        skipped = max(0, min(at - LINE_MAX // 2, len(line) - LINE_MAX))
        line, at = line[skipped : skipped + LINE_MAX], at - skipped
    return f"  {line}\n  {' ' * at}^"
