"""Group commit: what comes while the disk is busy is stored together, next.

    add ──> queued; one commit at a time stores all that queued up meanwhile, in a thread: a commit
            waits for the disk, the loop does not
    stored ──> each group is released, in order
    the disk refuses ──> whoever waits is told, and what was taken is stored as soon as it can be

The journal is written by one thread only, so that appends keep their order.
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

BEHIND_BYTES_MAX = 64 * 1024**2
"""Not yet durable bytes beyond which publishers have to wait for the disk: a second or less of what
a usual one writes, and little beside the records that they become."""
ROW_BYTES = 16
"""What a record takes in the journal beside its body, about: its length, number and time."""
RETRY_S = 0.5
"""How long to wait before a disk that has refused is tried again: soon enough that nobody waits for
it by hand, seldom enough that the log of the machine is not filled."""


class GroupCommit:
    """The commits of one journal.

    `windows_us` says for each topic how many microseconds a commit may wait for more to store with
    it; the most impatient topic of a commit decides, and a topic that is not named does not wait.

    `release` is called for each group once it is durable. `refused` is called when the disk refuses
    one: with why, and with all groups that will not be durable now. `taken` is called when it takes
    messages again.
    """

    def __init__(
        self,
        journal: Journal,
        windows_us: Mapping[str, int],
        release: Callable[[Group], None],
        refused: Callable[[StoreError, Sequence[Group]], None],
        taken: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._windows_us = {name: us for name, us in windows_us.items() if us}
        self._release = release
        self._refused = refused
        self._taken = taken
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._groups: deque[Group] = deque()
        self._entries: list[LogEntry] = []
        self._task: asyncio.Task[None] | None = None
        self._next: asyncio.Future[None] = self._loop.create_future()
        self._behind_bytes = 0
        self.commit_times = Histogram()
        """Of each commit that was stored, from its beginning until the loop knew of it."""
        self.fsync_times = Histogram()
        """Of that, what the journal took to write it and have the disk keep it."""
        self.failure: StoreError | None = None
        """What the disk said when it refused, until it takes messages again."""
        self.bytes_logged = 0
        """Bytes of bodies given to the journal since the server started."""

    @property
    def is_idle(self) -> bool:
        """Nothing is being stored, and nothing waits."""
        return self._task is None

    @property
    def is_behind(self) -> bool:
        """The disk is so far behind that publishers should wait for it."""
        return self._behind_bytes > BEHIND_BYTES_MAX

    def add(self, group: Group) -> None:
        """Store a group with the next commit; `release` follows."""
        self._groups.append(group)
        size = _size(group.entries)
        self.bytes_logged += size
        self._behind_bytes += size
        if self._task is None:
            self._task = self._loop.create_task(self._run())

    def keep(self, entries: Sequence[LogEntry]) -> None:
        """Store these when the disk takes something again; nobody waits for them."""
        self._entries += entries

    def next(self) -> asyncio.Future[None]:
        """Done when the journal has grown from now; for all who wait, so not to be cancelled."""
        return self._next

    async def run_in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Run something that must not run beside an append; returns and raises what it does."""
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
            self._taken()
        del self._entries[: len(entries)]
        self._behind_bytes = sum(_size(group.entries) for group in self._groups)
        if entries:
            stored, self._next = self._next, self._loop.create_future()
            stored.set_result(None)
        for group in groups:
            self._release(group)

    def _append(self, entries: Sequence[LogEntry]) -> float:
        """Store them, in the journal's thread; returns how long that took."""
        began_s = self._loop.time()
        self._journal.append(entries)
        return self._loop.time() - began_s

    def _refuse(self, error: SowError, groups: list[Group]) -> None:
        """The disk refused what was already visible.

        What it holds is stored when the disk takes it again (`_entries`), so that what readers see
        and what a restart would find stay one thing.
        """
        log.error("%s", error.detail)
        self.failure = error if isinstance(error, DiskFull) else _failing(error)
        groups = [*groups, *self._groups]
        self._entries += [entry for group in self._groups for entry in group.entries]
        self._groups.clear()
        self._refused(self.failure, groups)

    async def close(self) -> None:
        """Give up what is not stored, and the thread."""
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
    """About how many bytes an entry takes in the journal."""
    return entry.bodies_bytes + ROW_BYTES * len(entry)
