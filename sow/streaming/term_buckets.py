"""Term buckets: what is filed under values, ranges and patterns of one field.

A place has a *key*: a value, a pair of bounds, a pattern. A column of values leads to the places
whose terms may match them, by the rules of comparison (`sow.expressions.values`): a number equals
the texts that spell it, so both have one key; text that spells no number ranks above all numbers;
an array stands for its elements, and in ranges for all from its lowest to its highest. What is
filed is opaque.

Ranges are found by `Intervals`. All bounds are in one sorted list, and an interval holds the
positions of its two in columns of numbers. The position of a value among the bounds is a binary
search; the intervals that begin before it and end after it are one comparison of columns, some
microseconds for thousands of intervals. Adding one shifts the positions behind it, so nothing is
ever rebuilt. Values between the same two bounds lie in the same intervals, which are cached if they
are few.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from sow.core.paths import Value
from sow.expressions import (
    RESTLESS_CHARS_MAX,
    AccessTerm,
    PatternSets,
    PatternTerm,
    RangeTerm,
    ValueTerm,
    as_number,
    as_text,
    elements,
    is_restless,
)
from sow.messages.base import Column

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


Number = int | float
ABOVE_NUMBERS = float("inf")
"""The rank among numbers of text that spells none."""


class TermBuckets(ABC, Generic[Held]):
    """What is filed in the places of one kind of term, by their keys."""

    def __init__(self) -> None:
        self.held: dict[Any, Held] = {}

    def hold(self, key: Any, held: Held) -> None:
        """File something in an empty place."""
        self.held[key] = held

    def release(self, key: Any) -> None:
        """Empty a place."""
        del self.held[key]

    @abstractmethod
    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is filed for some values of a column, by their places in it: everything whose term
        matches, and maybe more."""

    def check(self) -> None:
        """Assert that what is filed can be found."""


class ValueBuckets(TermBuckets[Held]):
    """Keys are values, numbers instead of the texts that spell them."""

    def __init__(self) -> None:
        super().__init__()
        self._others = 0
        """How many keys are no texts: without one, the number that a text spells has no place."""

    def hold(self, key: Any, held: Held) -> None:
        """File something under a value."""
        super().hold(key, held)
        self._others += not isinstance(key, str)

    def release(self, key: Any) -> None:
        """Empty the place of a value."""
        super().release(key)
        self._others -= not isinstance(key, str)

    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is filed under the same values."""
        get = self.held.get
        for number in at:
            value = column[number]
            if value.__class__ is list:
                for one in elements(value):
                    held = get(value_key(one))
                    if held is not None:
                        yield number, held
            elif value is not None:
                held = get(value)
                if held is None and self._others and isinstance(value, str):
                    held = get(value_key(value))
                if held is not None:
                    yield number, held

    def check(self) -> None:
        """Assert that keys which a text may spell are counted."""
        assert self._others == sum(not isinstance(key, str) for key in self.held)


class RangeBuckets(TermBuckets[Held]):
    """Keys are pairs of bounds; None is no bound."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: Intervals[Held] = Intervals()
        """Between numbers; text ranks as what it spells, or above all."""
        self._texts: Intervals[Held] = Intervals()
        """Between texts, for text."""
        self._spelt: Intervals[Held] = Intervals()
        """The same for numbers: between what the texts spell."""

    def hold(self, key: Any, held: Held) -> None:
        """File something under a range."""
        super().hold(key, held)
        for intervals, low, high in self._intervals(key):
            intervals.add(key, low, high, held)

    def release(self, key: Any) -> None:
        """Empty the place of a range."""
        super().release(key)
        for intervals, low, high in self._intervals(key):
            intervals.remove(key, low, high)

    def _intervals(self, key: Any) -> list[tuple[Intervals[Held], Any, Any]]:
        low, high = key
        if not isinstance(high if low is None else low, str):
            return [(self._numbers, low, high)]
        low_spelt, high_spelt = (None if bound is None else _rank(bound) for bound in key)
        return [(self._texts, low, high), (self._spelt, low_spelt, high_spelt)]

    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is filed under ranges that contain the values."""
        for number in at:
            value = column[number]
            if value.__class__ is list:
                found = self._of_array(value)
            elif value.__class__ is str:
                found = self._of_text(value)
            elif value is None:
                continue
            else:
                found = self._of_number(value)
            for held in found:
                yield number, held

    def _of_number(self, value: Any) -> list[Held]:
        if value != value:
            return []
        return self._numbers.touching(value, value) + self._spelt.touching(value, value)

    def _of_text(self, text: Any) -> list[Held]:
        if not text:
            return []
        rank = _rank(text) if self._numbers else 0
        return self._numbers.touching(rank, rank) + self._texts.touching(text, text)

    def _of_array(self, values: Any) -> list[Held]:
        texts = [value for value in values if isinstance(value, str) and value]
        numbers = [value for value in values if isinstance(value, int | float) and value == value]
        ranks = numbers + list(map(_rank, texts))
        if not ranks:
            return []
        found = self._numbers.touching(min(ranks), max(ranks))
        if numbers and texts:
            # An element of each kind may satisfy one of two bounds.
            return found + self._texts.all()
        if texts:
            return found + self._texts.touching(min(texts), max(texts))
        return found + self._spelt.touching(min(numbers), max(numbers))

    def check(self) -> None:
        """Assert that every range is among the intervals, and no others are."""
        for intervals in (self._numbers, self._texts, self._spelt):
            intervals.check()
        assert len(self._texts) == len(self._spelt)
        assert len(self._numbers) + len(self._texts) == len(self.held)


class PatternBuckets(TermBuckets[Held]):
    """Keys are regular expressions."""

    def __init__(self) -> None:
        super().__init__()
        self._calm = PatternSets()
        self._restless = PatternSets()
        """Those that are searched for together only in short texts; in others all of them match."""

    def _sets_of(self, pattern: str) -> PatternSets:
        return self._restless if is_restless(pattern) else self._calm

    def hold(self, key: Any, held: Held) -> None:
        """File something under a pattern."""
        super().hold(key, held)
        self._sets_of(key).add(key)

    def release(self, key: Any) -> None:
        """Empty the place of a pattern."""
        super().release(key)
        self._sets_of(key).remove(key)

    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is filed under patterns that are found in the values."""
        held = self.held
        for number in at:
            for value in elements(column[number]):
                if value is not None and value != "":
                    for pattern in self._found_in(as_text(value)):
                        yield number, held[pattern]

    def _found_in(self, text: str) -> Iterable[str]:
        if not self._restless:
            return self._calm.found_in(text)
        short = len(text) <= RESTLESS_CHARS_MAX
        restless = self._restless.found_in(text) if short else self._restless
        return chain(self._calm.found_in(text), restless) if self._calm else restless

    def check(self) -> None:
        """Assert that every pattern is searched for."""
        for patterns in (self._calm, self._restless):
            patterns.check()
            assert all(self._sets_of(pattern) is patterns for pattern in patterns)
        assert len(self._calm) + len(self._restless) == len(self.held)


def kind_of(term: AccessTerm) -> type[TermBuckets[Any]]:
    """The kind of buckets that a term is filed in."""
    match term:
        case ValueTerm():
            return ValueBuckets
        case RangeTerm():
            return RangeBuckets
    return PatternBuckets


def keys_of(term: AccessTerm) -> list[Hashable]:
    """The keys of a term's places, each once."""
    match term:
        case ValueTerm(_, values):
            return list(dict.fromkeys(map(value_key, values)))
        case RangeTerm(_, low, high):
            return [(low, high)]
        case PatternTerm(_, pattern):
            return [pattern]


def value_key(value: Value) -> Hashable:
    """The key of everything that may equal a value."""
    if isinstance(value, str):
        number = as_number(value)
        return value if number is None else number
    return value  # type: ignore[return-value]


def _rank(text: str) -> Number:
    """The rank of a text among numbers."""
    number = as_number(text)
    return ABOVE_NUMBERS if number is None else number
