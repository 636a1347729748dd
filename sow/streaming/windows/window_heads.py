"""Heads: the first records of an order, kept in order while records change.

A head has every record of the set up to a *bound*: a record that ranks after it costs a comparison
and is ignored. So a head does not grow with the topic, and loses records only at its end. A record
that leaves is not replaced, since the records behind the bound are unknown: when the head has
become too short for its readers, a query *fills* it again.

An entry is a record's ranks, one for each term of the order, then the number of its first
publication and its identity: entries compare as the query sorts, and no two are equal.
"""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

Places = tuple[int, int]
"""The first and the last position that shows another record, or another state of one."""
TO_THE_END = sys.maxsize
"""The last position where all records behind have moved up or down."""
Entry = tuple[Any, ...]
"""Ranks, then when the record was first published, then its identity."""
CROWD_FACTOR = 2
"""A head is cut when it is so many times as long as it has to be: a cut costs a walk."""


class WindowHead:
    """The first records of an order; `complete` when there are no others. It is empty until it is
    filled."""

    def __init__(self) -> None:
        self.order: list[Entry] = []
        self.names: list[str] = []
        """The identities of its records, in order: what is read most."""
        self._entries: dict[str, Entry] = {}
        self.complete = False
        self.bound: Entry | None = None
        """The entry up to which it has all records, unless it is complete."""

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, identity: object) -> bool:
        return identity in self._entries

    def knows_none(self, identities: Iterable[str]) -> bool:
        """Whether none of these records is in it."""
        return self._entries.keys().isdisjoint(identities)

    def fill(self, entries: Sequence[Entry], complete: bool) -> None:
        """Replace its records by these, which are in order; `complete`: there are no more."""
        self.order = list(entries)
        self.names = [entry[-1] for entry in entries]
        self._entries = {entry[-1]: entry for entry in entries}
        self.complete = complete
        self.bound = None if complete or not entries else entries[-1]

    def takes(self, entry: Entry) -> bool:
        """Whether a record with this entry belongs in it."""
        return self.complete or (self.bound is not None and not self.bound < entry)

    def put(self, entry: Entry) -> Places | None:
        """A record is new or has changed; returns the positions that this concerns, if any."""
        old = self._entries.get(entry[-1])
        if old == entry:
            at = bisect_left(self.order, entry)
            return at, at
        left = self.drop(entry[-1])
        if not self.takes(entry):
            return left
        at = bisect_left(self.order, entry)
        self.order.insert(at, entry)
        self.names.insert(at, entry[-1])
        self._entries[entry[-1]] = entry
        if left is None:
            return at, TO_THE_END
        stood = left[0]
        return (stood, at) if stood < at else (at, stood)

    def drop(self, identity: str) -> Places | None:
        """A record has left the set; returns the positions that this concerns, if any."""
        old = self._entries.pop(identity, None)
        if old is None:
            return None
        at = bisect_left(self.order, old)
        del self.order[at], self.names[at]
        return at, TO_THE_END

    def cut(self, length: int) -> None:
        """Drop the records behind the first `length`, once they are many."""
        if len(self.order) > CROWD_FACTOR * length:
            for identity in self.names[length:]:
                del self._entries[identity]
            del self.order[length:], self.names[length:]
            self.complete = False
            self.bound = self.order[-1] if self.order else None

    def check(self) -> None:
        """Assert what is always true of a head."""
        assert all(one < other for one, other in zip(self.order, self.order[1:], strict=False))
        assert {entry[-1]: entry for entry in self.order} == self._entries
        assert self.names == [entry[-1] for entry in self.order]
        if not self.complete and self.order:
            assert self.bound is not None
            assert not self.bound < self.order[-1]
