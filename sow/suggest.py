"""What is said to who has mistyped a word: which one was meant, or which there are.

Which one was meant, the core of conflation says (`conflated_topics.suggest`), whose users mistype
words too; what is known is the caller's business.
"""

from collections.abc import Collection
from itertools import islice

from conflated_topics.suggest import nearest

__all__ = ["did_you_mean", "nearest"]

KNOWN_TOLD_MAX = 30
"""So many words may help who has mistyped one; more would only be long."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` when a known word is near, else the known words, or some of them."""
    meant = nearest(word, known)
    if meant is not None:
        return f"; did you mean {meant}?"
    more = ", …" if len(known) > KNOWN_TOLD_MAX else ""
    return f"; known are {', '.join(islice(known, KNOWN_TOLD_MAX))}{more}"
