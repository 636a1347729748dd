"""What a mistyped word was meant to be: the one rule for every name that users write."""

import difflib
from collections.abc import Iterable

LIKENESS_MIN = 0.6
"""Of two words that share fewer of their characters than this, none is a slip of the other."""
COMPARED_CHARS_MAX = 80
"""So much of a word is compared: comparing takes as long as both words together, squared."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is most likely a slip of, whatever its case; None if none is."""
    by_lower = {name.lower(): name for name in known}
    beginning = word.lower()[:COMPARED_CHARS_MAX]
    close = difflib.get_close_matches(beginning, by_lower, 1, LIKENESS_MIN)
    return by_lower[close[0]] if close else None
