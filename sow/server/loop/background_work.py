"""Background work on the loop: what falls due, conflation of slow clients' queues, cache sweeps,
and the fan-out of a commit to very many sessions.

Each may have very much to do at one moment: a million records expire, a hundred slow clients have
queues of ten thousand updates, as many compiled filters are unused, or ten thousand sessions have
messages, at some twenty microseconds a send. It is done in bounded steps, and other work runs in
between.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from sow.core.cache import sweep
from sow.core.cooperative import Task
from sow.core.histograms import Histogram
from sow.engine.engine import Engine
from sow.server.loop.latency import LoopLatency
from sow.server.loop.scheduler import FairScheduler
from sow.sessions.commands.session_manager import SessionManager
from sow.streaming.sessions import Session


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

    def begin(self) -> None:
        """Something is due; a run may be queued already."""
        self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Process timers until `until_s` (loop time); returns whether there is more."""
        while True:
            steps, self._steps = self._steps or self._engine.fall_due(self._now_us()), None
            for _ in steps:
                if self._loop.time() >= until_s:
                    self._steps = steps
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
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        sessions.on_backlog(lambda: turns.add(self))

    def go_on(self, until_s: float) -> bool:
        """Conflate until `until_s` (loop time); returns whether there is more."""
        while self._sessions.fold_some(self._now_us()):
            if self._loop.time() >= until_s:
                return True
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


WRITTEN_AT_ONCE = 100
"""Sessions written to in the step of the commit itself: two milliseconds."""
WRITTEN_BETWEEN_LOOKS = 10
"""Sessions between two checks of the time: a fifth of a millisecond."""


class FanoutWriter:
    """Writes to each session with pending messages, as work of the scheduler `turns`: to a hundred
    at once, to the others in slices. A session that waits here while more messages arrive gets all
    of them in one write. `now_us` returns the time."""

    name = "writing"

    def __init__(self, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, float | None] = {}
        """Sessions still to be written to, with the loop time of their first pending message; None
        where it is not known. While there are any this is queued in `turns`."""
        self.times = Histogram()
        """Latency from the flush that produced a message until it was handed to the session's
        socket."""

    def begin(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        """These sessions have pending messages, since `begun_s` of the loop's time."""
        left = iter(sessions)
        try:
            if not self._waiting:
                self._write_now(islice(left, WRITTEN_AT_ONCE), begun_s)
        finally:
            # Those behind them, and behind one that has failed.
            for session in left:
                self._waiting.setdefault(session, begun_s)
            self._queue_up()

    def _write_now(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        now_us, count = self._now_us(), 0
        for session in sessions:
            session.write(now_us)
            count += 1
        if begun_s is not None and count:
            self.times.note(self._loop.time() - begun_s, count)

    def _queue_up(self) -> None:
        if self._waiting:
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Write until `until_s` (loop time); returns whether there is more."""
        try:
            while self._waiting:
                self._write_some(WRITTEN_BETWEEN_LOOKS)
                if self._loop.time() >= until_s:
                    break
        finally:
            self._queue_up()  # also after one has failed
        return bool(self._waiting)

    def finish(self) -> None:
        """Write to all waiting sessions."""
        self._write_some(len(self._waiting))

    def _write_some(self, count: int) -> None:
        noted: dict[float, int] = {}
        now_us = self._now_us()
        while self._waiting and count:
            count -= 1
            session = next(iter(self._waiting))
            begun_s = self._waiting.pop(session)
            session.write(now_us)
            if begun_s is not None:
                noted[begun_s] = noted.get(begun_s, 0) + 1
        for begun_s, session_count in noted.items():
            self.times.note(self._loop.time() - begun_s, session_count)
