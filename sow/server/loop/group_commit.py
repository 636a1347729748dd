"""Group commit: entries that arrive while the disk is busy are stored together in the next commit.

    add ──> queued; one commit at a time stores everything queued, in a thread: commits wait for
            the disk, the loop does not
    stored ──> each group is released, in order
    the disk refuses ──> waiters get the error; the entries are stored as soon as possible

A single thread writes the journal, so appends keep their order.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sow.core.histograms import Histogram
from sow.engine.wal import Group
from sow.errors import DiskFull, SowError, StoreError, StoreFailing
from sow.store.protocols import Journal, LogEntry

log = logging.getLogger("sow")

Result = TypeVar("Result")

BACKLOG_BYTES_MAX = 64 * 1024**2
"""Bytes not yet durable beyond which publishers wait for the disk: at most a second of what a usual
disk writes, and little beside the records that they become."""
ROW_BYTES = 16
"""Approximate overhead of a record in the journal: length, sequence number, time."""
RETRY_S = 0.5
"""Delay before a refused write is tried again: soon enough that nobody has to intervene, rare
enough not to fill the machine's log."""


class GroupCommit:
    """The commits of one journal.

    `windows_us` maps topics to the microseconds that a commit may wait for more entries; the
    smallest value of a commit's topics counts, and a topic that is not listed does not wait.

    `release` is called for each group once it is durable. `refused` is called when the disk refuses
    a write, with the error and all groups that will not be durable now; `recovered` when the disk
    accepts writes again.
    """

    def __init__(
        self,
        journal: Journal,
        windows_us: Mapping[str, int],
        release: Callable[[Group], None],
        refused: Callable[[StoreError, Sequence[Group]], None],
        recovered: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._windows_us = {name: us for name, us in windows_us.items() if us}
        self._release = release
        self._refused = refused
        self._recovered = recovered
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._groups: deque[Group] = deque()
        self._entries: list[LogEntry] = []
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] = self._loop.create_future()
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
    def is_idle(self) -> bool:
        """No commit is running or waiting."""
        return self._task is None

    @property
    def is_behind(self) -> bool:
        """The backlog is so large that publishers should wait."""
        return self._backlog_bytes > BACKLOG_BYTES_MAX

    def add(self, group: Group) -> None:
        """Store a group with the next commit; `release` follows."""
        self._groups.append(group)
        size = _size(group.entries)
        self.bytes_logged += size
        self._backlog_bytes += size
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def keep(self, entries: Sequence[LogEntry]) -> None:
        """Store these with the next successful write; nobody waits for them."""
        self._entries += entries

    def next(self) -> asyncio.Future[None]:
        """A future that is done after the next commit; shared by all waiters, so do not cancel
        it."""
        return self._next

    async def run_in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run `work` in the journal's thread, never beside an append; returns and raises what it
        does."""
        return await self._loop.run_in_executor(self._thread, work, *arguments)

    async def _run(self) -> None:
        try:
            while self._groups or self._entries:
                if self._windows_us:
                    await asyncio.sleep(self._window_s())
                groups = list(self._groups)
                self._groups.clear()
                self._entries += [entry for group in groups for entry in group.entries]
                await self._store(groups)
        finally:
            self._task = None

    def _window_s(self) -> float:
        topics = {entry.topic for group in self._groups for entry in group.entries}
        return min((self._windows_us.get(topic, 0) for topic in topics), default=0) / 1e6

    async def _store(self, groups: list[Group]) -> None:
        entries = list(self._entries)
        began_s = self._loop.time()
        try:
            if entries:
                took_s = await self.run_in_thread(self._append, entries)
                self.fsync_times.note(took_s)
                self.commit_times.note(self._loop.time() - began_s)
        except SowError as error:
            if self.failure is None:
                self._refuse(error, groups)
            await asyncio.sleep(RETRY_S)
            return
        if self.failure is not None:
            log.warning("the journal takes messages again")
            self.failure = None
            self._recovered()
        del self._entries[: len(entries)]
        self._backlog_bytes = sum(_size(group.entries) for group in self._groups)
        if entries:
            stored, self._next = self._next, self._loop.create_future()
            stored.set_result(None)
        for group in groups:
            self._release(group)

    def _append(self, entries: Sequence[LogEntry]) -> float:
        """Append the entries, in the journal's thread; returns the duration."""
        began_s = self._loop.time()
        self._journal.append(entries)
        return self._loop.time() - began_s

    def _refuse(self, error: SowError, groups: list[Group]) -> None:
        """The disk refused entries that are visible already.

        They are stored when the disk accepts writes again (`_entries`), so that readers and a
        restart see the same state.
        """
        log.error("%s", error.detail)
        self.failure = error if isinstance(error, DiskFull) else _failing(error)
        groups = [*groups, *self._groups]
        self._entries += [entry for group in self._groups for entry in group.entries]
        self._groups.clear()
        self._refused(self.failure, groups)

    async def close(self) -> None:
        """Abandon what is not stored, and stop the thread."""
        if self._task is not None:
            self._task.cancel()
        await self._loop.run_in_executor(None, self._thread.shutdown)


def _failing(error: SowError) -> StoreFailing:
    return StoreFailing(
        f"{error.detail}; nothing of the request is acknowledged. Reads go on, and messages are "
        "taken again as soon as the disk takes them"
    )


def _size(entries: Sequence[LogEntry]) -> int:
    return sum(map(stored_bytes, entries))


def stored_bytes(entry: LogEntry) -> int:
    """Approximate size of an entry in the journal."""
    return entry.bodies_bytes + ROW_BYTES * len(entry)
