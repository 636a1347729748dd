"""Timers: what is due when, so that idle items cost nothing.

Whatever acts as time passes is `Timed`: a conflated topic, a conflated subscription, a live window,
lifetimes, a session without a socket, long work. It is added once and *noted* whenever it may be
due earlier than it was. Items due at the same time run in the order in which they were added, so a
conflated topic runs before what is derived from it. Times are in microseconds; there is no clock
here.

`Expirations` says which records of a topic expire when: a heap of (time, records), since records
that were published together expire together. An update of a record moves its expiry, so an entry
may be out of date when its time comes; the topic's table has the valid one (`Table.expires_us`).
When entries out of date outnumber the rest, the heap becomes the *old* one; each addition moves a
few times its own size from the end of that into a new one, so that the old one stays a heap.
Additions do that before they add, so that new records are never judged by a table that does not
have them yet. So no call takes longer than its own size warrants.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from sow.core.containers import LazyHeap
from sow.core.cooperative import Task
from sow.indexes.sorting import sorting
from sow.store.memory import Table

NOTED_AT_ONCE = 500
"""Items that one step schedules again when a run is over: a microsecond or two each."""
Rank = tuple[int, int]
"""The order of items that are due at the same time."""


class Timed(Protocol):
    """Something that knows when it is next due, and what to do then."""

    def due_us(self) -> int | None:
        """When it next has something to do, or None."""
        ...

    def advance(self, now_us: int) -> Any:
        """Do what is due, or a bounded part of it; returns what `hand_on` is called with."""
        ...


HandOn = Callable[[Any, Any], object]
"""Called with an item and what its `advance` has returned."""


class Deadline:
    """Calls `act` when `due_us` says so, until it is removed."""

    def __init__(self, due_us: Callable[[], int | None], act: Callable[[], None]) -> None:
        self.due_us = due_us
        self._act = act

    def advance(self, _now_us: int) -> None:
        """Act."""
        self._act()


class _Steps:
    """Work that continues with a step each time, until it is done."""

    def __init__(self, steps: Task[None], timers: "Timers") -> None:
        self._steps = steps
        self._timers = timers

    def due_us(self) -> int:
        return 0

    def advance(self, _now_us: int) -> None:
        for _ in self._steps:
            return
        self._timers.remove(self)


class Timers:
    """A heap of due times."""

    def __init__(self) -> None:
        self._heap: LazyHeap[tuple[int, Rank, Timed]] = LazyHeap()
        self._added: dict[Timed, tuple[Rank, HandOn | None]] = {}
        self._noted: dict[Timed, int] = {}
        self._done: dict[Timed, None] = {}
        """Items that the current run has run: they are scheduled again when it is over."""
        self._numbers = itertools.count()
        self.turn_us = 0
        """When the item that was run last was due."""

    def add(self, item: Timed, hand_on: HandOn | None = None, beside: Timed | None = None) -> None:
        """Let `item` advance when it is due, and hand on what comes of it; in the order of adding,
        or as if it had been added right after `beside`, if that was."""
        number = next(self._numbers)
        rank = self._added[beside][0][0] if beside in self._added else number
        self._added[item] = ((rank, number), hand_on)
        self.note(item)

    def go_on(self, steps: Task[None]) -> bool:
        """Take a step now, and the others as they fall due; False if it was the last one."""
        for _ in steps:
            self.add(_Steps(steps, self))
            return True
        return False

    def remove(self, item: Any) -> None:
        """Do not run this item any more, if it was added."""
        self._added.pop(item, None)
        self._noted.pop(item, None)
        self._done.pop(item, None)

    def note(self, item: Any) -> None:
        """`item` may be due earlier than it was; if it was not added, as most channels, it acts at
        no time."""
        if item not in self._added or item in self._done:
            return
        due_us = item.due_us()
        if due_us is not None:
            noted = self._noted.get(item)
            if noted is None or due_us < noted:
                self._noted[item] = due_us
                heappush(self._heap, (due_us, self._added[item][0], item))

    def expect(self, item: Any) -> None:
        """`item` may have become due; quick where it is scheduled already."""
        if item not in self._noted and item in self._added:
            self.note(item)

    def due_us(self) -> int | None:
        """When something is next due."""
        heap = self._heap
        # Several times a turn, so without a call where the first is valid.
        if heap and self._noted.get(heap[0][2]) != heap[0][0]:
            heap.first(self._is_noted)
        return heap[0][0] if heap else None

    def _is_noted(self, entry: tuple[int, Rank, Timed]) -> bool:
        return self._noted.get(entry[2]) == entry[0]

    def check(self) -> None:
        """Assert what is always true of timers, between two steps."""
        heap = {(due_us, item) for due_us, _, item in self._heap}
        assert heap >= {(due_us, item) for item, due_us in self._noted.items()}, (
            "lost from the heap"
        )
        assert self._noted.keys() <= self._added.keys()
        assert self._done.keys() <= self._added.keys() - self._noted.keys()
        for item in self._added.keys() - self._done.keys():
            due_us = item.due_us()
            assert due_us is None or self._noted.get(item, due_us + 1) <= due_us, "due unnoticed"
        self._heap.check()

    def run(self, now_us: int) -> Task[None]:
        """Run what is due by now, one item in each step, in the order in which it was due. An item
        that is due again at once, and not for later, waits until all others have run."""
        try:
            while (due_us := self.due_us()) is not None and due_us <= now_us:
                item = heappop(self._heap)[2]
                del self._noted[item]
                self._done[item] = None
                ready_us = item.due_us()
                if ready_us is not None and ready_us <= now_us:
                    self.turn_us = ready_us
                    self._act(item, now_us)
                    next_us = item.due_us() if item in self._done else None
                    if next_us is not None and ready_us < next_us <= now_us:
                        del self._done[item]
                        self.note(item)
                    yield
            while len(self._done) > NOTED_AT_ONCE:
                for item in [*islice(self._done, NOTED_AT_ONCE)]:
                    del self._done[item]
                    self.note(item)
                yield
        finally:
            done, self._done = self._done, {}
            for item in done:
                self.note(item)

    def _act(self, item: Timed, now_us: int) -> None:
        try:
            # Before it advances, and perhaps is removed.
            hand_on = self._added[item][1]
            outcome = item.advance(now_us)
            if hand_on is not None:
                hand_on(item, outcome)
        except Exception:
            # It would fail again at once, without end.
            self._done.pop(item, None)
            raise


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
