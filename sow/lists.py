"""Lists as users write them: words between commas, in options and over HTTP.

A comma inside brackets belongs to its word, so that a list can be the value of an option. What the
words mean is not known here.
"""

from collections.abc import Iterator

from sow.paths import Member


def comma_list(text: str | list[str]) -> list[str]:
    """Members of a comma text, blanks trimmed, empty ones left out."""
    members = text.split(",") if isinstance(text, str) else text
    return [member.strip() for member in members if member.strip()]


def read_list(text: str) -> tuple[str, ...]:
    """Members of a comma text, which may stand in brackets; each knows its place in the text."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and inner.endswith("]"):
        inner, before = inner[1:-1], before + 1
    return tuple(Member(word, before + start) for start, word in _split(inner))


def split_list(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [word for _, word in _split(text)]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The words between commas outside brackets, each with the character that it begins at."""
    depth, start = 0, 0
    for at, character in enumerate(f"{text},"):
        depth += (character == "[") - (character == "]")
        if character == "," and (depth <= 0 or at == len(text)):
            if word := text[start:at].strip():
                yield text.index(word, start), word
            start = at + 1
