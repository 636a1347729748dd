"""Group commit: what has to be stored is handed to one thread, in order; what waits there is stored
together.

    add ──> handed to the thread that writes the journal, at once: it never waits for the loop
            between two commits, and each stores all that came during the one before
    stored ──> its groups are released, in order; one without entries with those before it
    the disk refuses ──> that group and all behind it are refused: waiters get the error; the
            entries are stored as soon as possible

So several groups are on their way: one is written, others wait for the thread, and the next one
collects. The disk is waited for in the thread, never in the loop.

What is too much for one transaction is written ahead by the same thread (`LoadWriter`), in parts
that groups have their turns between, and is made part of the log by an entry of a group.
"""

import asyncio
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from sow.core.containers import Histogram, sharded_if_long
from sow.core.definitions import Configuration, Topic
from sow.engine.capacity import DiskReserve
from sow.engine.wal import Group
from sow.errors import (
    DiskFull,
    NoQuorum,
    NotLeading,
    OutcomeUnknown,
    SowError,
    StoreError,
    StoreFailing,
)
from sow.store.protocols import TOPICS_LIFETIME, Journal, Load, Loads, LogEntry
from sow.topic.records import CheckedMessages

log = logging.getLogger("sow")

Result = TypeVar("Result")
Entries = Sequence[LogEntry]

BACKLOG_BYTES_MAX = 64 * 1024**2
"""Bytes not yet durable beyond which publishers wait for the disk: at most a second of what a usual
disk writes, and little beside the records that they become."""
ROW_BYTES = 16
"""Approximate overhead of a record in the journal: length, sequence number, time."""
LOAD_PART_BYTES = 512 * 1024
"""Bodies of one part that is written ahead, which others wait for: a few milliseconds."""
SCARCE_WINDOW_US = 200_000
"""How long a commit waits while records are deleted on a disk that is nearly full: each write takes
two to three pages whatever it holds, and so thousands of records share them. Nobody is in a hurry
there."""
CAUGHT_UP_WINDOW_US = 50_000
"""How long a commit waits while a log is caught up with that is far ahead: some ten thousand
records share a sync, and who waits for the end of that log waits so much longer at most."""
RETRY_S = 0.5
"""Delay before a refused write is tried again: soon enough that nobody has to intervene, rare
enough not to fill the machine's log."""


class JournalThread(threading.Thread):
    """The thread that writes `journal`, from the first thing that it is given until `end`.

    It reports to `loop`: to `stored` the number up to which everything is durable now, when that
    write began and how long it took; to `refused` an error. From then on it drops what it is given,
    until it is to store something `again`.
    """

    writes_ahead = True
    """What is too much for one transaction may be written ahead (`LoadWriter`)."""
    change_bytes_max: int | None = None
    """The largest change that it takes; None: any."""

    def __init__(
        self,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        stored: Callable[[int, float, float], None],
        refused: Callable[[Exception], None],
    ) -> None:
        # The process does not wait for the thread of a server that was not closed.
        super().__init__(name="journal", daemon=True)
        self.loop = loop
        self._journal = journal
        self._stored = stored
        self._refused = refused
        self._queue: SimpleQueue[tuple[int, Entries] | Callable[[], None]] = SimpleQueue()
        self._given = self._done = 0
        self._refuses = self._ends = False

    @property
    def is_busy(self) -> bool:
        """Whether there is anything that it has not done and reported."""
        return self._given != self._done

    def store(self, number: int, entries: Entries) -> None:
        """Store entries, the last ones up to `number`."""
        self._give((number, entries))

    def again(self, number: int, entries: Entries) -> None:
        """Store what was refused, and then what follows, unless it is refused again."""

        def store() -> None:
            self._refuses = False
            self._append(number, entries)

        self._give(store)

    def do(self, work: Callable[[], None]) -> None:
        """Do some work, never beside a write; it raises nothing."""
        self._give(work)

    def end(self) -> None:
        """End after everything given before."""

        def end() -> None:
            self._ends = True

        self._give(end)

    def _give(self, one: tuple[int, Entries] | Callable[[], None]) -> None:
        if not self._given:
            self.start()
        self._given += 1
        self._queue.put(one)

    def run(self) -> None:
        """Do what comes until the end."""
        while not self._ends:
            self.work()

    def work(self) -> None:
        """Do what waits, or the next that comes. Entries that wait together are stored together."""
        take = self._queue.get
        taken = [take(), *(take() for _ in range(self._queue.qsize()))]
        number, entries = 0, list[LogEntry]()
        for one in taken:
            if isinstance(one, tuple):
                number = one[0]
                entries += one[1]
            else:
                self._append(number, entries)
                number, entries = 0, []
                one()
        self._append(number, entries)
        self._done += len(taken)

    def _append(self, number: int, entries: Entries) -> None:
        if not entries or self._refuses:
            return
        began_s = self.loop.time()
        try:
            self._journal.append(entries)
        except Exception as error:
            self._refuses = True
            self.loop.call_soon_threadsafe(self._refused, error)
        else:
            took_s = self.loop.time() - began_s
            self.loop.call_soon_threadsafe(self._stored, number, began_s, took_s)


def windows_us(configuration: Configuration) -> dict[str, int]:
    """Each topic's commit window; a topic without one uses the journal's."""
    default_us = configuration.journal.flush_interval_us
    return {
        topic.name: topic.flush_interval_us or default_us
        for topic in configuration.topics
        if isinstance(topic, Topic)
    }


class GroupCommit:
    """The commits of one journal.

    `windows_us` maps topics to the microseconds that a commit may wait for more entries; the
    smallest value of a commit's topics counts, and a topic that is not listed does not wait. Where
    `gathers_us` returns a time, every commit waits for so long instead.

    `release` is called with all groups that have become durable together. `refused` is called when
    the disk refuses a write, with the error and all groups that will not be durable now;
    `recovered` when the disk accepts writes again. While the disk refuses, nothing is added.
    """

    def __init__(
        self,
        journal: Journal,
        windows_us: Mapping[str, int],
        release: Callable[[Sequence[Group]], None],
        refused: Callable[[StoreError, Sequence[Group]], None],
        recovered: Callable[[], None],
        writer: Callable[..., JournalThread] = JournalThread,
        loop: asyncio.AbstractEventLoop | None = None,
        gathers_us: Callable[[], int] = int,
    ) -> None:
        self._gathers_us = gathers_us
        self._windows_us = {name: us for name, us in windows_us.items() if us}
        self._release = release
        self._refused = refused
        self._recovered = recovered
        self._loop = loop or asyncio.get_running_loop()
        self._thread = writer(journal, self._loop, self._on_stored, self._on_refused)
        self._groups: deque[tuple[Group, int]] = deque()
        """Groups that are not released, in order, with the bytes of their entries."""
        self._collecting: list[Group] = []
        """Those of them that wait for more entries, until the timer fires."""
        self._window: asyncio.TimerHandle | None = None
        self._kept: list[LogEntry] = []
        """What the disk has refused, and what has come since then."""
        self._retry: asyncio.TimerHandle | None = None
        self._next: asyncio.Future[None] | None = None
        self._backlog_bytes = 0
        self.commit_times = Histogram()
        """Duration of each commit, from its start until the loop knew of its end."""
        self.fsync_times = Histogram()
        """The part of it that the journal took to write and sync."""
        self.failure: StoreError | None = None
        """The disk's error since it refused a write, until it accepts one."""
        self.bytes_logged = 0
        """Bytes of bodies given to the journal since the server started."""

    @property
    def writes_ahead(self) -> bool:
        """What is too much for one transaction may be written ahead (`LoadWriter`)."""
        return self._thread.writes_ahead

    @property
    def change_bytes_max(self) -> int | None:
        """The largest change that is stored as one; None: any."""
        return self._thread.change_bytes_max

    @property
    def is_collecting(self) -> bool:
        """Groups wait for more entries, and are not handed over."""
        return bool(self._collecting)

    @property
    def is_behind(self) -> bool:
        """The backlog is so large that publishers should wait."""
        return self._backlog_bytes > BACKLOG_BYTES_MAX

    def add(self, group: Group) -> None:
        """Store a group; `release` follows, at once where there is nothing to wait for."""
        size = size_of(group.entries)
        self.bytes_logged += size
        self._backlog_bytes += size
        self._groups.append((group, size))
        if not group.entries:
            self._leave()
        elif self._windows_us or self._collecting or self._gathers_us():
            self._collect(group)
        else:
            self._thread.store(group.number, group.entries)

    def keep(self, entries: Entries) -> None:
        """Store these when the disk accepts writes again; nobody waits for them."""
        self._kept += entries

    def next(self) -> asyncio.Future[None]:
        """A future that is done after the next commit; shared by all waiters, so do not cancel
        it."""
        if self._next is None:
            self._next = self._loop.create_future()
        return self._next

    async def run_in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run `work` in the journal's thread, never beside an append; returns and raises what it
        does."""
        done: Future[Result] = Future()

        def run() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(work(*arguments))
                except BaseException as error:
                    done.set_exception(error)

        self._thread.do(run)
        return await asyncio.wrap_future(done)

    # The window.

    def _collect(self, group: Group) -> None:
        self._collecting.append(group)
        window_us = self._gathers_us() or min(
            self._windows_us.get(entry.topic, 0) for entry in group.entries
        )
        due_s = self._loop.time() + window_us / 1e6
        if self._window is not None:
            due_s = min(due_s, self._window.when())
            self._window.cancel()
        if window_us:
            self._window = self._loop.call_at(due_s, self._hand_over)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Have stored together what has collected."""
        collected, self._collecting, self._window = self._collecting, [], None
        entries = [entry for group in collected for entry in group.entries]
        self._thread.store(collected[-1].number, entries)

    # What the thread reports.

    def _on_stored(self, number: int, began_s: float, took_s: float) -> None:
        self.fsync_times.note(took_s)
        self.commit_times.note(self._loop.time() - began_s)
        if self._next is not None:
            stored, self._next = self._next, None
            stored.set_result(None)
        if self.failure is None:
            self._leave(number)
        else:
            self._go_on_keeping(stored_count=number)

    def _leave(self, number: int = 0) -> None:
        """Release what is at the front and durable, up to group `number`, or has nothing to
        store."""
        groups, leaving = self._groups, list[Group]()
        while groups and (groups[0][0].number <= number or not groups[0][0].entries):
            group, size = groups.popleft()
            self._backlog_bytes -= size
            leaving.append(group)
        if leaving:
            self._release(leaving)

    def _on_refused(self, error: Exception) -> None:
        """The disk refused entries that are visible already.

        They are stored when the disk accepts writes again, so that readers and a restart see the
        same state.
        """
        self._retry = self._loop.call_later(RETRY_S, self._store_kept)
        if self.failure is not None:
            return
        self.failure = _failure(error)
        groups = [group for group, _ in self._groups]
        self._kept += [entry for group in groups for entry in group.entries]
        self._groups.clear()
        self._collecting.clear()
        if self._window is not None:
            self._window.cancel()
            self._window = None
        self._backlog_bytes = 0
        self._refused(self.failure, groups)

    def _store_kept(self) -> None:
        self._thread.again(len(self._kept), list(self._kept))

    def _go_on_keeping(self, stored_count: int) -> None:
        """The disk accepts writes again: the first entries of those kept are stored, and what has
        come meanwhile has to precede what is new."""
        del self._kept[:stored_count]
        if self._kept:
            self._store_kept()
            return
        log.warning("the journal takes messages again")
        self.failure = None
        self._recovered()

    async def close(self) -> None:
        """Store what was added, abandon what the disk has refused, and stop the thread."""
        if self._window is not None:
            self._window.cancel()
            self._hand_over()
        if self._retry is not None:
            self._retry.cancel()
        self._thread.end()
        await self._loop.run_in_executor(None, self._thread.join)


class LoadWriter:
    """Writes publishes to the topic `name` ahead of the entry that makes them part of the log.

    `is_named`: identities do not follow from the bodies. `fits` is called with the number of
    records, and raises if they are too many; None: how large each becomes need not be known.
    """

    def __init__(
        self,
        commit: GroupCommit,
        loads: Loads,
        disk: DiskReserve,
        name: str,
        is_named: bool,
        fits: Callable[[int], None] | None,
    ) -> None:
        self._commit = commit
        self._loads = loads
        self._disk = disk
        self._topic = name
        self._is_named = is_named
        self._load = secrets.token_hex(8)
        self._waiting: list[LogEntry] = []
        self._rows = self._size_bytes = 0
        self._fits = fits
        self.sizes: MutableMapping[str, int] | None = None if fits is None else {}
        """Of each record, the size of its last state."""

    async def put(self, messages: CheckedMessages) -> None:
        """Write these too; raises DiskFull, the error of the disk while it fails, and what `fits`
        raises."""
        bodies, identities = messages.bodies, messages.identities
        size_bytes = sum(map(len, bodies))
        named, at = identities if self._is_named else None, self._rows + 1
        entry = LogEntry("publish", self._topic, at, 0, named, bodies, TOPICS_LIFETIME)
        self._waiting.append(entry)
        self._rows += len(bodies)
        self._size_bytes += size_bytes
        if self.sizes is not None and self._fits is not None:
            self.sizes.update(zip(identities, map(len, bodies), strict=True))
            self.sizes = sharded_if_long(self.sizes)
            self._fits(len(self.sizes))
        if self._size_bytes > LOAD_PART_BYTES:
            await self._write()

    async def _write(self) -> None:
        entries, self._waiting = self._waiting, []
        size_bytes, self._size_bytes = self._size_bytes, 0
        if entries:
            self._disk.check_failure()
            self._disk.check_whole(size_bytes)
            await self._commit.run_in_thread(self._loads.put, self._load, entries)

    async def written(self) -> Load:
        """All of them."""
        await self._write()
        return self._loads.load(self._load)

    async def discard(self) -> None:
        """Give them up."""
        await self._commit.run_in_thread(self._loads.discard, self._load)


def _failure(error: Exception) -> StoreError:
    """What clients get as the reason."""
    if isinstance(error, (DiskFull, NoQuorum, NotLeading, OutcomeUnknown)):
        log.error("%s", error.detail)
        return error
    if not isinstance(error, SowError):
        log.error("the server failed to write its journal", exc_info=error)
        error = StoreError("the server failed to write its journal; its log says why")
    else:
        log.error("%s", error.detail)
    return StoreFailing(
        f"{error.detail}; nothing of the request is acknowledged. Reads go on, and messages are "
        "taken again as soon as the disk takes them"
    )


def size_of(entries: Entries) -> int:
    """Approximate size of entries in the journal."""
    return sum(map(stored_bytes, entries))


def stored_bytes(entry: LogEntry) -> int:
    """Approximate size of an entry in the journal."""
    return entry.bodies_bytes + ROW_BYTES * len(entry)
