"""Places of access terms: what is held for values, ranges and patterns of one field.

A place has a *key*: a value, a pair of bounds, a pattern. A column of values leads to the places
whose terms may be true of them, by the rules of comparison (`sow.expressions.compare`): a number
equals the texts that spell it, so both are one key; text that spells no number ranks above all
numbers; an array stands for its elements, and in ranges for all from its lowest to its highest.
Knows nothing of what is held.
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
"""Where text that spells no number stands among numbers."""


class TermBuckets(ABC, Generic[Held]):
    """What is held for the places of one kind of term, by their keys."""

    def __init__(self) -> None:
        self.held: dict[Any, Held] = {}

    def hold(self, key: Any, held: Held) -> None:
        """Hold something in a place that holds nothing."""
        self.held[key] = held

    def release(self, key: Any) -> None:
        """Hold nothing there any more."""
        del self.held[key]

    @abstractmethod
    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What some values of a column, by their places in it, lead to: all whose term is true of
        them, and maybe others."""

    def check(self) -> None:
        """Assert that what is held can be found."""


class ValueBuckets(TermBuckets[Held]):
    """Keys are values, numbers instead of the texts that spell them."""

    def __init__(self) -> None:
        super().__init__()
        self._others = 0
        """How many keys are no texts: without one, what a text spells leads nowhere."""

    def hold(self, key: Any, held: Held) -> None:
        """Hold something for a value that holds nothing."""
        super().hold(key, held)
        self._others += not isinstance(key, str)

    def release(self, key: Any) -> None:
        """Hold nothing for a value any more."""
        super().release(key)
        self._others -= not isinstance(key, str)

    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is held for the same values."""
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
        """Assert that it is known whether there are keys that a text may spell."""
        assert self._others == sum(not isinstance(key, str) for key in self.held)


class RangeBuckets(TermBuckets[Held]):
    """Keys are pairs of bounds, of which None is no bound."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: Intervals[Held] = Intervals()
        """Between numbers, in which text stands as what it spells, or above all."""
        self._texts: Intervals[Held] = Intervals()
        """Between texts, for text."""
        self._spelt: Intervals[Held] = Intervals()
        """The same for numbers: between what the texts spell."""

    def hold(self, key: Any, held: Held) -> None:
        """Hold something for a range that holds nothing."""
        super().hold(key, held)
        for intervals, low, high in self._intervals(key):
            intervals.add(key, low, high, held)

    def release(self, key: Any) -> None:
        """Hold nothing for a range any more."""
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
        """What is held for ranges that the values lie in."""
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
            # An element of each kind may keep to one of two bounds.
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
        """Those that are looked for together in short texts alone, and else may all be found."""

    def _sets_of(self, pattern: str) -> PatternSets:
        return self._restless if is_restless(pattern) else self._calm

    def hold(self, key: Any, held: Held) -> None:
        """Hold something for a pattern that holds nothing."""
        super().hold(key, held)
        self._sets_of(key).add(key)

    def release(self, key: Any) -> None:
        """Hold nothing for a pattern any more."""
        super().release(key)
        self._sets_of(key).remove(key)

    def find(self, column: Column, at: Sequence[int]) -> Iterator[tuple[int, Held]]:
        """What is held for patterns that are found in the values."""
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
        """Assert that every pattern is looked for."""
        for patterns in (self._calm, self._restless):
            patterns.check()
            assert all(self._sets_of(pattern) is patterns for pattern in patterns)
        assert len(self._calm) + len(self._restless) == len(self.held)


def kind_of(term: AccessTerm) -> type[TermBuckets[Any]]:
    """Where a term is filed."""
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
    """Where a text stands among numbers."""
    number = as_number(text)
    return ABOVE_NUMBERS if number is None else number
