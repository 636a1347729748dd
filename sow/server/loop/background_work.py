"""Background work on the loop: what falls due, conflation of slow clients' queues, cache sweeps.

Each may have very much to do at one moment: a million records expire, a hundred slow clients have
queues of ten thousand updates, or as many compiled filters are unused. It is done in bounded steps,
and other work runs in between.
"""

import asyncio
from collections.abc import Callable, Iterator

from sow.core.cache import sweep
from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.server.loop.latency import LoopLatency
from sow.server.loop.scheduler import FairScheduler
from sow.sessions.commands.session_manager import SessionManager


class DueTimers:
    """Processes what is due in `engine` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "what falls due"

    def __init__(self, engine: Engine, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._steps: Task[None] | None = None
        self._in_line = False

    def begin(self) -> None:
        """Something is due; a run may be queued already."""
        if not self._in_line:
            self._in_line = True
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Process timers until `until_s` (loop time); returns whether there is more."""
        self._in_line = False
        while True:
            steps, self._steps = self._steps or self._engine.fall_due(self._now_us()), None
            for _ in steps:
                if self._loop.time() >= until_s:
                    self._steps, self._in_line = steps, True
                    return True
            due_us = self._engine.due_us()
            if due_us is None or due_us > self._engine.now_us:
                return False


class BackgroundConflation:
    """Conflates queues of `sessions` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "folding queues"

    def __init__(
        self, sessions: SessionManager, turns: FairScheduler, now_us: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._in_line = False
        sessions.on_backlog(self._begin)

    def _begin(self) -> None:
        if not self._in_line:
            self._in_line = True
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Conflate until `until_s` (loop time); returns whether there is more."""
        self._in_line = True
        while self._sessions.fold_some(self._now_us()):
            if self._loop.time() >= until_s:
                return True
        self._in_line = False
        return False


SWEEP_S = 25.0
"""Time between two sweeps: with two of them an unused entry is freed within a minute."""


class CacheSweeper:
    """Sweeps until it is closed; reports the duration of each step to `watch`."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(SWEEP_S, self._begin)

    def _begin(self) -> None:
        self._go_on(sweep())

    def _go_on(self, steps: Iterator[None]) -> None:
        began_s = self._loop.time()
        if next(steps, self) is self:
            self._next = self._loop.call_later(SWEEP_S, self._begin)
        else:
            self._next = self._loop.call_later(0, self._go_on, steps)
        self._watch.note("letting go of filters", self._loop.time() - began_s)

    def close(self) -> None:
        """Stop sweeping."""
        self._next.cancel()
