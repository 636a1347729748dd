"""Lifetimes: which records of a topic expire when.

A heap of (time, identity). An update of a record moves its expiry, so an entry may be out of
date when its time comes; the topic's table says what holds (`Table.expires_us`). Entries out of
date are dropped in bulk when they outnumber the rest, always before new ones are taken in: what
is being added is never judged by a table that has not got it yet.
"""

import heapq
from collections.abc import Iterable, Sequence

from sow.store.memory import Table

STALE_FACTOR_MAX = 4
"""A record that is published again leaves its older entry behind. Beyond so many for each record
the heap is made anew, which costs each entry a constant."""
ENTRIES_MIN = 1024
"""A small heap is left alone."""


class Expirations:
    """When records of one table expire. All times in microseconds."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._heap: list[tuple[int, str]] = []

    def add(self, identities: Sequence[str], expires_us: int) -> None:
        """These records, which the table has already, expire at `expires_us`; 0 is never."""
        if not expires_us:
            return
        if len(self._heap) > max(ENTRIES_MIN, STALE_FACTOR_MAX * len(self._table)):
            self._heap = list({entry for entry in self._heap if self._holds(*entry)})
            heapq.heapify(self._heap)
        for identity in identities:
            heapq.heappush(self._heap, (expires_us, identity))

    def restore(self, identities: Iterable[str]) -> None:
        """Take over the expiries that a restored table holds."""
        expires_us = self._table.expires_us
        if expires_us is not None:
            for identity in identities:
                self.add((identity,), int(expires_us[self._table.slots[identity]]))

    def due_us(self) -> int | None:
        """When the next record may expire."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_us: int) -> list[str]:
        """Records whose time has come."""
        expired: dict[str, None] = {}
        while self._heap and self._heap[0][0] <= now_us:
            expires_us, identity = heapq.heappop(self._heap)
            if self._holds(expires_us, identity):
                expired[identity] = None
        return list(expired)

    def check(self) -> None:
        """Assert that every record of the table that expires is waited for."""
        column = self._table.expires_us
        waiting = set(self._heap)
        for identity, slot in self._table.slots.items():
            expires_us = 0 if column is None else int(column[slot])
            assert not expires_us or (expires_us, identity) in waiting, f"{identity} never expires"
        for at in range(1, len(self._heap)):
            assert self._heap[(at - 1) // 2] <= self._heap[at]

    def _holds(self, expires_us: int, identity: str) -> bool:
        slot = self._table.slots.get(identity)
        column = self._table.expires_us
        return slot is not None and column is not None and int(column[slot]) == expires_us
