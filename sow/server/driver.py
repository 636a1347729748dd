"""The driver: gives the engine time, a disk and sockets.

    something happened ──wake──> turn: flush the engine into a group
        nothing to store, nothing on its way: the group is released at once
        else: queued; one commit at a time stores all that queued up meanwhile (group commit)
    stored ──> release ──> every session of the group is written to, waiting requests go on

The journal is written in a thread of its own: a commit waits for the disk, the loop does not.
The alarm wakes the engine when it is next due. Nothing here knows what a topic is.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sow.clock import Clock
from sow.delivery.sessions import Session
from sow.engine.engine import Engine, Group
from sow.errors import DiskFull, SowError, StoreError, StoreFailing
from sow.store.protocols import Journal, LogEntry

log = logging.getLogger("sow")

Result = TypeVar("Result")

BEHIND_BYTES_MAX = 64 * 1024**2
"""Not yet durable bytes beyond which publishers have to wait for the disk."""
ROW_BYTES = 16
"""What a record takes in the journal beside its body, about."""
RETRY_S = 0.5
ALARM_S_MAX = 10.0
"""The loop counts on, the clock may be set forward: so often it is asked whether it has been."""
TELLING_US_MIN = 1_000_000
"""A clock that was set by less is nobody's concern."""
TIDY_S = 0.05
TIDY_MORE_S = 0.005
TIDY_NOTES = 1000
"""Index upkeep while there is time: half a millisecond of work at most, then the loop again."""


class Driver:
    """Turns the engine on one event loop.

    `windows_us` says for each topic how long a commit may wait for more to store with it; the
    most impatient topic of a commit decides. A topic that is not named does not wait.
    """

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        clock: Clock,
        windows_us: Mapping[str, int] | None = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.journal = journal
        self._windows_us = {name: us for name, us in (windows_us or {}).items() if us}
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._groups: deque[Group] = deque()
        self._entries: list[LogEntry] = []
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._next_commit: asyncio.Future[None] = self._loop.create_future()
        self._writers: dict[Session, Callable[[], None]] = {}
        self._commit: asyncio.Task[None] | None = None
        self._turning = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us: int | None = None
        self._tidying: asyncio.TimerHandle | None = None
        self._behind_bytes = 0
        self._clock_told = (0, False)
        engine.hear_of_work(self.wake)
        self.idle_work: list[Callable[[int], bool]] = []
        """Bounded pieces of work for when there is time; each says whether it has more."""
        self.bytes_logged = 0
        """Bytes of bodies given to the journal since the server started."""

    @property
    def failure(self) -> StoreError | None:
        """What the disk said when it refused a write, until it takes one."""
        return self.engine.failure

    # Sessions.

    def attach(self, session: Session, write: Callable[[], None]) -> None:
        """`write` is called whenever the session has something that may leave."""
        self._writers[session] = write

    def detach(self, session: Session) -> None:
        """The session's socket has gone."""
        self._writers.pop(session, None)

    # Turning.

    def wake(self) -> None:
        """Something was done to the engine: flush it before the loop waits again."""
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self.engine.reach(self.now_us())
        group = self.engine.flush()
        if self.failure is not None:
            # The disk refuses; reads go on. Entries can only be expirations: the door is shut.
            self._entries += group.entries
            self._release(group)
        elif self._commit is None and not group.entries:
            self._release(group)
        else:
            self._groups.append(group)
            size = _size(group.entries)
            self.bytes_logged += size
            self._behind_bytes += size
            if self._commit is None:
                self._commit = self._loop.create_task(self._commit_groups())
        self._set_alarm()
        if self._tidying is None:
            self._tidying = self._loop.call_later(TIDY_S, self._tidy)

    def _tidy(self) -> None:
        self._watch_clock()
        more = self.engine.refresh_indexes(TIDY_NOTES)
        for work in self.idle_work:
            more |= work(self.now_us())
        self._tidying = self._loop.call_later(TIDY_MORE_S, self._tidy) if more else None

    def _release(self, group: Group) -> None:
        self.engine.release(group)
        for session in group.sessions:
            write = self._writers.get(session)
            if write is not None:
                write()
        while self._waiters and self._waiters[0][0] <= group.number:
            waiter = self._waiters.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)

    async def _commit_groups(self) -> None:
        try:
            while self._groups or self._entries:
                if self._windows_us:
                    await asyncio.sleep(self._window_s())
                groups = list(self._groups)
                self._groups.clear()
                self._entries += [entry for group in groups for entry in group.entries]
                await self._store(groups)
        finally:
            self._commit = None

    def _window_s(self) -> float:
        topics = {entry.topic for group in self._groups for entry in group.entries}
        return min((self._windows_us.get(topic, 0) for topic in topics), default=0) / 1e6

    async def _store(self, groups: list[Group]) -> None:
        entries = list(self._entries)
        try:
            if entries:
                await self._loop.run_in_executor(self._thread, self.journal.append, entries)
        except SowError as error:
            if self.failure is None:
                self._fail(error, groups)
            await asyncio.sleep(RETRY_S)
            return
        if self.failure is not None:
            log.warning("the journal takes messages again")
            self.engine.failure = None
        del self._entries[: len(entries)]
        self._behind_bytes = sum(_size(group.entries) for group in self._groups)
        if entries:
            stored, self._next_commit = self._next_commit, self._loop.create_future()
            stored.set_result(None)
        for group in groups:
            self._release(group)

    def _fail(self, error: SowError, groups: list[Group]) -> None:
        """The disk refused what was already visible: say so to all who wait for it.

        Rare, since the engine asks for room before it takes a message. Nobody who waits is
        acknowledged: requests fail, sessions with anything in these groups are ended. What they
        hold is stored when the disk takes it again (`_entries`), so that what readers see and
        what a restart would find stay one thing.
        """
        log.error("%s", error.detail)
        failure = error if isinstance(error, DiskFull) else _failing(error)
        self.engine.failure = failure
        # The open group too: what was taken a moment ago must not be acknowledged either.
        self._groups.append(self.engine.flush())
        groups = groups + list(self._groups)
        self._entries += [entry for group in self._groups for entry in group.entries]
        self._groups.clear()
        for group in groups:
            for session in group.sessions:
                session.end(failure.reason, self.now_us())
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(failure)
        for group in groups:
            self._release(group)

    @property
    def refusal(self) -> str | None:
        """Why messages are refused, or None while they are taken."""
        if self.failure is not None:
            return self.failure.reason
        return None if self.journal.has_room() else DiskFull.reason

    # Waiting.

    @property
    def behind(self) -> bool:
        """The disk is so far behind that publishers should wait for it."""
        return self._behind_bytes > BEHIND_BYTES_MAX

    async def durable(self) -> None:
        """Return when everything done to the engine so far is durable.

        Raises what the disk said when it refuses.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self.engine.group, waiter))
        self.wake()
        await waiter

    def next_commit(self) -> asyncio.Future[None]:
        """Done when the journal has grown from now; for all who wait, so not to be cancelled."""
        return self._next_commit

    async def run_in_journal_thread(
        self, work: Callable[..., Result], *arguments: object
    ) -> Result:
        """Run something that must not run beside an append."""
        return await self._loop.run_in_executor(self._thread, work, *arguments)

    # Time.

    def now_us(self) -> int:
        """The present moment."""
        return self.clock.now_us()

    def _set_alarm(self) -> None:
        due_us = self.engine.due_us()
        if due_us == self._alarm_us:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_us = due_us
        if due_us is not None:
            delay_s = max(0, due_us - self.now_us()) / 1e6
            self._alarm = self._loop.call_later(min(delay_s, ALARM_S_MAX), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_us = None
        try:
            self.engine.advance(self.now_us())
        finally:
            self.wake()

    def clock_ahead_s(self) -> float:
        """How far the server's time is ahead of the machine's, which was set back; 0: it is not."""
        ahead_us = self.clock.ahead_us()
        return ahead_us / 1e6 if ahead_us > TELLING_US_MIN else 0.0

    def _watch_clock(self) -> None:
        """Say once what somebody has done to the machine's clock."""
        ahead_s, stepped_us = self.clock_ahead_s(), self.clock.stepped_us
        told_stepped_us, told_ahead = self._clock_told
        if stepped_us > told_stepped_us:
            log.warning(
                "the machine's clock was set forward by %.0f s, or it slept: the server's time has "
                "followed, and lifetimes that ended meanwhile are over",
                (stepped_us - told_stepped_us) / 1e6,
            )
        if ahead_s and not told_ahead:
            log.warning(
                "the server's time is ahead of the machine's by %.0f s: the machine's clock was "
                "set back. Time goes on from the newest time in the log, a tenth slower until "
                "they agree",
                ahead_s,
            )
        self._clock_told = (stepped_us, bool(ahead_s))

    async def close(self) -> None:
        """Store everything, stop the timers and the thread."""
        if self.failure is None:
            await self.durable()
        if self._commit is not None:
            self._commit.cancel()
        for timer in (self._alarm, self._tidying):
            if timer is not None:
                timer.cancel()
        await self._loop.run_in_executor(None, self._thread.shutdown)


def _failing(error: SowError) -> StoreFailing:
    return StoreFailing(
        f"{error.detail}; nothing of the request is acknowledged. Reads go on, and messages are "
        "taken again as soon as the disk takes them"
    )


def _size(entries: list[LogEntry]) -> int:
    return sum(map(stored_bytes, entries))


def stored_bytes(entry: LogEntry) -> int:
    """About how many bytes an entry takes in the journal."""
    return sum(map(len, entry.bodies)) + ROW_BYTES * len(entry)
