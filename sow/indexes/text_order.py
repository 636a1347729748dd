"""Text order: numbers that sort as the different texts of a column do.

A column has each different text once, by its code. A million of them are sorted in steps; a later
text gets a number between those of its neighbours, until there are many, and all are sorted again.
Texts are never removed: a column that drops unused texts starts a new order.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task

TEXTS_AT_ONCE = 2_048
"""Texts that are sorted in one step, in a millisecond or two."""
LATER_MAX = 4_096
"""Later texts, with a number between two others: finding their places takes some 15 ms."""

Ranks = NDArray[np.float64]


class TextOrder:
    """The order of `texts`, a list without doubles that grows at its end."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._order: list[int] = []
        self._ranks = np.full(1, -np.inf)
        self._sorting: Task[list[int]] | None = None

    @property
    def dirty_count(self) -> int:
        """How many texts have to be sorted before `ranks`; 0 if `ranks` itself does it."""
        later = len(self._texts) - len(self._order)
        return len(self._texts) if later > LATER_MAX else 0

    def touch(self, slots: Sequence[int]) -> None:
        """Nothing: the column maintains the texts."""

    def refresh(self, limit: int | None = None) -> int:
        """Take a step, or all when `limit` is None; returns how many texts that counts for."""
        done = 0
        while self.dirty_count and (limit is None or not done):
            if self._sorting is None:
                self._sorting = _sorting(self._texts)
            try:
                next(self._sorting)
            except StopIteration as over:
                self._order, self._sorting = over.value, None
                self._ranks = np.full(1, -np.inf)
            done += limit or 1
        return done

    def ranks(self) -> Ranks:
        """By code, a number for each text; one more place, for the code -1 of no text."""
        self.refresh()
        if len(self._ranks) != len(self._texts) + 1:
            self._ranks = np.full(len(self._texts) + 1, -np.inf)
            self._ranks[self._order] = np.arange(len(self._order))
            self._rank_later()
        return self._ranks

    def _rank_later(self) -> None:
        """Number the texts that came after the others were sorted."""
        text_of = self._texts.__getitem__
        known = np.zeros(len(self._texts), np.bool_)
        known[self._order] = True
        later = sorted(np.flatnonzero(~known).tolist(), key=text_of)
        places = [bisect_left(self._order, text_of(code), key=text_of) for code in later]
        # Those of one gap stand in it at even distances.
        gaps, firsts, counts = np.unique(places, return_index=True, return_counts=True)
        for gap, first, count in zip(gaps.tolist(), firsts.tolist(), counts.tolist(), strict=True):
            between = (np.arange(count) + 1) / (count + 1)
            self._ranks[later[first : first + count]] = gap - 1 + between


def _sorting(texts: Sequence[str]) -> Task[list[int]]:
    """The codes of the texts there are now, in their order."""
    count, text_of = len(texts), texts.__getitem__
    bounds = sorted(texts[at] for at in range(0, count, TEXTS_AT_ONCE // 2))
    parts: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    yield
    for start in range(0, count, TEXTS_AT_ONCE):
        for code in range(start, min(start + TEXTS_AT_ONCE, count)):
            parts[bisect_left(bounds, texts[code])].append(code)
        yield
    order: list[int] = []
    for part in parts:
        part.sort(key=text_of)
        order += part
        if len(part) * 4 > TEXTS_AT_ONCE:
            yield
    return order
