"""The runtime: connects the engine to time, disk and sockets.

    engine changed ──wake──> slice of the loop: flush the engine into a group
        nothing to store and nothing on its way to the disk: the group is released at once
        else: handed to the journal's thread (`sow.server.loop.group_commit`)
    stored ──> release ──> messages are written to every session of the group
                           (`sow.server.loop.background_work`), waiting requests continue

A timer wakes the engine when something is due, and idle work runs a little at a time when nothing
else does. The runtime does not know what a topic is.

The event loop is uvloop if that is installed, else asyncio's; `sow serve --loop` selects one by
name. It counts its own seconds; deadlines are in microseconds of the server's clock, which may jump
forward meanwhile. So `DeadlineTimer` never sleeps longer than `TIMER_S_MAX`, and then looks again.
The server's time never goes back (`sow.core.clock`); but where the machine's clock is set,
lifetimes end early or time passes more slowly, and `ClockJumps` logs why.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

from sow.core.clock import SECOND_US, Clock
from sow.core.containers import Histogram
from sow.core.cooperative import Result, Task
from sow.engine.engine import Engine
from sow.engine.wal import Group
from sow.errors import (
    ClientError,
    DiskFull,
    LogUnanswered,
    NoQuorum,
    NotLeading,
    OutcomeUnknown,
    SowError,
    StoreError,
    StoreFailing,
)
from sow.expressions import Filter
from sow.server.loop.background_work import BookmarkWaits, DueTimers, FanoutWriter
from sow.server.loop.group_commit import (
    CAUGHT_UP_WINDOW_US,
    SCARCE_WINDOW_US,
    GroupCommit,
    JournalThread,
)
from sow.server.loop.scheduler import SLICE_S, FairScheduler, LoopLatency
from sow.store.protocols import Journal

IDLE_WORK_S = 0.05
"""Delay of idle work after the last flush: a burst is over by then."""
IDLE_WORK_PAUSE_S = 0.005
"""The pause between two pieces of idle work, in which everything else runs."""
REFRESHED_ROWS = 100
"""Rows refreshed in indexes per check of the time: each takes a microsecond, or forty where records
are large or scattered in memory."""
DIRECTORY_CHANGED = f"{StoreFailing.reason}: the data directory has changed under the server"
"""Reported by readiness, without the path, which is not for strangers."""


class ServerRuntime:
    """Runs the engine on one event loop, with the storage `journal` and the time of `clock`.

    `windows_us` are the commit windows of topics (`GroupCommit`). `idle_work` are bounded pieces of
    work by name: each is given the time and returns whether it has more. `flush_work` runs after
    each flush, given the time; mostly it has nothing to do. `watch` gets the duration of each step;
    `writer` makes the thread that writes the journal.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        windows_us: Mapping[str, int],
        watch: LoopLatency,
        writer: Callable[..., JournalThread] = JournalThread,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.now_us = clock.now_us
        """Returns the current time, in microseconds since 1970 UTC."""
        self.journal = journal
        self.idle_work: dict[str, Callable[[int], bool]] = {}
        self.flush_work: dict[str, Callable[[int], object]] = {}
        self._loop = asyncio.get_running_loop()
        self.watch = watch
        self.is_far_behind = False
        """This server catches up with a log: commits gather, indexes are tidied afterwards."""
        self.turns = FairScheduler(self.watch, self.wake)
        """Long work runs here, in slices."""
        self.durable_times = Histogram()
        """Latency of each published record, from its flush until it was durable."""
        self._woken_s = self._loop.time()
        self._begun_s: dict[int, float] = {}
        """Flush time of groups that are not released, by their numbers."""
        self.commit = GroupCommit(
            journal,
            windows_us,
            self._release,
            self._fail,
            self._recover,
            writer,
            gathers_us=self._gathers_us,
        )
        """Stores what is logged."""
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.bookmark_waits = BookmarkWaits(engine)
        self.fanout = FanoutWriter(self.turns, self.now_us)
        """Hands messages to the sockets of sessions."""
        self._flush_is_scheduled = False
        self._due_timers = DueTimers(engine, self.turns, self.now_us)
        self._deadline = DeadlineTimer(clock, self._due_timers.begin)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._clock_jumps = ClockJumps(clock)
        self._finishing: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[Any]] = set()
        engine.on_work(self.wake)
        engine.publications.on_left(
            lambda publication: self._go_on(engine.publications.finish(publication))
        )
        engine.atomic.on_left(self._go_on)

    # Flushing.

    def wake(self) -> None:
        """The engine has changed: flush it in the next iteration of the loop."""
        if not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._woken_s = self._loop.time()
            self._loop.call_soon(self._run_flush)

    def watched(self, name: str) -> "WatchedStep":
        """A context manager that reports what runs within under this name."""
        return WatchedStep(self.watch, name, self._loop)

    def filter(self, text: str) -> Filter:
        """The filter of a request, as of now; raises what `Engine.filter` does."""
        self.engine.sequencer.moment(self.now_us())
        return self.engine.filter(text).at(self.engine.now_us)

    def _run_flush(self) -> None:
        self._flush_is_scheduled = False
        self.turns.renew()
        began_s, now_us = self._loop.time(), self.now_us()
        try:
            self._flush(now_us)
        finally:
            ended_s = self._loop.time()
            self.watch.note("storing and telling", ended_s - began_s)
        for name, work in self.flush_work.items():
            began_s = ended_s
            work(now_us)
            ended_s = self._loop.time()
            self.watch.note(name, ended_s - began_s)

    def _flush(self, now_us: int) -> None:
        self.engine.sequencer.moment(now_us)
        if self._waiters or not self.engine.is_flushed:  # a step that only reads leaves nothing
            self._close_group()
        self._deadline.set(self.engine.due_us())
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(IDLE_WORK_S, self._run_idle_work)

    def _close_group(self) -> None:
        group = self.engine.flush()
        if group.entries or group.sessions:
            self._begun_s[group.number] = self._woken_s
        if self.failure is not None:
            # Reads continue. Entries can only be expirations: publishes are refused.
            self.commit.keep(group.entries)
            self._release([group])
        else:
            self.commit.add(group)
            if self.engine.output.is_stalled:
                self.fanout.begin(group.sessions, None)

    def note_far_behind(self, is_far_behind: bool) -> None:
        """Note whether the log that this server catches up with is far ahead."""
        self.is_far_behind = is_far_behind

    def _gathers_us(self) -> int:
        """How long each commit waits for more, whatever its topics say; 0: as they say."""
        if self.engine.disk.scarce_deletes:
            return SCARCE_WINDOW_US
        return CAUGHT_UP_WINDOW_US if self.is_far_behind else 0

    def _run_idle_work(self) -> None:
        self._clock_jumps.look()
        self.watch.look()
        more = self.is_far_behind or self._tidy_indexes()
        for name, work in self.idle_work.items():
            with self.watched(name):
                more |= work(self.now_us())
        self._idle_timer = (
            self._loop.call_later(IDLE_WORK_PAUSE_S, self._run_idle_work) if more else None
        )

    def _tidy_indexes(self) -> bool:
        """Work off what changes have left to do in indexes; returns whether there is more."""
        with self.watched("tidying indexes"):
            until = self._loop.time() + SLICE_S
            while more := bool(self.engine.catalog.refresh_indexes(REFRESHED_ROWS)):
                if self._loop.time() >= until:
                    break
        return more

    def _release(self, groups: Sequence[Group]) -> None:
        began_s = self._loop.time()
        try:
            self._write(groups, began_s)
        finally:
            self.watch.note("writing", self._loop.time() - began_s)

    def _write(self, groups: Sequence[Group], now_s: float) -> None:
        """Who has messages of several groups gets them in one write, since the first of these."""
        sessions, since_s = groups[0].sessions, None
        if len(groups) > 1:
            sessions = {session: None for group in groups for session in group.sessions}
        for group in groups:
            self.engine.sequencer.release(group)
            begun_s = self._begun_s.pop(group.number, None)
            since_s = begun_s if since_s is None else since_s
            if begun_s is not None and group.entries and self.failure is None:
                self.durable_times.note(now_s - begun_s, sum(map(len, group.entries)))
        self.fanout.begin(sessions, since_s)
        while self._waiters and self._waiters[0][0] <= groups[-1].number:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self.bookmark_waits.release()

    # The disk.

    @property
    def failure(self) -> StoreError | None:
        """The disk's error since it refused a write, until it accepts one."""
        return self.commit.failure

    def late_s(self) -> float:
        """Seconds by which the engine's timers, such as those of conflated topics, are late."""
        due_us = self.engine.due_us()
        return 0.0 if due_us is None else max(0.0, (self.now_us() - due_us) / SECOND_US)

    @property
    def refusal(self) -> str | None:
        """Why messages are refused; None while they are accepted."""
        failure = self.failure or self.engine.disk.failure
        if failure is not None:
            return failure.reason
        kept_bytes = self.engine.catalog.usage.named_bytes
        if self.journal.has_room(kept_bytes):
            return None
        return DIRECTORY_CHANGED if self.journal.lost() else DiskFull.reason

    @property
    def scarce_bytes(self) -> int | None:
        """About how many bytes of messages the disk has room for, if that is less than one frame
        may have; None: it has room for any frame."""
        kept_bytes = self.engine.catalog.usage.named_bytes
        if self.journal.has_room(kept_bytes + self.engine.configuration.limits.frame_bytes_max):
            return None
        # A write takes twice its bytes, as `has_room` counts it.
        return max(0, self.journal.room_bytes // 2 - kept_bytes)

    def _fail(self, failure: StoreError, groups: Sequence[Group]) -> None:
        """The disk refused entries that are visible already: fail everything that waits for them.

        This is rare, since the engine reserves room before it accepts a message. Nothing is
        acknowledged: requests fail, sessions with messages of these groups are ended.
        """
        self.engine.disk.fail(failure)
        # The open group too: what was accepted a moment ago must not be acknowledged either.
        last = self.engine.flush()
        self.commit.keep(last.entries)
        groups = [*groups, last]
        for group in groups:
            for session in group.sessions:
                session.end(failure.reason, self.now_us())
        self.give_up(failure)
        self._release(groups)

    def give_up(self, error: SowError) -> None:
        """Let nobody wait any longer until a change is durable."""
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _recover(self) -> None:
        self.engine.disk.recover()

    def _go_on(self, steps: Task[None]) -> None:
        """Finish the write of a client that has disconnected."""
        task = self._loop.create_task(self.turns.run("a write whose client has gone", steps))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    def begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run work that goes on if who waits for it leaves; it is cancelled when the server
        stops."""
        task = self._loop.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it gets it, if anybody does

    # Waiting.

    async def durable(self) -> None:
        """Return when every change made so far is durable; raises the disk's StoreError when it
        refuses."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self.engine.sequencer.open.number, waiter))
        self.wake()
        await waiter

    async def settled(self) -> None:
        """Return when what was just read is durable; at once while nothing can be stored, since
        reads continue."""
        if self.engine.disk.failure is None:
            try:
                await self.durable()
            except SowError:
                return  # without a context manager, which is three calls for each query

    # Time.

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def clock_ahead_s(self) -> float:
        """Seconds by which the server's time is ahead of the machine's."""
        return self._clock_jumps.ahead_s()

    async def close(self) -> None:
        """Finish and store everything begun, stop the timers and the thread. Raises the disk's
        StoreError where that refuses at this moment; all is stopped then, too."""
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
        try:
            await self._store_all()
        finally:
            self._deadline.cancel()
            self.fanout.finish()
            self.turns.close()
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            await self.commit.close()

    async def _store_all(self) -> None:
        # Another node may begin to lead meanwhile: then what waits is stored nowhere, for certain;
        # or this one leaves the shared log, and who waits gets to know that.
        with suppress(NotLeading, NoQuorum, OutcomeUnknown, LogUnanswered):
            await asyncio.gather(*self._finishing)
            if self.engine.disk.failure is None:
                await self.durable()
                while self.engine.output.is_behind:
                    await self.durable()


class WatchedStep:
    """Measures a step under `name`."""

    __slots__ = ("_began_s", "_loop", "_name", "_watch")

    def __init__(self, watch: LoopLatency, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = watch
        self._name = name
        self._loop = loop

    def __enter__(self) -> None:
        self._began_s = self._loop.time()

    def __exit__(self, *_error: object) -> None:
        self._watch.note(self._name, self._loop.time() - self._began_s)


Loop = asyncio.AbstractEventLoop
LOOPS = ("asyncio", "uvloop")
"""The names that --loop accepts."""


def loop_factory(
    name: str | None = None, find: Callable[[str], ModuleType] = import_module
) -> Callable[[], Loop]:
    """The factory of the loop `name`; None: uvloop if it is installed.

    `find` imports a module by name. Raises ClientError if the requested loop is not installed.
    """
    if name != "asyncio":
        try:
            uvloop = find("uvloop").Loop
        except ImportError:
            if name is not None:
                raise ClientError(
                    "uvloop is not installed; install it with pip install 'sow[uvloop]', or leave "
                    "out --loop"
                ) from None
        else:
            return exactly_timed(uvloop)
    return asyncio_loop


def exactly_timed(loop: type[Loop]) -> type[Loop]:
    """uvloop's loop with the time of the clock behind its own, which counts whole milliseconds: of
    a slice of two it would leave one to three."""
    own = {"time": staticmethod(time.monotonic), "__module__": loop.__module__}
    return type(loop.__name__, (loop,), own)


def asyncio_loop() -> Loop:
    """asyncio's own loop. Its time is read some fifty times for each frame, so without the method
    of Python's around the clock."""
    loop = asyncio.new_event_loop()
    vars(loop)["time"] = time.monotonic
    return loop


def loop_name(loop: Loop) -> str:
    """The name of a loop's implementation."""
    return type(loop).__module__.partition(".")[0]


TIMER_S_MAX = 10.0
"""A jump of the clock is noticed after at most this many seconds; a check costs microseconds."""


class DeadlineTimer:
    """Calls `on_due` at the deadline last set, or earlier."""

    def __init__(self, clock: Clock, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_us: int | None = None

    def set(self, due_us: int | None) -> None:
        """Fire at `due_us`, in microseconds of the clock, and at no other time; None: never."""
        if due_us == self._due_us:
            return
        self.cancel()
        self._due_us = due_us
        if due_us is not None:
            delay_s = max(0, due_us - self._clock.now_us()) / 1e6
            self._timer = self._loop.call_later(min(delay_s, TIMER_S_MAX), self._fire)

    def _fire(self) -> None:
        self._timer = self._due_us = None
        self._on_due()

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due_us = None


log = logging.getLogger("sow")

REPORTED_US_MIN = 1_000_000
"""Smaller corrections are normal: time servers make them."""


class ClockJumps:
    """Watches one clock; call `look` from time to time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_stepped_us = 0
        self._reported_ahead = False

    def ahead_s(self) -> float:
        """Seconds by which the server's time is ahead of the machine's clock, which was set back; 0
        if it is not, or by too little to matter."""
        ahead_us = self._clock.ahead_us()
        return ahead_us / 1e6 if ahead_us > REPORTED_US_MIN else 0.0

    def look(self) -> None:
        """Log a warning about what has changed since the last call."""
        ahead_s, stepped_us = self.ahead_s(), self._clock.stepped_us
        if stepped_us > self._reported_stepped_us:
            log.warning(
                "the machine's clock was set forward by %.0f s, or it slept: the server's time has "
                "followed, and lifetimes that ended meanwhile are over",
                (stepped_us - self._reported_stepped_us) / 1e6,
            )
        if ahead_s and not self._reported_ahead:
            log.warning(
                "the server's time is ahead of the machine's by %.0f s: the machine's clock was "
                "set back. Time goes on from the newest time in the log, a tenth slower until "
                "they agree",
                ahead_s,
            )
        self._reported_stepped_us, self._reported_ahead = stepped_us, bool(ahead_s)
