"""What is written so that it does no more than stand there.

Names of topics, records, errors and sessions are texts of others, and a terminal obeys some of
them: they move its cursor, clear it, or turn what follows around. For people such a character is
shown as it would be written in a program. Data in a form for programs is written as it is, except
to a terminal, which gets the same characters as JSON would escape them. What a command says of
itself in JSON has them escaped wherever it goes: it is short, and often looked at later.
"""

import sys
from typing import Any

import orjson


def printable(text: str) -> str:
    """Text that cannot move the cursor or ring the bell of whoever looks at it."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text
    )


def lines_printable(text: str) -> str:
    """The same of a text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def write_data(data: bytes) -> None:
    """Write to stdout, to be read at once; `data` are whole lines."""
    if sys.stdout.isatty():
        # Together with what is written as text, whose place is before it.
        sys.stdout.write(harmless(data.decode(errors="replace")))
    else:
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def json_text(value: Any) -> str:
    """A value as JSON that says the same and does nothing to a terminal."""
    return harmless(orjson.dumps(value).decode())


def harmless(text: str) -> str:
    """Text of JSON or CSV in which nothing but line breaks and tabs does anything to a terminal."""
    lines = text.split("\n")
    return "\n".join(line if line.isprintable() else "".join(map(_escaped, line)) for line in lines)


def _escaped(character: str) -> str:
    if character.isprintable() or character in "\t\r":
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
