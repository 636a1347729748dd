"""Timers: what is due when, so that idle items cost nothing.

Whatever acts as time passes is `Timed`: a conflated topic, a conflated subscription, a live window,
lifetimes, a session without a socket, long work. It is added once and *noted* whenever it may be
due earlier than it was. Items due at the same time run in the order in which they were added, so a
conflated topic runs before what is derived from it. Times are in microseconds; there is no clock
here.
"""

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Protocol

from sow.core.containers import LazyHeap
from sow.core.cooperative import Task

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
