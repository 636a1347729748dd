"""Counts of values with their least and greatest.

A dictionary of each value to its count, and the two extremes cached as long as they stay. When one
is removed, the values are scanned again. That is quick for few, and rarely needed for many; where
it is needed too often they are put on a heap besides, once: a value that is added is pushed, one
that was removed is skipped when it comes up. Values compare with each other: numbers without NaN,
or texts.

`DistinctOrdered` has the distinct texts of a group in the order in which they first came. A text
came when the first of the rows that now have it came. The order is cached until a text is added or
removed, or gets another first row.
"""

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Any

from sow.core.lazy_heap import LazyHeap
from sow.core.paths import Value
from sow.expressions import as_text

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
