"""Heads: the first records of an order, kept in order while records change.

A head holds every record of the set up to a *bound*: whatever ranks after it is not looked at, and
costs a comparison. So it does not grow with the topic, and loses records only at its end. What
leaves a head is not replaced, since nobody knows what stands behind the bound: when it has become
too short for who reads it, it is *filled* anew from a query.

An entry is a record's ranks, one for each term of the order, then the number of its first
publication and its identity: entries compare as the query sorts, and no two are equal.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

Entry = tuple[Any, ...]
"""Ranks, then when the record was first published, then its identity."""
CROWD_FACTOR = 2
"""A head is cut when it is so many times as long as it is meant to be: a cut costs a walk."""


class WindowHead:
    """The first records of an order; `complete` when these are all that there are. It knows of
    none until it is filled."""

    def __init__(self) -> None:
        self.order: list[Entry] = []
        self._entries: dict[str, Entry] = {}
        self.complete = False
        self.bound: Entry | None = None
        """The last entry that it certainly has all up to, unless it is complete."""

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, identity: object) -> bool:
        return identity in self._entries

    def knows_none(self, identities: Iterable[str]) -> bool:
        """Whether none of these records is in it."""
        return self._entries.keys().isdisjoint(identities)

    def fill(self, entries: Sequence[Entry], complete: bool) -> None:
        """Hold these and no others, which stand in order; `complete`: there are no more."""
        self.order = list(entries)
        self._entries = {entry[-1]: entry for entry in entries}
        self.complete = complete
        self.bound = None if complete or not entries else entries[-1]

    def takes(self, entry: Entry) -> bool:
        """Whether a record with this entry belongs in it."""
        return self.complete or (self.bound is not None and not self.bound < entry)

    def put(self, entry: Entry) -> int | None:
        """A record is new or has changed; returns the first place that is concerned, or None."""
        old = self._entries.get(entry[-1])
        if old == entry:
            return bisect_left(self.order, entry)
        first = self.drop(entry[-1])
        if self.takes(entry):
            at = bisect_left(self.order, entry)
            self.order.insert(at, entry)
            self._entries[entry[-1]] = entry
            first = at if first is None else min(first, at)
        return first

    def drop(self, identity: str) -> int | None:
        """A record has left the set; returns the place that it stood at, or None."""
        old = self._entries.pop(identity, None)
        if old is None:
            return None
        at = bisect_left(self.order, old)
        del self.order[at]
        return at

    def cut(self, length: int) -> None:
        """Let go of what stands behind the first `length`, once that is much."""
        if len(self.order) > CROWD_FACTOR * length:
            for entry in self.order[length:]:
                del self._entries[entry[-1]]
            del self.order[length:]
            self.complete = False
            self.bound = self.order[-1] if self.order else None

    def check(self) -> None:
        """Assert what is always true of a head."""
        assert all(one < other for one, other in zip(self.order, self.order[1:], strict=False))
        assert {entry[-1]: entry for entry in self.order} == self._entries
        if not self.complete and self.order:
            assert self.bound is not None
            assert not self.bound < self.order[-1]
