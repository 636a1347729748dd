"""The distinct values of a group: the least, the greatest, their number, and the only one.

Values compare as the operators do (`sow.expressions.values`): numbers by size, true and false as 1
and 0, two texts as texts, a text and a number as numbers if the text spells one, and else the text
is greater. So the rank of a text depends on whether there are numbers: as long as there are both,
texts are also kept by the numbers that they spell. Equal values are one, and its form depends only
on the values that are there:

    1, 2          numbers of one kind        as they are
    1, 2.5, 2.0   of several kinds           whole ones without a fraction
    1, '1'        numbers and texts          the number
    '1', '1.0'    texts alone                two values

NaN is counted separately: it compares with nothing, and makes the least and the greatest NaN. NULLs
do not count, and a list counts by its first value.

A sorted multiset counts values, with their least and greatest. It has a dictionary of each value to
its count, and the two extremes cached as long as they stay. When one is removed, the values are
scanned again. That is quick for few, and rarely needed for many; where it is needed too often they
are put on a heap besides, once: a value that is added is pushed, one that was removed is skipped
when it comes up. Values compare with each other: numbers without NaN, or texts.

`DistinctOrdered` has the distinct texts of a group in the order in which they first came. A text
came when the first of the rows that now have it came. The order is cached until a text is added or
removed, or gets another first row.
"""

from collections.abc import Callable, Sequence
from heapq import heappush
from math import isnan, nan
from typing import Any

from sow.core.containers import LazyHeap
from sow.core.paths import Scalar, Value
from sow.expressions import as_number, as_text

FEW = 64
"""Values that are scanned as quickly as one is pushed on a heap."""
RESCANNED_MAX = 100_000
"""Values scanned before they are put on a heap: some 2 ms of work in all, which a heap of 100,000
takes once."""


class SortedMultiset:
    """How often each value occurs. `counts` is only read from outside."""

    __slots__ = ("_greatest", "_highest", "_is_heaped", "_least", "_lowest", "_rescanned", "counts")

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        self._rescanned = 0
        # None is "not known": it is no value.
        self._least: Any = None
        self._greatest: Any = None
        self._lowest: Heap | None = None
        self._highest: Heap | None = None
        self._is_heaped = False
        """There is one of the two."""

    def add(self, value: Any) -> bool:
        """Add one; whether it is the first of its kind."""
        counts = self.counts
        count = counts.get(value)
        if count is not None:
            counts[value] = count + 1
            return False
        counts[value] = 1
        if len(counts) == 1:
            # From here on both are known: a multiset that only grows is never scanned.
            self._least = self._greatest = value
            return True
        if self._least is not None and value < self._least:
            self._least = value
        if self._greatest is not None and value > self._greatest:
            self._greatest = value
        if self._lowest is not None:
            self._lowest.push(value, counts)
        if self._highest is not None:
            self._highest.push(value, counts)
        return True

    @staticmethod
    def add_each(these: Sequence["SortedMultiset"], values: Sequence[Any]) -> None:
        """Add a value to each of these: mostly without a call for each."""
        for one, value in zip(these, values, strict=True):
            counts = one.counts
            if value in counts or not counts or one._is_heaped:
                one.add(value)
                continue
            counts[value] = 1
            if one._least is not None and value < one._least:
                one._least = value
            if one._greatest is not None and value > one._greatest:
                one._greatest = value

    def remove(self, value: Any) -> bool:
        """Remove one; whether it was the last of its kind."""
        counts = self.counts
        count = counts[value]
        if count > 1:
            counts[value] = count - 1
            return False
        del counts[value]
        if not counts:
            # They have removed values, possibly very many.
            self._lowest = self._highest = None
            self._is_heaped = False
        if value == self._least:
            self._least = None
        if value == self._greatest:
            self._greatest = None
        return True

    @staticmethod
    def replace_each(
        these: Sequence["SortedMultiset"], olds: Sequence[Any], news: Sequence[Any]
    ) -> None:
        """Replace a value of each of these: without a call for each."""
        for one, was, now in zip(these, olds, news, strict=True):
            if was == now:
                continue
            counts = one.counts
            times = counts.pop(was)
            if times > 1 or now in counts or one._is_heaped:
                counts[was] = times
                # The new value first: then a growing maximum never needs a scan.
                one.add(now)
                one.remove(was)
                continue
            counts[now] = 1
            least, greatest = one._least, one._greatest
            if least is not None and not (least < was and least < now):
                one._least = now if now < least else None
            if greatest is not None and not (was < greatest and now < greatest):
                one._greatest = now if now > greatest else None

    def least(self) -> Any:
        """The least value; None if there is none."""
        if self._least is None and self.counts:
            if self._lowest is None and self._looked_through():
                self._lowest = Heap(_itself, self.counts)
                self._is_heaped = True
            heap = self._lowest
            self._least = min(self.counts) if heap is None else heap.top(self.counts)
        return self._least

    def greatest(self) -> Any:
        """The greatest value; None if there is none."""
        if self._greatest is None and self.counts:
            if self._highest is None and self._looked_through():
                self._highest = Heap(_mirrored, self.counts)
                self._is_heaped = True
            heap = self._highest
            self._greatest = max(self.counts) if heap is None else heap.top(self.counts)
        return self._greatest

    def _looked_through(self) -> bool:
        """Whether all values have been scanned too often to do so again."""
        if len(self.counts) <= FEW:
            return False
        self._rescanned += len(self.counts)
        return self._rescanned > RESCANNED_MAX


class Heap:
    """Values, ordered by `turned` of them, with the first on top; removed ones stay until they come
    up."""

    __slots__ = ("_entries", "_turned")

    def __init__(self, turned: Callable[[Any], Any], counts: dict[Any, int]) -> None:
        self._turned = turned
        self._entries: LazyHeap[tuple[Any, Any]] = LazyHeap()
        self._fill(counts)

    def push(self, value: Any, counts: dict[Any, int]) -> None:
        """A value was added."""
        if self._entries.is_stale(len(counts)):
            # Most of them were removed, and did not come up.
            self._fill(counts)
        else:
            heappush(self._entries, (self._turned(value), value))

    def top(self, counts: dict[Any, int]) -> Any:
        """The first of the present values; there is at least one."""
        first = self._entries.first(lambda entry: entry[1] in counts)
        assert first is not None
        return first[1]

    def _fill(self, counts: dict[Any, int]) -> None:
        self._entries.rebuild((self._turned(value), value) for value in counts)


class Mirrored:
    """A text in reverse order."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: "Mirrored") -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mirrored) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def _itself(value: Any) -> Any:
    return value


def _mirrored(value: Any) -> Any:
    return Mirrored(value) if isinstance(value, str) else -value


CONCATENATED_CHARS_MAX = 64 * 1024
"""Characters of the text of a group: it is written whole with every change of one of its values,
and longer ones would block all others. A longer one is NULL."""


class DistinctOrdered:
    """The texts of a group, each with the births of the rows that have it."""

    __slots__ = ("_borns", "_chars", "_order")

    def __init__(self) -> None:
        self._borns: dict[str, SortedMultiset] = {}
        self._chars = 0
        self._order: list[str] | None = None

    def add(self, value: Value, born: int) -> None:
        """A row with this value was added."""
        text = _text(value)
        if text is None:
            return
        borns = self._borns.get(text)
        if borns is None:
            borns = self._borns[text] = SortedMultiset()
            self._chars += len(text)
        elif born > borns.least():
            borns.add(born)
            return
        borns.add(born)
        self._order = None

    def remove(self, value: Value, born: int) -> None:
        """A row that was added with this value was removed."""
        text = _text(value)
        if text is None:
            return
        borns = self._borns[text]
        if born == borns.least():
            self._order = None
        if borns.remove(born) and not borns.counts:
            del self._borns[text]
            self._chars -= len(text)

    def replace(self, was: Value, now: Value, born: int) -> None:
        """The value of a row was replaced."""
        self.add(now, born)
        self.remove(was, born)

    def joined(self, separator: str) -> str | None:
        """All texts, the separator between them; None if there is none, or they are too long."""
        if not self._borns:
            return None
        if self._chars + (len(self._borns) - 1) * len(separator) > CONCATENATED_CHARS_MAX:
            return None
        if self._order is None:
            borns = self._borns
            # Rows of a join may have the same birth.
            self._order = sorted(borns, key=lambda text: (borns[text].least(), text))
        return separator.join(self._order)


def _text(value: Value) -> str | None:
    """A value as text; None if it is NULL."""
    if isinstance(value, list):
        value = value[0] if value and not isinstance(value[0], list) else None
    return None if value is None or value == "" else as_text(value)


_EXACT = 2**53
"""Doubles up to here are written as integers where both kinds are there: larger ones would get many
digits."""


class DistinctValues:
    """The values of a group with their counts."""

    __slots__ = (
        "_booleans", "_doubles", "_nans", "_numbers", "_others", "_spelled", "_texts", "_whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self._numbers = SortedMultiset()
        self._whole = self._doubles = self._booleans = self._nans = 0
        self._others = 0
        """Values that are no doubles, or NaN."""
        self._texts = SortedMultiset()
        self._spelled: SpelledNumbers | None = None

    def add(self, value: Value, _born: int = 0) -> None:
        """A value was added."""
        self._change(value, 1)

    def remove(self, value: Value, _born: int = 0) -> None:
        """A value was removed."""
        self._change(value, -1)

    def replace(self, was: Value, now: Value, _born: int = 0) -> None:
        """A value was replaced."""
        # The new value first: then a growing maximum never needs a scan.
        self._change(now, 1)
        self._change(was, -1)

    @staticmethod
    def add_numbers(these: Sequence["DistinctValues"], values: Sequence[Any]) -> None:
        """A number was added to each of these, all of one kind: integers or doubles."""
        if values[0].__class__ is not float or isnan(sum(values)):
            # A sum with NaN in it is NaN.
            for one, value in zip(these, values, strict=True):
                one._change(value, 1)
            return
        for one in these:
            one._doubles += 1
        SortedMultiset.add_each([one._numbers for one in these], values)

    @staticmethod
    def replace_numbers(
        these: Sequence["DistinctValues"], olds: Sequence[Any], news: Sequence[Any]
    ) -> None:
        """A number of each of these was replaced, all of one kind."""
        if olds[0].__class__ is float and isnan(sum(olds) + sum(news)):
            # A sum with NaN in it is NaN.
            for one, was, now in zip(these, olds, news, strict=True):
                one.replace(was, now)
            return
        SortedMultiset.replace_each([one._numbers for one in these], olds, news)

    def _change(self, value: Value, sign: int) -> None:
        kind = value.__class__
        if kind is float:
            if value != value:
                self._nans += sign
                self._others += sign
                return
            self._doubles += sign
        elif kind is int:
            self._whole += sign
            self._others += sign
        elif kind is str:
            if value != "":
                self._others += sign
                self._change_text(value, sign)  # type: ignore[arg-type]
            return
        elif kind is bool:
            self._booleans += sign
            self._others += sign
        else:
            self._change_other(value, sign)
            return
        if sign > 0:
            self._numbers.add(value)
        else:
            self._numbers.remove(value)

    def _change_other(self, value: Value, sign: int) -> None:
        """The first of a list, or a double that has its spelling; NULL is ignored."""
        if isinstance(value, float):
            self._change(float(value), sign)
        elif isinstance(value, list) and value and not isinstance(value[0], list):
            self._change(value[0], sign)

    def _change_text(self, text: str, sign: int) -> None:
        change = self._texts.add if sign > 0 else self._texts.remove
        if change(text) and self._spelled is not None:
            self._spelled.change(text, sign)

    # Saved state.

    def state(self) -> list[Any]:
        """The whole state as numbers, texts and lists, for `restore`."""
        kinds = [self._whole, self._doubles, self._booleans, self._nans]
        counts = [list(one.counts.items()) for one in (self._numbers, self._texts)]
        return [kinds, *counts]

    def restore(self, state: list[Any]) -> None:
        """Continue from another group's state."""
        kinds, numbers, texts = state
        self._whole, self._doubles, self._booleans, self._nans = kinds
        self._numbers.counts.update(numbers)
        self._texts.counts.update(texts)
        self._others = self._whole + self._booleans + self._nans
        self._others += sum(self._texts.counts.values())

    # Results.

    @staticmethod
    def leasts(these: Sequence["DistinctValues"]) -> list[Scalar]:
        """The least value of each of these."""
        return [
            one._numbers.least() + 0.0 if one._doubles and not one._others else one.least()
            for one in these
        ]

    @staticmethod
    def greatests(these: Sequence["DistinctValues"]) -> list[Scalar]:
        """The greatest value of each of these."""
        return [
            one._numbers.greatest() + 0.0 if one._doubles and not one._others else one.greatest()
            for one in these
        ]

    def least(self) -> Scalar:
        """The least value; None if there is none."""
        return nan if self._nans else self._least()

    def greatest(self) -> Scalar:
        """The greatest value; None if there is none."""
        if self._nans:
            return nan
        number = self._numbers.greatest()
        if not self._texts.counts:
            return None if number is None else self._written(number)
        if number is None:
            return self._texts.greatest()  # type: ignore[no-any-return]
        spelled = self._by_number()
        word = spelled.words.greatest()
        if word is not None:
            return str(word)
        largest = spelled.numbers.greatest()
        return spelled.text_of(largest) if largest > number else self._written(number)

    def any(self) -> Scalar:
        """One of the values: the least that is a number or a text, NaN if there is nothing else."""
        value = self._least()
        return nan if value is None and self._nans else value

    def unique(self) -> Scalar:
        """The value, if there is only one; None otherwise."""
        return self._least() if not self._nans and self.count() == 1 else None

    def count(self) -> int:
        """How many distinct values there are."""
        numbers, texts = len(self._numbers.counts), len(self._texts.counts)
        count = numbers + texts + (self._nans > 0)
        if numbers and texts:
            count -= self._by_number().count_of(self._numbers)
        return count

    def _least(self) -> Scalar:
        number = self._numbers.least()
        if not self._texts.counts:
            return None if number is None else self._written(number)
        if number is None:
            return self._texts.least()  # type: ignore[no-any-return]
        spelled = self._by_number()
        smallest = spelled.numbers.least()
        if smallest is not None and smallest < number:
            return spelled.text_of(smallest)
        return self._written(number)

    def _written(self, number: int | float) -> Scalar:
        """A number in the form of the kinds that are there. Which of equal numbers the dictionary
        holds depends on which came first."""
        if not self._whole and not self._booleans:
            return number + 0.0  # minus zero is zero
        if not self._doubles:
            return int(number) if self._whole else bool(number)
        if int(number) != number if abs(number) < _EXACT else _is_double(number):
            return float(number)
        return int(number)

    def _by_number(self) -> "SpelledNumbers":
        """The texts by the numbers they spell: made when numbers first meet texts, then kept."""
        if self._spelled is None:
            self._spelled = SpelledNumbers()
            for text in self._texts.counts:
                self._spelled.change(text, 1)
        return self._spelled


class SpelledNumbers:
    """Distinct texts by the numbers that they spell, and those that spell none: `words`."""

    __slots__ = ("_texts", "numbers", "words")

    def __init__(self) -> None:
        self.numbers = SortedMultiset()
        self.words = SortedMultiset()
        self._texts: dict[int | float, dict[str, None]] = {}

    def change(self, text: str, sign: int) -> None:
        """A text was added that was not there, or the last one of its kind was removed."""
        number = as_number(text)
        if number is None:
            change = self.words.add if sign > 0 else self.words.remove
            change(text)
        elif sign > 0:
            self.numbers.add(number)
            self._texts.setdefault(number, {})[text] = None
        else:
            self.numbers.remove(number)
            del self._texts[number][text]
            if not self._texts[number]:
                del self._texts[number]

    def text_of(self, number: int | float) -> str:
        """The first, in the order of texts, of those that spell a number."""
        return min(self._texts[number])

    def count_of(self, numbers: SortedMultiset) -> int:
        """How many of the texts spell one of these numbers."""
        if len(numbers.counts) < len(self._texts):
            return sum(len(self._texts.get(number, ())) for number in numbers.counts)
        return sum(len(texts) for number, texts in self._texts.items() if number in numbers.counts)


def _is_double(number: int | float) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False
