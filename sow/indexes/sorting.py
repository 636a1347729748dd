"""Sorting in steps: rows by their keys, the texts of a column, and the numbers of one.

numpy sorts a million rows in a tenth of a second, by ten keys in a second, and cannot be
interrupted. So many rows are first partitioned by some of their keys, sampled at even distances:
those between two of these can be sorted separately, and those equal to one need only their further
keys. Few rows are sorted at once. Rows equal in all keys keep their order. The result is also
picked in steps (`picked`): in random order, that takes as long.

`TextOrder` has numbers that sort as the different texts of a column do. A column has each different
text once, by its code. A million of them are sorted in steps; a later text gets a number between
those of its neighbours, until there are many, and all are sorted again. Texts are never removed: a
column that drops unused texts starts a new order.

`SortedNumbers` has the records of a memo column in the order of their numbers. With them a range is
two binary searches, and the largest are at one end. Kept for columns that queries use for ranges or
orders, beside the column, which reports which of its numbers have changed: a record whose number
has *moved* is examined separately, until there are many. Then a new order is merged, in steps, from
the old one and from what has moved. A new order is empty, with all records moved.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import SharedTask, Task
from sow.store.columns import Mask, Slots

ROWS_AT_ONCE = 16_384
"""Rows that one step sorts by one key, in a millisecond; by more keys, fewer."""
ROWS_AT_ONCE_MIN = 1_024
"""However many keys: the fixed cost of a step is that of about as many rows."""
BOUNDS_MAX = 128
"""Keys that bound the partitions: those of a million rows are then sorted at once."""
SAMPLES = 16
"""Sampled keys for each bound, so that no partition is much larger than the others."""

PICKED_AT_ONCE = 65_536
"""Places of a column that one step picks, in random order: half a millisecond."""

Rows = NDArray[np.int64]
Items = TypeVar("Items", bound=np.generic)
Keys = Callable[[Rows], NDArray[np.float64]]
"""The keys of some rows, ascending; no NaN."""


def sorting(rows: Rows, keys: Sequence[Keys]) -> Task[Rows]:
    """The rows in the order of the first of `keys`, equal ones in that of the next, and so on.

    Keys of rows that change meanwhile must be those of one moment, or these rows come anywhere; the
    others are in order among themselves.
    """
    at_once = max(ROWS_AT_ONCE // (len(keys) or 1), ROWS_AT_ONCE_MIN)
    if len(rows) <= at_once or not keys:
        yield
        return _sorted(rows, keys)
    first = keys[0]
    count = min(2 * len(rows) // at_once, BOUNDS_MAX)
    sample = np.sort(first(rows[:: max(1, len(rows) // (count * SAMPLES))]))
    apart = max(1, len(sample) // count)
    bounds = np.unique(sample[apart // 2 :: apart])
    parts: list[list[Rows]] = [[] for _ in range(2 * len(bounds) + 1)]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        _partition(rows[start : start + ROWS_AT_ONCE], first, bounds, parts)
        yield
    done: list[Rows] = []
    for place, pieces in enumerate(parts):
        if pieces:
            part = np.concatenate(pieces)
            # Every other partition has the rows equal to a bound.
            further = keys[1:] if place % 2 else keys
            done.append((yield from sorting(part, further)) if further else part)
    yield
    return np.concatenate(done)


def picked(column: NDArray[Items], rows: Rows) -> Task[NDArray[Items]]:
    """``column[rows]``; a place that changes meanwhile may be picked before or after it does."""
    found = np.empty(len(rows), column.dtype)
    for start in range(0, len(rows), PICKED_AT_ONCE):
        some = slice(start, start + PICKED_AT_ONCE)
        found[some] = column[rows[some]]
        yield
    return found


def _sorted(rows: Rows, keys: Sequence[Keys]) -> Rows:
    if not keys:
        return rows
    ordered: Rows = rows[np.lexsort([key(rows) for key in reversed(keys)])]
    return ordered


def _partition(rows: Rows, key: Keys, bounds: NDArray[np.float64], parts: list[list[Rows]]) -> None:
    """Add rows to their partitions, in their order."""
    keys = key(rows)
    place = np.searchsorted(bounds, keys, "left") + np.searchsorted(bounds, keys, "right")
    # Two bytes are sorted by counting.
    rows = rows[np.argsort(place.astype(np.uint16), kind="stable")]
    ends = np.cumsum(np.bincount(place, minlength=len(parts)))
    for at in np.unique(place).tolist():
        parts[at].append(rows[ends[at - 1] if at else 0 : ends[at]])


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
        self._sorting: SharedTask[list[int]] | None = None

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
                self._sorting = SharedTask(_sorting(self._texts))
            self._sorting.step()
            if self._sorting.is_over:
                self._order, self._sorting = self._sorting.result(), None
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

Order = NDArray[np.int32]
"""Slots, in half the space."""
Numbers = NDArray[np.float64]


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
        start = ascending.searchsorted(self.low, "right" if self.without_low else "left")
        stop = ascending.searchsorted(self.high, "left" if self.without_high else "right")
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
        if len(self._slots) != 1:
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
        if self._is_whole:
            return found
        found = found[self._stand(found)]
        apart = self._apart()
        return np.concatenate([found, apart[interval.holds(self._numbers[apart])]])

    def first(self, count: int, descending: bool) -> Slots | None:
        """Slots among which are those of the first `count` numbers; None if there are fewer.

        All slots of the same number are among them, or none.
        """
        if self._is_whole:
            return self._first_of_all(count, descending)
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

    @property
    def _is_whole(self) -> bool:
        """Nothing has moved: every number stands in its place."""
        return not (self._moved.count or self._being_merged.count)

    def _first_of_all(self, count: int, descending: bool) -> Slots | None:
        """`first` where all stand in their places, and those of the same number side by side."""
        ascending, size = self._ascending, len(self._ascending)
        if size < count:
            return None
        self.merges = 0
        if descending:
            start, stop = int(ascending.searchsorted(ascending[size - count])), size
        else:
            start, stop = 0, int(ascending.searchsorted(ascending[count - 1], "right"))
        return self._order[start:stop].astype(np.int64)

    def _stand(self, slots: Slots | Order) -> Mask:
        """Which of the slots still have their place in the order."""
        mask: Mask = ~self._moved.among(slots)
        return mask & ~self._being_merged.among(slots) if self._being_merged.count else mask

    def _apart(self) -> Slots:
        """The slots that are examined separately, each once."""
        if not self._being_merged.count:
            return self._moved.slots()
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
