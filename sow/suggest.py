"""What a mistyped word was meant to be: the one rule for every name that users write.

A word is compared with those that are known, whatever its case; what is known is the caller's
business.
"""

import difflib
from collections.abc import Collection, Iterable
from itertools import islice

from sow.errors import clipped

KNOWN_TOLD_MAX = 30
"""So many words may help who has mistyped one; more would only be long."""
LIKENESS_MIN = 0.6
"""Of two words that share fewer of their characters than this, none is a slip of the other."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is most likely a slip of; None if there is none."""
    by_lower = {name.lower(): name for name in known}
    # Clipped, since comparing takes as long as both words together, squared.
    close = difflib.get_close_matches(clipped(word.lower()), by_lower, 1, LIKENESS_MIN)
    return by_lower[close[0]] if close else None


def did_you_mean(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` when a known word is near, else the known words, or some of them."""
    meant = nearest(word, known)
    if meant is not None:
        return f"; did you mean {meant}?"
    more = ", …" if len(known) > KNOWN_TOLD_MAX else ""
    return f"; known are {', '.join(islice(known, KNOWN_TOLD_MAX))}{more}"
