"""Accumulators: what is kept of a group of rows so that its aggregates are known at any moment.

A row comes with `add` and goes with `remove`, with the values that it came with; nothing else of it
is kept. What a group comes to is a function of the rows that are in it, never of those that were:
whatever came and went, it is bit for bit what a new group of the same rows comes to.

    COUNT                                       ValueCount
    SUM, AVG, STDDEV_POP, STDDEV_SAMP           ExactSum
    MIN, MAX, ANY, UNIQUE, COUNT_DISTINCT       DistinctValues
    GROUP_CONCAT                                Appearances
    a path alone                                NewestRow, one for all of them

Aggregates of one argument share what they keep. Knows nothing of records or topics.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from sow.expressions import LAST, Aggregate, Projection
from sow.paths import Value
from sow.topic.views.appearances import Appearances
from sow.topic.views.distinct_values import DistinctValues
from sow.topic.views.exact_sum import ExactSum
from sow.topic.views.newest_row import NewestRow

Columns = Sequence[Sequence[Value]]


class ValueCount:
    """How many rows have a value."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Value, _born: int = 0) -> None:
        """A value has come."""
        self.count += not _is_null(value)

    def remove(self, value: Value, _born: int = 0) -> None:
        """A value that came has gone."""
        self.count -= not _is_null(value)

    def replace(self, was: Value, now: Value, _born: int = 0) -> None:
        """A value has become another one."""
        self.count += _is_null(was) - _is_null(now)


class Kept(NamedTuple):
    """What is kept of one argument: what makes it, and the argument's number."""

    make: Callable[[], Any]
    argument: int


class ReadOff(NamedTuple):
    """How an aggregate is read: what reads it, of which of the things that are kept."""

    read: Callable[[Any], Value]
    at: int


NEWEST = -1
"""Where the newest row is kept: behind all others."""


class Keeping:
    """What is to be kept of each group, and how each aggregate is read off it."""

    def __init__(self, projection: Projection) -> None:
        aggregates = projection.aggregates
        self.kept: list[Kept] = []
        self.newest = any(one.kind == LAST for one in aggregates)
        self.readers: list[ReadOff] = [self._reader(one, aggregates) for one in aggregates]

    def _reader(self, one: Aggregate, others: Sequence[Aggregate]) -> ReadOff:
        if one.kind == LAST:
            return ReadOff(lambda found: found.value(one.argument), NEWEST)
        beside = {other.kind for other in others if other.argument == one.argument}
        if one.kind in DISTINCT:
            return self._read(Kept(DistinctValues, one.argument), DISTINCT[one.kind])
        if one.kind == "GROUP_CONCAT":
            kept = Kept(Appearances, one.argument)
            return self._read(kept, lambda found: found.joined(one.separator))
        if beside & SUMS.keys():
            make = _squared if beside & {"STDDEV_POP", "STDDEV_SAMP"} else ExactSum
            read = SUMS.get(one.kind, _count)
            return self._read(Kept(make, one.argument), read)
        return self._read(Kept(ValueCount, one.argument), _count)

    def _read(self, kept: Kept, read: Callable[[Any], Value]) -> ReadOff:
        if kept not in self.kept:
            self.kept.append(kept)
        return ReadOff(read, self.kept.index(kept))


class Accumulators:
    """What is kept of one group for all aggregates of a projection.

    A row has one value for each of the projection's `arguments`. Its `identity` tells it from all
    other rows of the group, `born` says when it first came, and `seq` is the number of its newest
    change.
    """

    __slots__ = ("_keeping", "_newest", "kept", "rows")

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self.rows = 0
        self.kept = [(one.make(), one.argument) for one in keeping.kept]
        self._newest = NewestRow() if keeping.newest else None

    def add(self, values: Sequence[Value], identity: Hashable, born: int, seq: int) -> None:
        """A row has come."""
        self.rows += 1
        for one, argument in self.kept:
            one.add(values[argument], born)
        if self._newest is not None:
            self._newest.add(identity, values, born, seq)

    def remove(self, values: Sequence[Value], identity: Hashable, born: int) -> None:
        """A row that was added with just these values has gone."""
        self.rows -= 1
        for one, argument in self.kept:
            one.remove(values[argument], born)
        if self._newest is not None:
            self._newest.remove(identity)

    def replace(
        self, old: Sequence[Value], new: Sequence[Value], identity: Hashable, born: int, seq: int
    ) -> None:
        """A row of the group has changed, and stays in it."""
        for one, argument in self.kept:
            was, now = old[argument], new[argument]
            if was != now or was.__class__ is not now.__class__ or was.__class__ is list:
                one.replace(was, now, born)
        if self._newest is not None:
            self._newest.add(identity, new, born, seq)

    def add_all(
        self,
        columns: Columns,
        identities: Sequence[Hashable],
        borns: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        """Rows have come: a column for each argument."""
        self.rows += len(identities)
        for one, argument in self.kept:
            add = one.add
            for value, born in zip(columns[argument], borns, strict=True):
                add(value, born)
        if self._newest is not None:
            rows = zip(*columns, strict=True)
            for identity, values, born, seq in zip(identities, rows, borns, seqs, strict=True):
                self._newest.add(identity, values, born, seq)

    def results(self) -> list[Value]:
        """What each of the projection's `aggregates` comes to."""
        found: list[Any] = [one for one, _ in self.kept]
        found.append(self._newest)
        return [read(found[at]) for read, at in self._keeping.readers]


def accumulators_of(projection: Projection) -> Callable[[], Accumulators]:
    """What makes the empty accumulators of a group of a view with this projection."""
    keeping = Keeping(projection)
    return lambda: Accumulators(keeping)


SUMS: dict[str, Callable[[ExactSum], Value]] = {
    "AVG": ExactSum.average,
    "STDDEV_POP": lambda found: found.deviation(of_sample=False),
    "STDDEV_SAMP": lambda found: found.deviation(of_sample=True),
    "SUM": ExactSum.total,
}
"""What is read off a sum."""
DISTINCT: dict[str, Callable[[DistinctValues], Value]] = {
    "ANY": DistinctValues.any,
    "COUNT_DISTINCT": DistinctValues.count,
    "MAX": DistinctValues.greatest,
    "MIN": DistinctValues.least,
    "UNIQUE": DistinctValues.unique,
}
"""What is read off different values."""


def _count(found: ValueCount | ExactSum) -> Value:
    return found.count


def _squared() -> ExactSum:
    return ExactSum(squared=True)


def _is_null(value: Value) -> bool:
    if isinstance(value, list):
        return not value or value[0] is None or value[0] == "" or isinstance(value[0], list)
    return value is None or value == ""
