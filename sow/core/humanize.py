"""Words for people: quantities, and what a mistyped word may have meant.

For sentences of the server and tables of the command line, so that both write `2.5 s` and suggest
alike. Programs are given numbers with their unit in the name. The nearest word is found by
`conflated_topics.user_texts`; the caller passes the known words.
"""

from collections.abc import Collection, Mapping
from itertools import islice

from conflated_topics.user_texts import nearest
from sow.errors import clipped, shown

SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SIZE_STEP = 1024
"""Bytes of a KiB, and so on up."""


def counted(count: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def size(count: float) -> str:
    """`512 B`, `1.5 MiB`: two digits and a unit are all that anybody compares."""
    for unit in SIZE_UNITS:
        if count < SIZE_STEP or unit == SIZE_UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= SIZE_STEP
    raise AssertionError("the last unit takes whatever is left")


def duration(seconds: float) -> str:
    """`0.4 ms`, `35 ms`, `2.5 s`, `3 min`, `5 h`, `12 d`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.2g} ms" if seconds else "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.1f} s"


KNOWN_SENT_MAX = 30
"""A longer list of known words helps no one."""
PATTERNS_SENT_MAX = 10
"""Patterns are longer than words."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` when a known word is near, else the known words, or some of them."""
    meant = nearest(word, known)
    if meant is not None:
        return f"; did you mean {meant}?"
    more = ", …" if len(known) > KNOWN_SENT_MAX else ""
    return f"; known are {', '.join(islice(known, KNOWN_SENT_MAX))}{more}"


def no_topic(name: str, known: Collection[str], patterns: Mapping[str, str]) -> str:
    """The detail for a `name` without a topic: which `known` one was meant, or which are known, and
    the `patterns` by which topics are created, by the names of their definitions."""
    detail = f"no topic {shown(name)}" + (did_you_mean(clipped(name), known) if known else "")
    if not patterns or nearest(clipped(name), known) is not None:
        return detail
    listed = [f"{one} (Pattern {clipped(text)})" for one, text in patterns.items()]
    more = ", …" if len(listed) > PATTERNS_SENT_MAX else ""
    before = ", " if known else "; known are "
    return f"{detail}{before}{', '.join(listed[:PATTERNS_SENT_MAX])}{more}"
