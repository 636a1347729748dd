"""Conflation is composition over time: a dictionary of the latest value per key.

A conflator keeps at most one pending value per key however often the key is offered. *When* a
key is let go is its schedule's business. A window that has closed keeps the value it closed
with, even when it is taken later, so where takes fall never changes what comes out.

    offer ──> pending (one value per key) ──deadline──> closed ──release──> take

It does not compare values, apply filters or know what a record is.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from conflated_topics.schedules import PerKey

K = TypeVar("K")
V = TypeVar("V")


class Conflator(Generic[K, V]):
    """Pending values under one schedule. All times in microseconds."""

    def __init__(self, schedule: PerKey[K]) -> None:
        self.schedule = schedule
        self._pending: dict[K, V] = {}
        self._closed: deque[tuple[int, dict[K, V]]] = deque()

    def __len__(self) -> int:
        """Keys that wait, in open and in closed windows."""
        return len(self._pending) + sum(len(entries) for _, entries in self._closed)

    def __contains__(self, key: object) -> bool:
        return key in self._pending or any(key in entries for _, entries in self._closed)

    def offer(self, keys: Sequence[K], values: Iterable[V], now_us: int) -> None:
        """Fold a batch in; a key offered twice keeps the later value."""
        self._close(now_us)
        pending = self._pending
        fresh = [key for key in dict.fromkeys(keys) if key not in pending]
        pending.update(zip(keys, values, strict=True))
        if fresh:
            self.schedule.open(fresh, now_us)

    def due_us(self) -> int | None:
        """When `take` next has something to give."""
        return self._closed[0][0] if self._closed else self.schedule.due_us()

    def oldest_us(self) -> int | None:
        """When the window that has waited longest was opened, closed ones not counted."""
        return self.schedule.opened_us()

    def take(self, now_us: int) -> dict[K, V]:
        """What is released by now, each key once, oldest window first."""
        self._close(now_us)
        taken: dict[K, V] = {}
        while self._closed and self._closed[0][0] <= now_us:
            _, entries = self._closed.popleft()
            taken.update(entries)
        return taken

    def _close(self, now_us: int) -> None:
        pop = self._pending.pop
        for release_us, keys in self.schedule.close(now_us):
            entries = {key: pop(key) for key in keys}
            if self._closed and self._closed[-1][0] == release_us:
                self._closed[-1][1].update(entries)
            else:
                self._closed.append((release_us, entries))
