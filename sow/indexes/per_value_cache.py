"""Per-value cache: which texts of a column pass a test, each text evaluated once.

A test such as LIKE is evaluated for each distinct text instead of each record, and its outcome is
cached, a byte a text. The first time that may be a million texts, so it works in steps, of as many
characters as the test has time for; texts that come later are evaluated when needed. What a test is
does not matter here.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

CHARS_AT_ONCE = 256 * 1024
"""Characters that a test of cost 1 reads in one step: at worst some 5 to 10 ns each."""

Mask = NDArray[np.bool_]
Judge = Callable[[list[str]], list[bool]]


class PerValueCache:
    """The results of `judge` for the texts of `texts_of`: a list that grows at its end, or another
    list. `cost` is how many times a character is read (`Filter.search_cost`)."""

    def __init__(self, texts_of: Callable[[], list[str]], judge: Judge, cost: int = 1) -> None:
        self._texts_of = texts_of
        self._judge = judge
        self._chars_at_once = CHARS_AT_ONCE // max(1, cost)
        self._texts = texts_of()
        self._passing = bytearray()
        self._mask = np.zeros(0, np.bool_)

    def _left(self) -> int:
        texts = self._texts_of()
        if texts is not self._texts:
            self._texts, self._passing = texts, bytearray()
        return len(texts) - len(self._passing)

    @property
    def dirty_count(self) -> int:
        """How many texts are not evaluated yet."""
        return self._left()

    def touch(self, slots: Sequence[int]) -> None:
        """Nothing: the column maintains the texts."""

    def refresh(self, limit: int | None = None) -> int:
        """Evaluate up to `limit` texts, fewer where they are long, or all; returns how many."""
        left = self._left()
        count = left if limit is None else self._within(min(left, limit))
        start = len(self._passing)
        self._passing += bytes(self._judge(self._texts[start : start + count])) if count else b""
        return count

    def _within(self, most: int) -> int:
        """How many of the next texts have no more characters than one step may read."""
        start, chars = len(self._passing), 0
        for at in range(start, start + most):
            chars += len(self._texts[at])
            if chars > self._chars_at_once:
                return max(1, at - start)
        return most

    def of_all(self) -> Mask:
        """By code, which texts pass; evaluates those that were not yet."""
        if self.refresh() or len(self._mask) != len(self._passing):
            self._mask = np.array(self._passing, np.bool_)
        return self._mask
