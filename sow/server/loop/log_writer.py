"""The journal's thread of a server that leads a shared log: what it writes is in that log before.

    store ──> a group of records is submitted to the shared log
    released ──> it is durable there, and read back: written to the journal here, which is a cache
    stored ──> as without a shared log: it is released

So a journal has nothing that is not in the log, and whatever reads it has all that was released.
What cannot be written here although it is in the log has to be read from there again: the driver
fails, and the server starts again. Where another node leads, whatever was not released is not in
the log: it is refused, and this server ends without a trace of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from sow.core.definitions import SYSTEM_PREFIX
from sow.errors import Damaged, SowError, StoreError
from sow.server.loop.group_commit import Entries, JournalThread
from sow.server.loop.log_driver import LogDriver
from sow.store.layout import GROUP, decode_entries, encode_entries, seal, unseal
from sow.store.protocols import Journal, LogEntry

WITH_ACCOUNTS = -1
"""Those of an empty log have the number 0, and are read too."""


class SharedLogThread(JournalThread):
    """Writes `journal` behind the shared log of `driver`; else it is as any JournalThread."""

    writes_ahead = False

    def __init__(
        self,
        driver: LogDriver,
        journal: Journal,
        loop: asyncio.AbstractEventLoop,
        stored: Callable[[int, float, float], None],
        refused: Callable[[Exception], None],
    ) -> None:
        super().__init__(journal, loop, stored, self._refuse)
        self._driver = driver
        driver.serve(self)
        self._refuse_groups = refused
        self._handed: deque[tuple[int, Entries]] = deque()
        """Submitted, and not released."""
        self._leads = True

    @property
    def is_busy(self) -> bool:
        """Whether there is anything that it has not done and reported."""
        return bool(self._handed) or super().is_busy

    def store(self, number: int, entries: Entries) -> None:
        """Submit entries."""
        if not self._leads:
            return
        self._handed.append((number, entries))
        try:
            is_taken = self._driver.submit(number, encode_group(entries), entries[-1].ts_us)
        except SowError as error:  # too much for the log; it was not submitted
            self._handed.pop()
            self.loop.call_soon(self._refuse, error)
            return
        if not is_taken:
            self.ended(self._driver.lost_lead())

    def again(self, number: int, entries: Entries) -> None:
        """Nothing: what was refused here is read from the log again, where it is in it."""

    def end(self) -> None:
        """End after everything given before: all that was submitted is decided."""
        self._leads = False
        super().end()

    # What the driver reports.

    def released(self, number: int) -> None:
        """A group is in the log."""
        number, entries = self._handed.popleft()
        self._driver.taken(newest_of(entries))
        super().store(number, entries)

    def ended(self, error: StoreError) -> None:
        """Nothing more is released. What was is written and reported before the rest is refused."""
        if self._leads:
            self._leads = False
            self._handed.clear()
            self.do(lambda: self._report(error))

    def _report(self, error: StoreError) -> None:
        self.loop.call_soon_threadsafe(self._refuse_groups, error)

    def _refuse(self, error: Exception) -> None:
        self._leads = False
        self._driver.fail(error)
        self._refuse_groups(error)


def newest_of(entries: Iterable[LogEntry]) -> int:
    """The newest record of a group; accounts have the number of one before."""
    return max((one.seq + max(0, len(one) - 1) for one in entries), default=0)


def encode_group(entries: Entries) -> bytes:
    """Entries as the content of a group of the shared log."""
    count = sum(map(len, entries))
    return seal(GROUP, encode_entries(entries), seq=entries[0].seq, count=count)[0]


def entries_in(content: bytes) -> Iterator[LogEntry]:
    """The entries of a group; they keep their bytes, to be written once more. Raises Damaged."""
    try:
        unseal(content, GROUP)
    except ValueError as error:
        raise Damaged(f"a group of the shared log is damaged: {error}") from None
    for entry in decode_entries(content, WITH_ACCOUNTS, keeps=True):
        is_account = entry.topic.startswith(SYSTEM_PREFIX)
        yield replace(entry, account=True) if is_account else entry
