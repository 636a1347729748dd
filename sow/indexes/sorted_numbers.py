"""Sorted numbers: the records of a memo column in the order of their numbers.

With them a range is two binary searches, and the largest are at one end. Kept for columns that
queries use for ranges or orders, beside the column, which reports which of its numbers have
changed: a record whose number has *moved* is examined separately, until there are many. Then a new
order is merged, in steps, from the old one and from what has moved. A new order is empty, with all
records moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.indexes.sorting import picked, sorting

MERGE_ROWS = 32_768
"""Records of the old order that one step merges."""
MOVED_PART = 64
"""One record in so many: examining as many of a million, one by one, takes half a millisecond, and
a merge as much as thirty such queries."""
MOVED_SPARE = 1024
"""A small column need not be merged for every few numbers that move."""
APART_PART = 8
"""One record in so many: beyond them a query does better to wait for the merge."""
MERGES_UNUSED_MAX = 64
"""After so many merges without use, of as many records as there are, an order is dropped."""
STEP_NOTES = 1000
"""Notes that one step counts for."""

Slots = NDArray[np.int64]
Order = NDArray[np.int32]
"""Slots, in half the space."""
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers from `low` to `high`, these themselves included unless they are left out."""

    low: float = -np.inf
    high: float = np.inf
    without_low: bool = False
    without_high: bool = False

    def __and__(self, other: "Interval") -> "Interval":
        low, without_low = max((self.low, self.without_low), (other.low, other.without_low))
        high, with_high = min(
            (self.high, not self.without_high), (other.high, not other.without_high)
        )
        return Interval(low, high, without_low, not with_high)

    def holds(self, numbers: Numbers) -> Mask:
        """Which of the numbers lie in it; NaN does not."""
        above = numbers > self.low if self.without_low else numbers >= self.low
        below = numbers < self.high if self.without_high else numbers <= self.high
        mask: Mask = above & below
        return mask

    def span(self, ascending: Numbers) -> slice:
        """Where those that lie in it stand."""
        start = np.searchsorted(ascending, self.low, "right" if self.without_low else "left")
        stop = np.searchsorted(ascending, self.high, "left" if self.without_high else "right")
        return slice(int(start), max(int(start), int(stop)))


class Moved:
    """Slots whose place in an order is stale, each once."""

    def __init__(self, size: int) -> None:
        self._is_moved = np.zeros(size, np.bool_)
        self._slots: list[Slots] = []
        self.count: int = 0

    def add(self, slots: Slots) -> None:
        """These have moved; each is named once."""
        more = int(slots.max(initial=-1)) + 1 - len(self._is_moved)
        if more > 0:
            more = max(more, len(self._is_moved) // 2)
            self._is_moved = np.concatenate([self._is_moved, np.zeros(more, np.bool_)])
        if self.count:
            slots = slots[~self._is_moved[slots]]
        self._is_moved[slots] = True
        self._slots.append(slots)
        self.count += len(slots)

    def slots(self) -> Slots:
        """All of them."""
        self._slots = [np.concatenate([np.zeros(0, np.int64), *self._slots])]
        return self._slots[0]

    def among(self, slots: Slots | Order) -> Mask:
        """Which of the slots have moved."""
        known = slots < len(self._is_moved)
        if known.all():
            mask: Mask = self._is_moved[slots]
            return mask
        known[known] = self._is_moved[slots[known]]
        return known


class SortedNumbers:
    """The order of `numbers`, which are by slot, NaN where there is none."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._order = np.zeros(0, np.int32)
        self._ascending = np.zeros(0, np.float64)
        self._moved = Moved(len(numbers))
        self._moved.add(np.flatnonzero(~np.isnan(numbers)))
        self._being_merged = Moved(0)
        """Those that have moved before the current merge."""
        self._merge: Task[None] | None = None
        self.merges = 0
        """Merges since the last use."""

    def moved(self, slots: Slots, numbers: Numbers) -> None:
        """These slots have other numbers than before; `numbers` are all."""
        self._numbers = numbers
        self._moved.add(slots)

    # Upkeep.

    @property
    def dirty_count(self) -> int:
        """How many moved ones have to be merged; 0 while they are few."""
        count: int = self._moved.count + self._being_merged.count
        return 0 if self._merge is None and count <= self._moved_max else max(1, count)

    @property
    def serves(self) -> bool:
        """Whether so few have moved that queries may use it as it is."""
        apart = self._moved.count + self._being_merged.count
        return apart <= len(self._order) // APART_PART + MOVED_SPARE

    @property
    def is_unused(self) -> bool:
        """Whether it was not used for long."""
        return self.merges > MERGES_UNUSED_MAX

    @property
    def _moved_max(self) -> int:
        return len(self._order) // MOVED_PART + MOVED_SPARE

    def touch(self, slots: Sequence[int]) -> None:
        """Nothing: the column reports what has moved when it has read it."""

    def refresh(self, limit: int | None = None) -> int:
        """Merge what has moved, for as long as `limit` notes take; returns how many it counts."""
        done = 0
        while self.dirty_count and (limit is None or done < limit):
            if self._merge is None:
                self._merge = self._merging()
            if next(self._merge, self) is self:
                self._merge = None
            done += STEP_NOTES
        return done

    def _merging(self) -> Task[None]:
        self._being_merged, self._moved = self._moved, Moved(len(self._numbers))
        moved = self._being_merged
        slots = moved.slots()
        # A number that changes meanwhile has moved since.
        numbers = yield from picked(self._numbers, slots)
        # Removed numbers are not in the order any more.
        there = np.flatnonzero(~np.isnan(numbers))
        at = yield from sorting(there, [lambda rows: numbers[rows]])
        order = yield from picked(slots.astype(np.int32), at)
        more = order, (yield from picked(numbers, at))
        self._order, self._ascending = yield from merging(
            (self._order, self._ascending), more, moved
        )
        self._being_merged = Moved(0)
        self.merges += 1

    # For queries.

    def estimate(self, interval: Interval) -> int:
        """About how many numbers lie in the interval, or more."""
        span = interval.span(self._ascending)
        inside: int = span.stop - span.start
        return inside + self._moved.count + self._being_merged.count

    def slots(self, interval: Interval) -> Slots:
        """The slots whose numbers lie in the interval, each once, in no particular order."""
        self.merges = 0
        found = self._order[interval.span(self._ascending)].astype(np.int64)
        found = found[self._stand(found)]
        apart = self._apart()
        return np.concatenate([found, apart[interval.holds(self._numbers[apart])]])

    def first(self, count: int, descending: bool) -> Slots | None:
        """Slots among which are those of the first `count` numbers; None if there are fewer.

        All slots of the same number are among them, or none.
        """
        taken = 2 * count
        while True:
            foremost = self._order[-taken:] if descending else self._order[:taken]
            numbers = self._numbers[foremost[self._stand(foremost)]]
            if len(numbers) >= count:
                break
            if taken >= len(self._order):
                return None
            taken *= 2
        if descending:
            return self.slots(Interval(low=float(numbers[-count])))
        return self.slots(Interval(high=float(numbers[count - 1])))

    def _stand(self, slots: Slots | Order) -> Mask:
        """Which of the slots still have their place in the order."""
        mask: Mask = ~self._moved.among(slots)
        return mask & ~self._being_merged.among(slots) if self._being_merged.count else mask

    def _apart(self) -> Slots:
        """The slots that are examined separately, each once."""
        before = self._being_merged.slots()
        return np.concatenate([self._moved.slots(), before[~self._moved.among(before)]])

    def check(self, numbers: Numbers) -> None:
        """Assert that it has each of these numbers, which are all, once, and in order."""
        assert bool(np.all(self._ascending[:-1] <= self._ascending[1:]))
        stand = self._stand(self._order)
        slots = np.concatenate([self._order[stand], self._apart()])
        assert bool(np.all(numbers[self._order[stand]] == self._ascending[stand]))
        slots = slots[~np.isnan(numbers[slots])]
        assert sorted(slots.tolist()) == np.flatnonzero(~np.isnan(numbers)).tolist()


Ordered = tuple[Order, Numbers]
"""Slots in the order of their numbers, and these."""


def merging(old: Ordered, more: Ordered, without: Moved) -> Task[Ordered]:
    """The old order without what has moved, and `more` in its places."""
    orders: list[Order] = []
    numbers: list[Numbers] = []
    done = 0
    if not len(old[0]):
        return more
    for start in range(0, len(old[0]), MERGE_ROWS):
        order, ascending = old[0][start : start + MERGE_ROWS], old[1][start : start + MERGE_ROWS]
        upto = int(np.searchsorted(more[1], ascending[-1], "right"))
        stand = ~without.among(order)
        order, ascending = order[stand], ascending[stand]
        where = np.searchsorted(ascending, more[1][done:upto], "right")
        orders.append(np.insert(order, where, more[0][done:upto]))
        numbers.append(np.insert(ascending, where, more[1][done:upto]))
        done = upto
        yield
    all_in_order = np.concatenate([*orders, more[0][done:]])
    yield
    return all_in_order, np.concatenate([*numbers, more[1][done:]])
