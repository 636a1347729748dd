"""Lists as users write them: words between commas, in options and over HTTP.

A comma inside brackets belongs to its word, so that a list can be the value of an option. Of
expressions, so does one inside parentheses or quotes. What the words mean is not known here.
"""

import re
from collections.abc import Iterator

from sow.core.paths import Member
from sow.errors import ClientError, shown

_MARK = re.compile(
    r"""r'[^']*'?|r"[^"]*"?|'(?:[^'\\]|\\.?)*'?|"(?:[^"\\]|\\.?)*"?|\[/[^][(),]*\]|[][(),]""",
    re.IGNORECASE | re.DOTALL,
)
"""What matters to who looks for the end of an expression: texts, closed or not so that a search is
one pass, and names in brackets, as a whole; and what opens, closes or separates."""


_QUOTED = re.compile(r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""", re.DOTALL)
"""A name in quotes in a path: what stands in it opens, closes and separates nothing."""


def comma_list(text: str | list[str]) -> list[str]:
    """Members of a comma text, blanks trimmed; raises ClientError for an empty one."""
    if not isinstance(text, str):
        return [member.strip() for member in text if member.strip()]
    members = [member.strip() for member in text.split(",")]
    if members == [""]:
        return []
    if "" in members:
        raise _empty(text)
    return members


def read_list(text: str) -> tuple[str, ...]:
    """Members of a comma text, which may stand in brackets; each knows its place in the text.
    Raises ClientError for an empty one."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and inner.endswith("]"):
        inner, before = inner[1:-1], before + 1
    return tuple(Member(word, before + start) for start, word in _split(inner))


def read_expressions(text: str) -> tuple[str, ...]:
    """Expressions of a comma text, which may stand in brackets; each knows its place in the
    text. Raises ClientError for an empty one."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and expressions_end(inner, 1) == len(inner) - 1:
        inner, before = inner[1:-1], before + 1
    found, start = [], 0
    for end in [*_commas(inner), len(inner)]:
        if word := inner[start:end].strip():
            found.append(Member(word, before + inner.index(word, start)))
        elif inner.strip():
            raise _empty(text)
        start = end + 1
    return tuple(found)


def expressions_end(text: str, start: int) -> int:
    """Where the bracket stands that ends a list of expressions which begins at `start`; -1 if there
    is none."""
    depth = 0
    for found in _MARK.finditer(text, start):
        mark = found[0]
        if mark == "]" and depth == 0:
            return found.start()
        depth += (mark in ("[", "(")) - (mark in ("]", ")"))
    return -1


def _commas(text: str) -> Iterator[int]:
    """Where the commas stand that separate expressions."""
    depth = 0
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark == "," and depth <= 0:
            yield found.start()
        depth += (mark in ("[", "(")) - (mark in ("]", ")"))


def split_list(text: str) -> list[str]:
    """Split at commas outside brackets; raises ClientError for an empty word."""
    return [word for _, word in _split(text)]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The words between commas outside brackets, each with the character that it begins at."""
    depth, start = 0, 0
    bare = _QUOTED.sub(lambda found: "_" * len(found[0]), text)
    for at, character in enumerate(f"{bare},"):
        depth += (character == "[") - (character == "]")
        if character == "," and (depth <= 0 or at == len(text)):
            if word := text[start:at].strip():
                yield text.index(word, start), word
            elif text.strip():
                raise _empty(text)
            start = at + 1


def _empty(text: str) -> ClientError:
    return ClientError(
        f"the list {shown(text)} has an empty item; remove a comma, or write what is missing",
        reason="invalid options",
    )
