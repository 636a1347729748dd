"""The driver: gives the engine time, a disk and sockets.

    something happened ──wake──> turn: flush the engine into a group
        nothing to store, nothing on its way: the group is released at once
        else: stored with the next commit (`sow.server.loop.group_commit`)
    stored ──> release ──> every session of the group is written to
    (`sow.server.loop.fanout_writer`),
                           waiting requests go on

The alarm wakes the engine when it is next due (`sow.server.loop.deadline`), and what can wait is
done a little at a time when nothing else is. Nothing here knows what a topic is.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sow.core.clock import SECOND_US, Clock
from sow.core.cooperative import Task
from sow.core.histograms import Histogram
from sow.engine.engine import Engine
from sow.engine.wal import Group
from sow.errors import DiskFull, StoreError, StoreFailing
from sow.expressions import Filter
from sow.server.loop.clock_jump import ClockJumps
from sow.server.loop.deadline import DeadlineTimer
from sow.server.loop.due_timers import DueTimers
from sow.server.loop.fanout_writer import FanoutWriter
from sow.server.loop.group_commit import GroupCommit
from sow.server.loop.loop_latency import LoopLatency
from sow.server.loop.scheduler import SLICE_S, FairScheduler
from sow.store.protocols import Journal
from sow.streaming.sessions import Session

Result = TypeVar("Result")

TIDY_S = 0.05
"""How long after something has happened what can wait begins: a burst is over by then."""
TIDY_MORE_S = 0.005
"""The pause between two pieces of it, in which everything else has its turn."""
TIDY_NOTES = 100
"""Index upkeep while there is time, as often as a slice of the loop has room for it: each takes a
microsecond, or forty where records are large or far from each other in memory."""
LOST = f"{StoreFailing.reason}: the data directory has changed under the server"
"""What readiness says of it; where it is, is nothing for strangers."""


class ServerRuntime:
    """Turns the engine on one event loop, with what `journal` stores and `clock` says.

    `windows_us` says for each topic for how many microseconds a commit may wait for more to store
    with it (`GroupCommit`). `idle_work` are bounded pieces of work for when there is time, by name:
    each is given the time in microseconds, and says whether it has more. `turn_work` is what must
    not wait for that: given the time after each turn, it mostly finds that there is nothing to do
    yet. `watch` is told how long each step took.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        windows_us: Mapping[str, int] | None = None,
        watch: LoopLatency | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.journal = journal
        self.idle_work: dict[str, Callable[[int], bool]] = {}
        self.turn_work: dict[str, Callable[[int], object]] = {}
        self._loop = asyncio.get_running_loop()
        self.watch = watch or LoopLatency()
        self.turns = FairScheduler(self.watch, self.wake)
        """What may take long is given its turns here."""
        self.durable_times = Histogram()
        """Of each record published, from the turn that carried it out until it was durable."""
        self._woken_s = self._loop.time()
        self._begun_s: dict[int, float] = {}
        """By the numbers of groups that are not released: since when there was something to do."""
        self._commit = GroupCommit(
            journal, windows_us or {}, self._release, self._fail, self._recover
        )
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._writers: dict[Session, Callable[[], None]] = {}
        self._writing = FanoutWriter(self.turns, self._write_to)
        self._turning = False
        self._falling_due = DueTimers(engine, self.turns, self.now_us)
        self._alarm = DeadlineTimer(clock, self._falling_due.begin)
        self._tidying: asyncio.TimerHandle | None = None
        self._clock_watch = ClockJumps(clock)
        self._finishing: set[asyncio.Task[None]] = set()
        engine.on_work(self.wake)
        engine.publications.on_left(
            lambda publication: self._go_on(engine.publications.finish(publication))
        )
        engine.atomic.on_left(self._go_on)

    # Sessions.

    def attach(self, session: Session, write: Callable[[], None]) -> None:
        """`write` is called whenever the session has something that may leave.

        A session is on one socket at a time: the writer of an earlier one is in place no more.
        """
        self._writers[session] = write

    def detach(self, session: Session) -> None:
        """The session's socket has gone."""
        self._writers.pop(session, None)

    # Turning.

    def wake(self) -> None:
        """Something was done to the engine: flush it before the loop waits again."""
        if not self._turning:
            self._turning = True
            self._woken_s = self._loop.time()
            self._loop.call_soon(self._turn)

    def watched(self, name: str) -> "WatchedStep":
        """What is done within keeps the loop by this name."""
        return WatchedStep(self.watch, name, self._loop)

    def filter(self, text: str) -> Filter:
        """The filter that a request asks by, as of now; raises what `Engine.filter` does."""
        self.engine.reach(self.now_us())
        return self.engine.filter(text).at(self.engine.now_us)

    def _turn(self) -> None:
        self._turning = False
        with self.watched("storing and telling"):
            self._flush()
        for name, work in self.turn_work.items():
            began = self._loop.time()
            work(self.now_us())
            self.watch.note(name, self._loop.time() - began)

    def _flush(self) -> None:
        self.engine.reach(self.now_us())
        group = self.engine.flush()
        if group.entries or group.sessions:
            self._begun_s[group.number] = self._woken_s
        if self.failure is not None:
            # The disk refuses; reads go on. Entries can only be expirations: the door is shut.
            self._commit.keep(group.entries)
            self._release(group)
        elif self._commit.is_idle and not group.entries:
            self._release(group)
        else:
            self._commit.add(group)
        self._alarm.set(self.engine.due_us())
        if self._tidying is None:
            self._tidying = self._loop.call_later(TIDY_S, self._tidy)

    def _tidy(self) -> None:
        self._clock_watch.look()
        self.watch.look()
        with self.watched("tidying indexes"):
            until = self._loop.time() + SLICE_S
            while (more := self.engine.refresh_indexes(TIDY_NOTES)) and self._loop.time() < until:
                pass
        for name, work in self.idle_work.items():
            with self.watched(name):
                more |= work(self.now_us())
        self._tidying = self._loop.call_later(TIDY_MORE_S, self._tidy) if more else None

    def _release(self, group: Group) -> None:
        with self.watched("writing"):
            self._write(group)

    def _write(self, group: Group) -> None:
        self.engine.release(group)
        begun_s = self._begun_s.pop(group.number, None)
        if begun_s is not None and group.entries and self.failure is None:
            took_s = self._loop.time() - begun_s
            self.durable_times.note(took_s, sum(map(len, group.entries)))
        self._writing.begin(group.sessions, begun_s)
        while self._waiters and self._waiters[0][0] <= group.number:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    def _write_to(self, session: Session) -> None:
        write = self._writers.get(session)
        if write is not None:
            write()

    # The disk.

    @property
    def failure(self) -> StoreError | None:
        """What the disk said when it refused a write, until it takes one."""
        return self._commit.failure

    @property
    def delivered_times(self) -> Histogram:
        """Of each session told something in a turn, until its socket had all that it would take."""
        return self._writing.times

    @property
    def commit_times(self) -> Histogram:
        """Of each commit, as `GroupCommit` says."""
        return self._commit.commit_times

    @property
    def fsync_times(self) -> Histogram:
        """Of the journal's part in it."""
        return self._commit.fsync_times

    def late_s(self) -> float:
        """For how many seconds what was due, such as conflated updates, has not been done."""
        due_us = self.engine.due_us()
        return 0.0 if due_us is None else max(0.0, (self.now_us() - due_us) / SECOND_US)

    @property
    def refusal(self) -> str | None:
        """Why messages are refused, or None while they are taken."""
        if self.failure is not None:
            return self.failure.reason
        kept_bytes = self.engine.catalog.usage.named_bytes
        if self.journal.has_room(kept_bytes):
            return None
        return LOST if self.journal.lost() else DiskFull.reason

    @property
    def scarce_bytes(self) -> int | None:
        """How many bytes of messages the disk takes at once, about, where one frame may have more;
        None: it takes all that one may have."""
        kept_bytes = self.engine.catalog.usage.named_bytes
        if self.journal.has_room(kept_bytes + self.engine.configuration.limits.frame_bytes_max):
            return None
        # What is written takes twice its bytes, as `has_room` counts it.
        return max(0, self.journal.room_bytes // 2 - kept_bytes)

    def _fail(self, failure: StoreError, groups: Sequence[Group]) -> None:
        """The disk refused what was already visible: say so to all who wait for it.

        Rare, since the engine asks for room before it takes a message. Nobody who waits is
        acknowledged: requests fail, sessions with anything in these groups are ended.
        """
        self.engine.disk.fail(failure)
        # The open group too: what was taken a moment ago must not be acknowledged either.
        last = self.engine.flush()
        self._commit.keep(last.entries)
        groups = [*groups, last]
        for group in groups:
            for session in group.sessions:
                session.end(failure.reason, self.now_us())
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(failure)
        for group in groups:
            self._release(group)

    def _recover(self) -> None:
        self.engine.disk.recover()

    def _go_on(self, steps: Task[None]) -> None:
        """Finish what was begun by a client that has gone."""
        task = self._loop.create_task(self.turns.take("a write whose client has gone", steps))
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    # Waiting.

    @property
    def behind(self) -> bool:
        """The disk is so far behind that publishers should wait for it."""
        return self._commit.is_behind

    @property
    def bytes_logged(self) -> int:
        """Bytes of bodies given to the journal since the server started."""
        return self._commit.bytes_logged

    async def durable(self) -> None:
        """Return when everything done to the engine so far is durable.

        Raises StoreError, which is what the disk said, when it refuses.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self.engine.group, waiter))
        self.wake()
        await waiter

    async def settled(self) -> None:
        """Return when what was just read is durable; while the disk refuses, reads go on without
        waiting."""
        if self.failure is None:
            await self.durable()

    def next_commit(self) -> asyncio.Future[None]:
        """Done when the journal has grown from now; for all who wait, so not to be cancelled."""
        return self._commit.next()

    async def run_in_journal_thread(
        self, work: Callable[..., Result], *arguments: object
    ) -> Result:
        """Run something that must not run beside an append; returns and raises what it does."""
        return await self._commit.run_in_thread(work, *arguments)

    # Time.

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """What all of it runs on."""
        return self._loop

    def now_us(self) -> int:
        """The present moment, in microseconds since 1970 UTC."""
        return self.clock.now_us()

    def clock_ahead_s(self) -> float:
        """How many seconds the server's time is ahead of the machine's; see `ClockJumps`."""
        return self._clock_watch.ahead_s()

    async def close(self) -> None:
        """Finish and store everything that was begun, stop the timers and the thread."""
        await asyncio.gather(*self._finishing)
        if self.failure is None:
            await self.durable()
        self._alarm.cancel()
        self._writing.finish()
        self.turns.close()
        if self._tidying is not None:
            self._tidying.cancel()
        await self._commit.close()


class WatchedStep:
    """A step of `name`, for as long as it is within; no generator, since each turn has two."""

    __slots__ = ("_began_s", "_loop", "_name", "_watch")

    def __init__(self, watch: LoopLatency, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._watch = watch
        self._name = name
        self._loop = loop

    def __enter__(self) -> None:
        self._began_s = self._loop.time()

    def __exit__(self, *_error: object) -> None:
        self._watch.note(self._name, self._loop.time() - self._began_s)
