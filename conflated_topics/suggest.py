"""Suggests the word that a mistyped one was meant to be: the one rule for all names of users."""

import difflib
from collections.abc import Iterable

LIKENESS_MIN = 0.6
"""Similarity below which two words are not considered the same with a typo."""
COMPARED_CHARS_MAX = 80
"""Characters that are compared: comparing takes quadratic time."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely means, whatever its case; None if there is none."""
    by_lower = {name.lower(): name for name in known}
    beginning = word.lower()[:COMPARED_CHARS_MAX]
    close = difflib.get_close_matches(beginning, by_lower, 1, LIKENESS_MIN)
    return by_lower[close[0]] if close else None
