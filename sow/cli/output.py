"""Writes results and errors, for people or, with --json, for programs.

Names of topics, records, errors and sessions come from other users, and a terminal obeys control
characters in them: they move the cursor, clear the screen, or reverse the text. Output for people
shows such a character as a program would write it. Data for programs stays unchanged, except on a
terminal, which gets JSON escapes. JSON that a command makes about itself is always escaped: it is
short, and people often read it later. Tables are made by `sow.cli.tables`.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

import click
import orjson

from sow.errors import ClientError, SowError

AS_JSON = "sow.cli.json"
EXPRESSIONS = "sow.cli.expressions"
"""Keys of `click.Context.meta`: whether --json was given, and the expressions by the first words of
their errors, "" for the filter."""
LINE_MAX = 76
"""Characters of a long line to show, around the position: it fits a terminal of 80 characters with
an indent of two."""


def as_json() -> bool:
    """Whether the user has given --json."""
    return bool(click.get_current_context().meta.get(AS_JSON))


def show(found: Any, text: str | Iterable[str] | Callable[[], None]) -> None:
    """Write a result: `found` as JSON with --json, else the line or lines of `text`, or what the
    function `text` writes."""
    if as_json():
        click.echo(json_text(found))
    elif callable(text):
        text()
    else:
        for line in [text] if isinstance(text, str) else text:
            click.echo(line)


def printable(text: str) -> str:
    """Text that cannot move the cursor or ring the bell of a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def lines_printable(text: str) -> str:
    """The same for text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def write_data(data: bytes) -> None:
    """Write whole lines to stdout and flush them."""
    if sys.stdout.isatty():
        # First what was written as text before.
        sys.stdout.write(harmless(data.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def json_text(value: Any) -> str:
    """A value as equivalent JSON without effect on a terminal."""
    return harmless(orjson.dumps(value).decode())


def harmless(text: str) -> str:
    """JSON or CSV text in which only line breaks and tabs have an effect on a terminal."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)


def _escaped(character: str) -> str:
    if character.isprintable() or character in "\t\r":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


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
