"""Incremental sort: sorts very many records for one query, in steps.

Sorting a million records by a few fields takes a second, and the answer is as of one moment. So the
matches of a query are sorted in steps, while changes are noted. An unchanged record neither enters
the answer nor leaves it, and keeps its order relative to all other unchanged ones. The answering
step takes changed records out, and inserts those that match now by binary search.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.indexes.sorting import Moved, picked, sorting
from sow.store.columns import Mask, Slots

RANKED_AT_ONCE = 65_536
"""Records whose ranks one step looks up, in a millisecond."""

Ranks = NDArray[np.float64]
Ranked = Callable[[Slots], Ranks]
"""Numbers that sort as the values of these slots do; any number for slots changed since."""
Ranking = Callable[[], Ranked]
"""The numbers as of now."""


class IncrementalSort:
    """The records in `slots`, which are in order of first publication, sorted by `rankings`.

    Each ranking is called once, and its result for some slots in each step.
    """

    def __init__(self, slots: Slots, rankings: Sequence[Ranking]) -> None:
        self._slots = slots
        self._changed = Moved(int(slots.max(initial=-1)) + 1)
        self._sorting: Task[Slots] | None = self._sorted(rankings)

    def _sorted(self, rankings: Sequence[Ranking]) -> Task[Slots]:
        keys: list[Ranks] = []
        for ranked in [ranking() for ranking in rankings]:
            keys.append(np.empty(len(self._slots)))
            for start in range(0, len(self._slots), RANKED_AT_ONCE):
                some = slice(start, start + RANKED_AT_ONCE)
                keys[-1][some] = ranked(self._slots[some])
                yield
        by = [lambda rows, key=key: key[rows] for key in keys]
        order = yield from sorting(np.arange(len(self._slots)), by)
        return (yield from picked(self._slots, order))

    @property
    def dirty_count(self) -> int:
        """How many records are not sorted yet: all, until they are."""
        return 0 if self._sorting is None else len(self._slots)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._changed.add(np.unique(np.array(slots, np.int64)))

    def refresh(self, limit: int | None = None) -> int:
        """Run a step, or all when `limit` is None; returns how many records that counts for."""
        done = 0
        while self._sorting is not None and (limit is None or not done):
            try:
                next(self._sorting)
            except StopIteration as over:
                self._slots, self._sorting = over.value, None
            done += limit or 1
        return done

    def of(self, found: Slots, rankings: Sequence[Ranking]) -> Slots:
        """The current matches, in order of first publication, sorted by `rankings` as of now."""
        if not self._changed.count:
            return self._slots
        stand = self._slots[~self._changed.among(self._slots)]
        come = found[self._changed.among(found)]
        if not len(come):
            return stand
        by = [ranking() for ranking in rankings]
        ranks = [ranked(come) for ranked in by]
        order = np.lexsort(ranks[::-1])
        come, ranks = come[order], [of_term[order] for of_term in ranks]
        return np.insert(stand, _places(stand, by, ranks), come)


def _places(stand: Slots, by: Sequence[Ranked], ranks: Sequence[Ranks]) -> Slots:
    """Where records of these `ranks` belong among those that `stand` in order."""
    low = np.zeros(len(ranks[0]), np.int64)
    high = np.full(len(low), len(stand))
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        after = _follow(stand[middle], by, [of_term[open_] for of_term in ranks])
        low[open_[after]] = middle[after] + 1
        high[open_[~after]] = middle[~after]
    return low


def _follow(slots: Slots, by: Sequence[Ranked], ranks: Sequence[Ranks]) -> Mask:
    """Which of the records of these `ranks` come after the one in the slot beside them."""
    after = np.zeros(len(slots), np.bool_)
    equal = np.arange(len(slots))
    for ranked, of_term in zip(by, ranks, strict=True):
        theirs, ours = ranked(slots[equal]), of_term[equal]
        after[equal[ours > theirs]] = True
        equal = equal[ours == theirs]
        if not len(equal):
            break
    return after
