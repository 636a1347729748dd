"""Names for several topics: patterns, and the formats of copies' names.

A pattern is a regular expression, searched for unanchored and in linear time. A name is taken for
one when it holds a character that means something to a regular expression; the caller first checks
whether a topic of exactly that name exists. A format has the name of the underlying topic in the
place of each ``%n``, and is read in both directions.
"""

from sow.errors import BadFilter, ClientError, TooLarge
from sow.expressions.patterns import Search, searcher

METACHARACTERS = frozenset("^$.*+?()[]{}|\\")


def is_pattern(name: str) -> bool:
    """Whether a name may be meant as a pattern."""
    return not METACHARACTERS.isdisjoint(name)


def is_meant_as_pattern(name: str) -> bool:
    """Whether a name was probably meant as one: it has metacharacters other than dots."""
    return not METACHARACTERS.isdisjoint(name.replace(".", ""))


def topic_search(pattern: str) -> Search:
    """Whether a topic's name matches; raises ClientError."""
    try:
        return searcher(pattern, 0)
    except BadFilter as error:
        detail = error.detail.removeprefix("LIKE ")
        raise ClientError(f"topic {detail}", reason="bad regex topic") from None
    except TooLarge as error:
        raise TooLarge(f"topic {error.detail.removeprefix('LIKE ')}") from None


def copy_name(topic_format: str, underlying: str) -> str:
    """What the copy of a topic is called: the format, with the topic's name for each %n."""
    return topic_format.replace("%n", underlying)


def copy_ends(topic_format: str) -> tuple[str, str]:
    """How the names of all copies begin and end."""
    parts = topic_format.split("%n")
    return parts[0], parts[-1]


def copied_from(topic_format: str, copy: str) -> str | None:
    """The topic whose copy has the name `copy` by this format; None if no copy has it."""
    parts = topic_format.split("%n")
    left, times = len(copy) - sum(map(len, parts)), len(parts) - 1
    start = len(parts[0])
    source = copy[start : start + left // times]
    return source if source and copy_name(topic_format, source) == copy else None
