"""Term buckets: what is filed under values, ranges and patterns of one field.

A place has a *key*: a value, a pair of bounds, a pattern. A column of values leads to the places
whose terms may match them, by the rules of comparison (`sow.expressions.values`): a number equals
the texts that spell it, so both have one key; text that spells no number ranks above all numbers;
an array stands for its elements, and in ranges for all from its lowest to its highest. What is
filed is opaque.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

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
from sow.streaming.intervals import Intervals

Held = TypeVar("Held")
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
