"""Expirations: which records of a topic expire when.

A heap of (time, records): records that were published together expire together. An update of a
record moves its expiry, so an entry may be out of date when its time comes; the topic's table has
the valid one (`Table.expires_us`). When entries out of date outnumber the rest, the heap becomes
the *old* one; each addition moves a few times its own size from the end of that into a new one, so
that the old one stays a heap. Additions do that before they add, so that new records are never
judged by a table that does not have them yet. So no call takes longer than its own size warrants.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter

import numpy as np

from sow.core.containers import LazyHeap
from sow.core.cooperative import Task
from sow.indexes.sorting import sorting
from sow.store.memory import Table

STALE_FACTOR_MAX = 4
"""A record that is published again leaves its older entry behind. Beyond so many for each record
the heap is rebuilt."""
SIFTED_FACTOR = 8
"""So many are moved for each record that is added: twice what empties an old heap before the new
one has grown as large."""
ENTRIES_MIN = 1024
"""A small heap is left alone."""
EXPIRED_AT_ONCE = 200
"""Records of one entry, and entries that are taken in one step: removing them takes about a
millisecond."""
RESTORED_AT_ONCE = 2_000
"""Records of a restored table in one step: half a microsecond each, or two where all have times of
their own."""

Entry = tuple[int, tuple[str, ...]]


class Expirations:
    """When records of one table expire. All times in microseconds."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._heap: LazyHeap[Entry] = LazyHeap()
        self._old: LazyHeap[Entry] = LazyHeap()
        self._count = 0

    def __len__(self) -> int:
        """Records that wait to expire, including those that are out of date."""
        return self._count

    def add(self, identities: Sequence[str], expires_us: int | Sequence[int]) -> None:
        """These records, which the table has already, expire at `expires_us`: all of them, or each
        at its own time; 0 is never."""
        if not isinstance(expires_us, int):
            for time_us, names in _by_time(identities, expires_us).items():
                self.add(names, time_us)
            return
        if not expires_us:
            return
        if self._count > max(ENTRIES_MIN, STALE_FACTOR_MAX * len(self._table)) and not self._old:
            self._old, self._heap = self._heap, LazyHeap()
        if self._old:
            self._sift(SIFTED_FACTOR * len(identities))
        for entry in _entries(expires_us, identities):
            heappush(self._heap, entry)
        self._count += len(identities)

    def _sift(self, count: int) -> None:
        """Move `count` records or more from the old heap into the new one, if they are valid."""
        while self._old and count > 0:
            expires_us, names = self._old.pop()  # a leaf: what is left is a heap
            count -= len(names)
            kept = tuple(name for name in dict.fromkeys(names) if self._holds(expires_us, name))
            self._count -= len(names) - len(kept)
            if kept:
                heappush(self._heap, (expires_us, kept))

    def restore(self) -> Task[None]:
        """Take over the expiries of a restored table, some in each step; nothing may change between
        two of them."""
        column, identities = self._table.expires_us, self._table.identities
        self._heap, self._old, self._count = LazyHeap(), LazyHeap(), 0
        if column is None:
            return
        slots = np.flatnonzero(column[: len(identities)] > 0)
        slots = yield from sorting(slots, [lambda rows: column[rows].astype(np.float64)])
        for start in range(0, len(slots), RESTORED_AT_ONCE):
            some = slots[start : start + RESTORED_AT_ONCE]
            timed = zip(column[some].tolist(), some.tolist(), strict=True)
            for expires_us, run in groupby(timed, itemgetter(0)):
                held = [identities[slot] for _, slot in run]
                names = [name for name in held if name is not None]
                for entry in _entries(expires_us, names):
                    heappush(self._heap, entry)
                self._count += len(names)
            yield

    def due_us(self) -> int | None:
        """When the next record may expire."""
        heap = self._first()
        return heap[0][0] if heap else None

    def _first(self) -> LazyHeap[Entry]:
        """The heap that has the earliest entry."""
        if self._old and (not self._heap or self._old[0] < self._heap[0]):
            return self._old
        return self._heap

    def take(self, now_us: int) -> list[str]:
        """Records whose time has come: some of them, if they are many. `due_us` says whether there
        may be more; those that were taken must have been removed before the next call."""
        expired: dict[str, None] = {}
        looked_at = 0
        while looked_at < EXPIRED_AT_ONCE and (heap := self._first()) and heap[0][0] <= now_us:
            expires_us, names = heappop(heap)
            looked_at += len(names)
            expired |= dict.fromkeys(name for name in names if self._holds(expires_us, name))
        self._count -= looked_at
        return list(expired)

    def check(self) -> None:
        """Assert that every record of the table that expires waits here."""
        column = self._table.expires_us
        waiting = {(at, name) for at, names in (*self._heap, *self._old) for name in names}
        for identity, slot in self._table.slots.items():
            expires_us = 0 if column is None else int(column[slot])
            assert not expires_us or (expires_us, identity) in waiting, f"{identity} never expires"
        for heap in (self._heap, self._old):
            heap.check()
        assert self._count == sum(len(names) for _, names in (*self._heap, *self._old))

    def _holds(self, expires_us: int, identity: str) -> bool:
        slot = self._table.slots.get(identity)
        column = self._table.expires_us
        return slot is not None and column is not None and int(column[slot]) == expires_us


def _by_time(identities: Sequence[str], expires_us: Sequence[int]) -> dict[int, list[str]]:
    found: defaultdict[int, list[str]] = defaultdict(list)
    for name, time_us in zip(identities, expires_us, strict=True):
        found[time_us].append(name)
    return found


def _entries(expires_us: int, identities: Sequence[str]) -> Iterable[Entry]:
    for start in range(0, len(identities), EXPIRED_AT_ONCE):
        yield expires_us, tuple(identities[start : start + EXPIRED_AT_ONCE])
