"""Escapes control characters in output.

Names of topics, records, errors and sessions come from other users, and a terminal obeys control
characters in them: they move the cursor, clear the screen, or reverse the text. Output for people
shows such a character as a program would write it. Data for programs stays unchanged, except on a
terminal, which gets JSON escapes. JSON that a command makes about itself is always escaped: it is
short, and people often read it later.
"""

import sys
from typing import Any

import orjson


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
