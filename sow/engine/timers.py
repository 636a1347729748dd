"""The timers: what is due when, so that nobody has to be asked who has nothing to do.

Whoever does something by itself as time passes (a conflated topic, a conflated subscription,
lifetimes, sessions that go) is added once and *noted* whenever it may have become due earlier
than it said before. Things due at the same time are done in the order they were added in, so a
conflated topic comes before what is made from it. Times are in microseconds; no clock here.
"""

import heapq
import itertools
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

from sow.core.cooperative import Task

NOTED_AT_ONCE = 500
"""Things that are waited for again in one step when a run is over: a microsecond or two each."""
Rank = tuple[int, int]
"""In which order things are done that are due at one time."""


class Timed(Protocol):
    """Something that knows when it is next due."""

    def due_us(self) -> int | None:
        """When it next has something to do, or None."""
        ...


class Timers:
    """A heap of due times; entries that are out of date are passed over."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Rank, Timed]] = []
        self._added: dict[Timed, tuple[Rank, Callable[[Any, int], None]]] = {}
        self._noted: dict[Timed, int] = {}
        self._done: dict[Timed, None] = {}
        """What has been done in a run that goes on: it is not waited for until the run is over."""
        self._numbers = itertools.count()

    def add(
        self, item: Timed, act: Callable[[Any, int], None], beside: Timed | None = None
    ) -> None:
        """`act(item, now_us)` is called when `item` is due; in the order of adding, or as if it had
        been added right after `beside`."""
        number = next(self._numbers)
        rank = number if beside is None else self._added[beside][0][0]
        self._added[item] = ((rank, number), act)
        self.note(item)

    def remove(self, item: Timed) -> None:
        """This is not waited for any more."""
        self._added.pop(item, None)
        self._noted.pop(item, None)
        self._done.pop(item, None)

    def note(self, item: Timed) -> None:
        """`item` may be due earlier than it was."""
        # Most strands are never waited for: they are not asked.
        if item not in self._added or item in self._done:
            return
        due_us = item.due_us()
        if due_us is not None:
            noted = self._noted.get(item)
            if noted is None or due_us < noted:
                self._noted[item] = due_us
                heapq.heappush(self._heap, (due_us, self._added[item][0], item))

    def expect(self, item: Timed) -> None:
        """`item` may be due now that it was not before; quick where it is waited for already."""
        if item not in self._noted and item in self._added:
            self.note(item)

    def due_us(self) -> int | None:
        """When something is next due."""
        heap = self._heap
        while heap and self._noted.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

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
        for at in range(1, len(self._heap)):
            assert self._heap[(at - 1) // 2] <= self._heap[at]

    def run(self, now_us: int) -> Task[None]:
        """Do what is due by now, one thing at each step and each thing once: what is due again at
        once waits its turn, which comes when everything else has had its own."""
        try:
            while (due_us := self.due_us()) is not None and due_us <= now_us:
                item = heapq.heappop(self._heap)[2]
                del self._noted[item]
                self._done[item] = None
                ready_us = item.due_us()
                if ready_us is not None and ready_us <= now_us:
                    self._act(item, now_us)
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
            self._added[item][1](item, now_us)
        except Exception:
            # It would fail again at once, and for ever.
            self._done.pop(item, None)
            raise
