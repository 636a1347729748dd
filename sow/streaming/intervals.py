"""Intervals: which of many ranges a value lies in.

All bounds are in one sorted list, and an interval holds the positions of its two in columns of
numbers. The position of a value among the bounds is a binary search; the intervals that begin
before it and end after it are one comparison of columns, some microseconds for thousands of
intervals. Adding one shifts the positions behind it, so nothing is ever rebuilt. Values between the
same two bounds lie in the same intervals, which are cached if they are few.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

import numpy as np

Held = TypeVar("Held")

NO_LOW, NO_HIGH = -1, 2**40
"""Places before all bounds, and behind all."""
KNOWN_MAX = 16
"""Intervals around a value that are cached until one comes or goes: the cache is a small multiple
of the bounds, whose intervals leave two positions each for a value."""


class Intervals(Generic[Held]):
    """What is held for closed intervals over one order: of numbers but NaN, or of texts."""

    def __init__(self) -> None:
        self._bounds: list[Any] = []
        self._uses: Counter[Any] = Counter()
        self._lows = np.empty(0, np.int64)
        self._highs = np.empty(0, np.int64)
        self._held: list[Held | None] = []
        self._free: list[int] = []
        self._numbers: dict[Hashable, int] = {}
        """Where the columns have what is held under a key."""
        self._known: dict[tuple[int, int], list[Held]] = {}
        """What was found for values between the same bounds; read only."""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, key: Hashable, low: Any, high: Any, held: Held) -> None:
        """Hold something for the interval from `low` to `high`, both included; None is no bound.

        `key` is unique and identifies it for `remove`.
        """
        self._known = {}
        for bound in (low, high):
            if bound is not None:
                self._use(bound)
        if not self._free:
            self._grow()
        number = self._numbers[key] = self._free.pop()
        self._lows[number] = NO_LOW if low is None else bisect_left(self._bounds, low)
        self._highs[number] = NO_HIGH if high is None else bisect_left(self._bounds, high)
        self._held[number] = held

    def remove(self, key: Hashable, low: Any, high: Any) -> None:
        """Undo `add`."""
        self._known = {}
        self._empty(self._numbers.pop(key))
        for bound in (low, high):
            if bound is not None:
                self._disuse(bound)

    def touching(self, low: Any, high: Any) -> list[Held]:
        """What is held for intervals that have a value from `low` to `high`, both included.

        For an inverted interval, from its higher to its lower bound, it is enough that it begins up
        to `high` and ends from `low` on.
        """
        if not self._numbers:
            return []
        between = bisect_right(self._bounds, high), bisect_left(self._bounds, low)
        found = self._known.get(between)
        if found is None:
            found = self._found(*between)
            if low == high and len(found) <= KNOWN_MAX:
                self._known[between] = found
        return found

    def _found(self, begin: int, end: int) -> list[Held]:
        """What is held for intervals that begin before one place and end at another or later."""
        numbers = ((self._lows < begin) & (self._highs >= end)).nonzero()[0].tolist()
        return [self._held[number] for number in numbers]  # type: ignore[misc]

    def all(self) -> list[Held]:
        """All that is held."""
        return [held for held in self._held if held is not None]

    def _use(self, bound: Any) -> None:
        if not self._uses[bound]:
            place = bisect_left(self._bounds, bound)
            insort(self._bounds, bound)
            self._lows += self._lows >= place
            self._highs += self._highs >= place
        self._uses[bound] += 1

    def _disuse(self, bound: Any) -> None:
        self._uses[bound] -= 1
        if not self._uses[bound]:
            del self._uses[bound]
            place = bisect_left(self._bounds, bound)
            del self._bounds[place]
            self._lows -= self._lows > place
            self._highs -= self._highs > place

    def _grow(self) -> None:
        size = len(self._held)
        more = max(8, size)
        self._lows = np.append(self._lows, np.zeros(more, np.int64))
        self._highs = np.append(self._highs, np.zeros(more, np.int64))
        self._held += [None] * more
        for number in range(size, size + more):
            self._empty(number)

    def _empty(self, number: int) -> None:
        """Make a place match nothing."""
        self._lows[number], self._highs[number] = NO_HIGH, NO_LOW
        self._held[number] = None
        self._free.append(number)

    def check(self) -> None:
        """Assert that bounds are sorted and used, and that empty places match nothing."""
        assert all(a < b for a, b in zip(self._bounds, self._bounds[1:], strict=False))
        assert sorted(self._uses) == self._bounds
        assert all(count > 0 for count in self._uses.values())
        count = len(self._bounds)
        for number, held in enumerate(self._held):
            low, high = int(self._lows[number]), int(self._highs[number])
            if held is None:
                assert (low >= NO_HIGH // 2, high) == (True, NO_LOW)
            else:
                assert low == NO_LOW or 0 <= low < count
                assert high >= NO_HIGH // 2 or 0 <= high < count
