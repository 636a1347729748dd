"""Accumulators: the state of a group of rows from which its aggregates can be read at any moment.

A row is added with `add` and removed with `remove`, with the values that it was added with; nothing
else of it is kept. A group's result is a function of the rows that are in it, never of former ones:
whatever came and went, it is bit for bit what a new group of the same rows yields.

    COUNT                                       ValueCount
    SUM, AVG, STDDEV_POP, STDDEV_SAMP           ExactSum
    MIN, MAX, ANY, UNIQUE, COUNT_DISTINCT       DistinctValues
    GROUP_CONCAT                                DistinctOrdered
    a path alone                                LastByChange, one for all of them

Aggregates of one argument share their state. A batch concerns many groups, few rows of each: so it
is added an argument at a time, the values of all rows beside the states of their groups, and
columns of plain numbers, which most are, without a call for each.

`LastByChange` has the row of a group that changed last. Rows nearly always change in the order of
their numbers, so each is moved to the end of a dictionary with its newest change, and the last one
is the newest. A row that comes with an older number (a group is filled in the order of its rows,
and a join gives many rows the number of one change) waits on a heap beside it. Both are considered,
and nothing is ever sorted.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import heappush
from typing import Any, NamedTuple

from sow.core.containers import LazyHeap
from sow.core.paths import Value
from sow.expressions import LAST, Aggregate, Projection, sort_key
from sow.topic.views.distinct_values import DistinctOrdered, DistinctValues
from sow.topic.views.exact_sum import ExactSum

Values = Sequence[Value]
Entry = tuple[int, int, tuple[object, ...], int, Hashable, Values]
"""Of a late row, the newest first: its number and its birth, both negated; its values as they sort,
which distinguishes rows of one change; a counter, its identity and its values."""


class LastByChange:
    """The rows of a group; `values` are those of the newest."""

    __slots__ = ("_count", "_in_order", "_late", "_waiting")

    def __init__(self) -> None:
        self._in_order: dict[Hashable, tuple[int, int, Values]] = {}
        self._late: dict[Hashable, Entry] = {}
        self._waiting: LazyHeap[Entry] = LazyHeap()
        self._count = 0

    def add(self, identity: Hashable, values: Values, born: int, seq: int) -> None:
        """A row was added, or has changed."""
        rows = self._in_order
        if rows:
            rows.pop(identity, None)  # to stand behind all others
        if rows:
            newest_seq, newest_born, _ = rows[next(reversed(rows))]
            if (seq, born) <= (newest_seq, newest_born):
                self._add_late(identity, values, born, seq)
                return
        if self._late:
            self._late.pop(identity, None)
        rows[identity] = seq, born, values

    @staticmethod
    def add_each(
        these: Iterable["LastByChange"],
        identities: Sequence[Hashable],
        rows: Sequence[Values],
        borns: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        """To each of these a row was added, or one of its rows has changed: where there is only
        one, without a call for each."""
        columns = zip(these, identities, rows, borns, seqs, strict=True)
        for one, identity, values, born, seq in columns:
            there = one._in_order
            if len(there) == 1 and identity in there:
                there[identity] = seq, born, values
            else:
                one.add(identity, values, born, seq)

    def _add_late(self, identity: Hashable, values: Values, born: int, seq: int) -> None:
        self._count += 1
        entry = -seq, -born, _sortable(values), self._count, identity, values
        self._late[identity] = entry
        if self._waiting.is_stale(len(self._late)):
            self._waiting.rebuild(self._late.values())
        else:
            heappush(self._waiting, entry)

    def remove(self, identity: Hashable) -> None:
        """A row was removed."""
        if self._in_order.pop(identity, None) is None:
            del self._late[identity]

    def values(self) -> Values | None:
        """The values of the newest row; None if there is no row."""
        newest = self._newest()
        return None if newest is None else newest[1]

    @property
    def seq(self) -> int:
        """The number of the newest row; 0 if there is no row."""
        newest = self._newest()
        return 0 if newest is None else newest[0]

    def _newest(self) -> tuple[int, Values] | None:
        """The number and the values of the newest row."""
        newest = None
        if self._in_order:
            seq, born, values = self._in_order[next(reversed(self._in_order))]
            newest = -seq, -born, values
        late = self._waiting.first(lambda entry: self._late.get(entry[4]) is entry)
        if late is None:
            return None if newest is None else (-newest[0], newest[2])
        if newest is None or (*late[:3],) < (*newest[:2], _sortable(newest[2])):
            return -late[0], late[5]
        return -newest[0], newest[2]

    @staticmethod
    def each(these: Iterable["LastByChange"]) -> list[Values | None]:
        """The values of the newest row of each of these; None if there is no row."""
        found: list[Values | None] = []
        for one in these:
            rows = one._in_order
            if rows and not one._waiting:
                found.append(rows[next(reversed(rows))][2])
            else:
                found.append(one.values())
        return found


def _sortable(values: Values) -> tuple[object, ...]:
    return tuple([sort_key(value) for value in values])


Columns = Sequence[Sequence[Value]]
NUMBER_KINDS: tuple[set[type], ...] = ({float}, {int})
"""Kinds of values whose columns are added as a whole: all values of a column are of one kind."""


class ValueCount:
    """How many rows have a value."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, value: Value, _born: int = 0) -> None:
        """A value was added."""
        self.count += not _is_null(value)

    def remove(self, value: Value, _born: int = 0) -> None:
        """A value was removed."""
        self.count -= not _is_null(value)

    def replace(self, was: Value, now: Value, _born: int = 0) -> None:
        """A value was replaced."""
        self.count += _is_null(was) - _is_null(now)

    @staticmethod
    def add_numbers(these: Iterable["ValueCount"], _values: Sequence[Any]) -> None:
        """A number was added to each of these."""
        for one in these:
            one.count += 1

    @staticmethod
    def replace_numbers(*_: object) -> None:
        """Numbers were replaced: the count stays."""

    def state(self) -> int:
        """The whole state."""
        return self.count

    def restore(self, state: int) -> None:
        """Continue from another one's state."""
        self.count = state


BY_COLUMN = (ValueCount, ExactSum, DistinctValues)
"""What adds a column of numbers as a whole."""


class Kept(NamedTuple):
    """The state for one argument: what makes it, and the argument's number."""

    make: Callable[[], Any]
    argument: int


class ReadOff(NamedTuple):
    """How an aggregate is read: a function of a column of groups, and the state that it reads."""

    read: Callable[[list[Any]], list[Any]]
    at: int


NEWEST = -1
"""The place of the newest row's state: behind all others."""


class Keeping:
    """The states that each group keeps, how rows are added, and how aggregates are read.

    A row has one value for each of the projection's `arguments`. Its `identity` is unique in the
    group, `born` is when it first came, and `seq` the number of its newest change. Columns have one
    place for each row, `groups` the accumulators of its group.
    """

    def __init__(self, projection: Projection, keeps_newest: bool = False) -> None:
        aggregates = projection.aggregates
        self._kept: list[Kept] = []
        self.has_newest = keeps_newest or goes_by_newest(projection)
        self._readers: list[ReadOff] = [self._reader(one, aggregates) for one in aggregates]
        self._kinds: list[Any] = [type(one.make()) for one in self._kept]
        self.arguments = [one.argument for one in self._kept]
        """For each state, the number of its argument."""
        kinds = zip(self.arguments, self._kinds, strict=True)
        self._by_column = {argument for argument, kind in kinds if kind in BY_COLUMN}
        sizes = [SIZES[kind] for kind in self._kinds]
        if self.has_newest:
            sizes.append(SIZES[LastByChange])
        self.group_bytes = sum(size.group_bytes for size in sizes)
        """The memory of a group's states, about, beside its rows."""
        self.row_bytes = sum(size.row_bytes for size in sizes)
        """The memory of each of its rows in these states."""

    def group(self) -> "Accumulators":
        """The accumulators of a group without rows."""
        return Accumulators(self, [one.make() for one in self._kept])

    def _reader(self, one: Aggregate, others: Sequence[Aggregate]) -> ReadOff:
        if one.kind == LAST:
            return ReadOff(lambda rows: _of_each(rows, one.argument), NEWEST)
        beside = {other.kind for other in others if other.argument == one.argument}
        if one.kind in DISTINCT:
            return self._read(Kept(DistinctValues, one.argument), DISTINCT[one.kind])
        if one.kind == "GROUP_CONCAT":
            kept = Kept(DistinctOrdered, one.argument)
            return self._read(kept, lambda these: [it.joined(one.separator) for it in these])
        if beside & SUMS.keys():
            make = _squared if beside & {"STDDEV_POP", "STDDEV_SAMP"} else ExactSum
            read = SUMS.get(one.kind, _counts)
            return self._read(Kept(make, one.argument), read)
        return self._read(Kept(ValueCount, one.argument), _counts)

    def _read(self, kept: Kept, read: Callable[[list[Any]], list[Any]]) -> ReadOff:
        if kept not in self._kept:
            self._kept.append(kept)
        return ReadOff(read, self._kept.index(kept))

    # Many rows at a time.

    def add(
        self,
        groups: Sequence["Accumulators"],
        columns: Columns,
        identities: Sequence[Hashable],
        borns: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        """Add rows: a column of values for each argument."""
        are_numbers = {
            argument: {*map(type, columns[argument])} in NUMBER_KINDS
            for argument in self._by_column
        }
        kinds = zip(self.arguments, self._kinds, self._columns(groups), strict=True)
        for argument, kind, found in kinds:
            values = columns[argument]
            if kind in BY_COLUMN and are_numbers[argument]:
                kind.add_numbers(found, values)
                continue
            for kept, value, born in zip(found, values, borns, strict=True):
                kept.add(value, born)
        self._know_newest(groups, columns, identities, borns, seqs)

    def replace(
        self,
        groups: Sequence["Accumulators"],
        olds: Columns,
        news: Columns,
        identities: Sequence[Hashable],
        borns: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        """Replace the values of rows that stay in their groups: a column of old and one of new
        values for each argument."""
        are_numbers = {
            argument: {*map(type, olds[argument]), *map(type, news[argument])} in NUMBER_KINDS
            for argument in self._by_column
            if olds[argument] is not news[argument]
        }
        kinds = zip(self.arguments, self._kinds, self._columns(groups), strict=True)
        for argument, kind, found in kinds:
            was, now = olds[argument], news[argument]
            if was is now:  # of a constant
                continue
            if kind in BY_COLUMN and are_numbers[argument]:
                kind.replace_numbers(found, was, now)
                continue
            for kept, old, new, born in zip(found, was, now, borns, strict=True):
                if old != new or old.__class__ is not new.__class__ or old.__class__ is list:
                    kept.replace(old, new, born)
        self._know_newest(groups, news, identities, borns, seqs)

    def _know_newest(
        self,
        groups: Sequence["Accumulators"],
        columns: Columns,
        identities: Sequence[Hashable],
        borns: Sequence[int],
        seqs: Sequence[int],
    ) -> None:
        if self.has_newest:
            rows = [*zip(*columns, strict=True)] if columns else [()] * len(groups)
            LastByChange.add_each(_newest(groups), identities, rows, borns, seqs)

    def _columns(self, groups: Sequence["Accumulators"]) -> list[Any]:
        """The states of groups, a column for each."""
        if not groups:
            return [()] * len(self._kept)
        return [*zip(*[one.kept for one in groups], strict=True)]

    # Results.

    def results(self, groups: Sequence["Accumulators"]) -> list[list[Value]]:
        """The results of the projection's `aggregates` in each of these groups: a column for each
        aggregate."""
        kept = self._columns(groups)
        if self.has_newest:
            kept.append(LastByChange.each(_newest(groups)))
        return [read(kept[at]) for read, at in self._readers]


class Accumulators:
    """The states of one group for all aggregates of a projection: one for each argument (`kept`),
    and the `newest` row."""

    __slots__ = ("_keeping", "kept", "newest")

    def __init__(self, keeping: Keeping, kept: list[Any]) -> None:
        self._keeping = keeping
        self.kept = kept
        self.newest = LastByChange() if keeping.has_newest else None

    def add(self, values: Sequence[Value], identity: Hashable, born: int, seq: int) -> None:
        """A row was added."""
        for one, argument in zip(self.kept, self._keeping.arguments, strict=True):
            one.add(values[argument], born)
        if self.newest is not None:
            self.newest.add(identity, values, born, seq)

    def remove(self, values: Sequence[Value], identity: Hashable, born: int) -> None:
        """A row that was added with just these values was removed."""
        for one, argument in zip(self.kept, self._keeping.arguments, strict=True):
            one.remove(values[argument], born)
        if self.newest is not None:
            self.newest.remove(identity)

    def replace(
        self, old: Sequence[Value], new: Sequence[Value], identity: Hashable, born: int, seq: int
    ) -> None:
        """A row of the group has changed, and stays in it."""
        for one, argument in zip(self.kept, self._keeping.arguments, strict=True):
            was, now = old[argument], new[argument]
            if was != now or was.__class__ is not now.__class__ or was.__class__ is list:
                one.replace(was, now, born)
        if self.newest is not None:
            self.newest.add(identity, new, born, seq)

    def states(self) -> list[Any]:
        """The states, as numbers, texts and lists of them, of aggregates that are `ORDERLESS`."""
        return [one.state() for one in self.kept]

    def restore(self, states: Sequence[Any]) -> None:
        """Continue, while it is empty, from states that were saved for the same projection."""
        for one, state in zip(self.kept, states, strict=True):
            one.restore(state)

    @property
    def newest_seq(self) -> int:
        """The number of the newest of its rows, where that is kept; 0 if there is no row."""
        return 0 if self.newest is None else self.newest.seq

    def results(self) -> list[Value]:
        """The results of the projection's `aggregates`."""
        return [column[0] for column in self._keeping.results([self])]


class Size(NamedTuple):
    """The memory of a state, about: of a group with one row, and of each further row."""

    group_bytes: int
    row_bytes: int


SIZES: Mapping[type, Size] = {
    ValueCount: Size(80, 0),
    ExactSum: Size(200, 0),
    DistinctValues: Size(500, 70),
    DistinctOrdered: Size(200, 400),
    LastByChange: Size(200, 260),
}
"""As measured with distinct values; equal ones take less."""


def goes_by_newest(projection: Projection) -> bool:
    """Whether it has an aggregate of the newest record of a group."""
    return any(one.kind == LAST for one in projection.aggregates)


def looks_through(projection: Projection) -> bool:
    """Whether reading its aggregates may scan all values of a group."""
    return any(one.kind in DISTINCT or one.kind == "GROUP_CONCAT" for one in projection.aggregates)


SUMS: dict[str, Callable[[list[ExactSum]], list[Any]]] = {
    "AVG": ExactSum.averages,
    "STDDEV_POP": lambda these: [one.deviation(of_sample=False) for one in these],
    "STDDEV_SAMP": lambda these: [one.deviation(of_sample=True) for one in these],
    "SUM": ExactSum.totals,
}
"""What is read from sums."""
DISTINCT: dict[str, Callable[[list[DistinctValues]], list[Any]]] = {
    "ANY": lambda these: [one.any() for one in these],
    "COUNT_DISTINCT": lambda these: [one.count() for one in these],
    "MAX": DistinctValues.greatests,
    "MIN": DistinctValues.leasts,
    "UNIQUE": lambda these: [one.unique() for one in these],
}
"""What is read from distinct values."""


def _counts(these: list[ValueCount] | list[ExactSum]) -> list[Any]:
    return [one.count for one in these]


def _newest(groups: Sequence[Accumulators]) -> list[LastByChange]:
    """The newest-row states of groups that have one."""
    return [one.newest for one in groups if one.newest is not None]


def _of_each(rows: list[Sequence[Value] | None], number: int) -> list[Any]:
    """One value of each row, None where there is none."""
    return [None if row is None else row[number] for row in rows]


def _squared() -> ExactSum:
    return ExactSum(squared=True)


def _is_null(value: Value) -> bool:
    if isinstance(value, list):
        return not value or value[0] is None or value[0] == "" or isinstance(value[0], list)
    return value is None or value == ""
