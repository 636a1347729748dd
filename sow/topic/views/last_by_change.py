"""The newest row: of the rows of a group, the one that changed last.

Rows nearly always change in the order of their numbers, so each is moved to the end of a dictionary
with its newest change, and the last one is the newest. A row that comes with an older number (a
group is filled in the order of its rows, and a join gives many rows the number of one change) waits
on a heap beside it. Both are considered, and nothing is ever sorted.
"""

from collections.abc import Hashable, Iterable, Sequence
from heapq import heappush

from sow.core.lazy_heap import LazyHeap
from sow.core.paths import Value
from sow.expressions import sort_key

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
