"""Suggestions for a mistyped word: which one was meant, or which are known.

The nearest word is found by `conflated_topics.user_texts`; the caller passes the known words.
"""

from collections.abc import Collection, Mapping
from itertools import islice

from conflated_topics.user_texts import nearest
from sow.errors import clipped, shown

__all__ = ["did_you_mean", "nearest", "no_topic"]

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
    said = f"no topic {shown(name)}" + (did_you_mean(clipped(name), known) if known else "")
    if not patterns or nearest(clipped(name), known) is not None:
        return said
    listed = [f"{one} (Pattern {clipped(text)})" for one, text in patterns.items()]
    more = ", …" if len(listed) > PATTERNS_SENT_MAX else ""
    before = ", " if known else "; known are "
    return f"{said}{before}{', '.join(listed[:PATTERNS_SENT_MAX])}{more}"
