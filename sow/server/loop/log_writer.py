"""The journal's thread of a node of a shared log: what it writes is in that log before.

    follows ─> entries come from the log: they are written as they are anywhere
    leads ───> a group of records is submitted to the shared log; while two are on their way, those
               behind them gather, and go together
    released ──> it is durable there, and read back: written to the journal here, which is a cache
    stored ──> as without a shared log: it is released

So a journal has nothing that is not in the log, and whatever reads it has all that was released.
What cannot be written here although it is in the log has to be read from there again: the driver
fails, and the server starts again. Where another node leads, whatever was not released is not in
the log: it is refused, and this server ends without a trace of it.

Changes that were flushed together are in one group of the log, or in several where they are very
large; one change is never divided. Views may show the changes of several groups at once: then a
mark ends each but the last, an account of nothing that says with which record their turn began.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from sow.core.definitions import CONFIGURATIONS, SYSTEM_PREFIX, Configuration
from sow.engine.configurations import fingerprint, packed, reload_in
from sow.errors import Damaged, OutcomeUnknown, StoreError
from sow.server.loop.group_commit import Entries, JournalThread, size_of, stored_bytes
from sow.server.loop.log_driver import LogDriver
from sow.shared_log.entry import EntryKind, LogGroup, Reload, decode_reload
from sow.shared_log.writer import GROUP_BYTES_MAX
from sow.store.layout import GROUP, decode_entries, encode_entries, seal, unseal
from sow.store.protocols import Journal, LogEntry, goes_on

WITH_ACCOUNTS = -1
"""Those of an empty log have the number 0, and are read too."""
ON_THEIR_WAY_MAX = 2
"""Groups that are submitted and not released before others gather: an engine syncs few large
entries faster than many small ones, and is busy with one while the other is answered and read."""
GATHERED_BYTES_MAX = 768 * 1024
"""Of groups that go together: about an entry, as an encoding takes a little more."""
PART_BYTES_MAX = GROUP_BYTES_MAX // 2
"""Of one group of the log, but for a change that is larger: its encoding takes a little more."""
LONG_BYTES = 1024**2
"""What is encoded or decoded beside the loop: less takes some milliseconds."""

SharedGroup = tuple[bytes, int, EntryKind]
"""Content, time and kind of a group."""


class SharedLogThread(JournalThread):
    """Writes `journal` as any JournalThread, until it is to `lead`: then behind the shared log of
    `driver`."""

    writes_ahead = False
    change_bytes_max = PART_BYTES_MAX

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
        self._refuse_groups = refused
        self._gathered: deque[tuple[int, Entries, int]] = deque()
        """To be submitted, in order, each with the turn that goes on behind it."""
        self._handed: deque[tuple[int, Entries]] = deque()
        """Submitted, and not released."""
        self._reloaded: Callable[[Configuration], None] = lambda _: None
        self._reloads: set[int] = set()
        """Groups with a reload, which are not released."""
        self._encoding: asyncio.Future[list[SharedGroup]] | None = None
        """The newest of them, where it is long: it is encoded beside the loop, and others wait."""
        self._divided = 0
        """The newest group that was submitted as several."""
        self._leads = self._is_over = False
        self._turn: Callable[[], int] = int

    @property
    def is_busy(self) -> bool:
        """Whether there is anything that it has not done and reported."""
        return bool(self._handed or self._gathered) or super().is_busy

    def lead(self, turn: Callable[[], int] = int) -> None:
        """What comes from now on is of this node: the log has to have it first. `turn` returns the
        record with which the turn of views began that goes on; 0: none does."""
        self._leads, self._turn = True, turn
        self._driver.serve(self)

    def on_reloaded(self, reloaded: Callable[[Configuration], None]) -> None:
        """Have this called with each configuration that a reload puts in force, once the log has
        it."""
        self._reloaded = reloaded

    def store(self, number: int, entries: Entries) -> None:
        """Store entries that come from the log, or submit them to it."""
        if not self._leads:
            super().store(number, entries)
        elif not self._is_over:
            self._gathered.append((number, entries, self._turn()))
            self._submit_gathered()

    def _submit_gathered(self) -> None:
        """Submit what has gathered, in order, while little is on its way."""
        gathered = self._gathered
        while gathered and self._encoding is None and len(self._handed) < ON_THEIR_WAY_MAX:
            number, entries, turn = gathered.popleft()
            size = size_of(entries)
            while gathered and size + size_of(gathered[0][1]) <= GATHERED_BYTES_MAX:
                if reload_in(entries) or reload_in(gathered[0][1]):
                    break  # a reload is of one group
                number, more, turn = gathered.popleft()
                entries, size = [*entries, *more], size + size_of(more)
            self._handed.append((number, entries))
            if size < LONG_BYTES:
                self._submit(number, groups_of(entries, turn))
            else:
                self._encoding = self.loop.run_in_executor(None, groups_of, entries, turn)
                self._encoding.add_done_callback(partial(self._on_encoded, number))

    def _on_encoded(self, number: int, done: "asyncio.Future[list[SharedGroup]]") -> None:
        self._encoding = None
        if not (self._is_over or done.cancelled()):
            self._submit(number, done.result())
            self._submit_gathered()

    def _submit(self, number: int, groups: list[SharedGroup]) -> None:
        self._divided = number if len(groups) > 1 else self._divided
        for group in groups:
            of_group = number if group is groups[-1] else None
            if group[2] == EntryKind.RELOAD:
                self._reloads.add(number)
            if not self._driver.submit(of_group, *group):
                if not self._driver.is_primary:
                    self.ended(self._driver.lost_lead())
                return  # else it steps down: this ends when all before is released

    def again(self, number: int, entries: Entries) -> None:
        """Store what was refused; nothing where this node leads: it is read from the log again,
        where it is in it."""
        if not self._leads:
            super().again(number, entries)

    def end(self) -> None:
        """End after everything given before: all that was submitted is decided."""
        self._is_over = True
        super().end()

    # What the driver reports.

    def released(self, number: int) -> None:
        """A group is in the log."""
        number, entries = self._handed.popleft()
        self._driver.taken(newest_of(entries))
        super().store(number, entries)
        if number in self._reloads and (configuration := reload_in(entries)) is not None:
            self._reloads.remove(number)
            self._reloaded(configuration)
        self._submit_gathered()

    def ended(self, error: StoreError) -> None:
        """Nothing more is released. What was is written and reported before the rest is refused."""
        if self._is_over:
            return
        if self._handed and self._handed[0][0] <= self._divided:
            error = OutcomeUnknown(
                f"{error.detail}; but of very many changes at once the log may have the first: "
                "look before you send this again"
            )
        self._is_over = True
        self._handed.clear()
        self._gathered.clear()
        self.do(lambda: self._report(error))

    def _report(self, error: StoreError) -> None:
        self.loop.call_soon_threadsafe(self._refuse_groups, error)

    def _refuse(self, error: Exception) -> None:
        if not self._leads:
            self._refuse_groups(error)
            return
        self._is_over = True
        self._driver.fail(error)
        self._refuse_groups(
            OutcomeUnknown(
                f"{error}; this node stores no more, and the shared log may have what was handed "
                "over: look at another node before you send this again"
            )
        )


def parts_of(entries: Entries) -> Iterator[Entries]:
    """Entries as groups of the log: as many changes together as one takes. An account stays with
    what is before it, which it may count."""
    start = size = change = behind = 0
    for at, entry in enumerate(entries):
        if at and not entry.account and not goes_on(entries[at - 1], entry):
            change, behind = at, 0
        size, behind = size + stored_bytes(entry), behind + stored_bytes(entry)
        if size > PART_BYTES_MAX and change > start:
            yield entries[start:change]
            start, size = change, behind
    yield entries[start:]


def marked(entries: Entries, turn: int) -> Entries:
    """The same with the mark of a turn that goes on."""
    if not turn:
        return entries
    last = entries[-1]
    seq = last.seq + max(0, len(last) - 1)
    mark = LogEntry("delete", CONFIGURATIONS.name, seq, last.ts_us, [], [], account=True, turn=turn)
    return [*entries, mark]


def turn_in(entries: Entries) -> int:
    """The record with which the turn began that goes on behind a group; 0: none does."""
    return entries[-1].turn if entries and entries[-1].account else 0


def newest_of(entries: Iterable[LogEntry]) -> int:
    """The newest record of a group; accounts have the number of one before."""
    return max((one.seq + max(0, len(one) - 1) for one in entries), default=0)


def groups_of(entries: Entries, turn: int) -> list[SharedGroup]:
    """The groups of the shared log that entries become; behind the last one `turn` goes on."""
    parts = [*parts_of(entries)]
    turns = [*(following[0].turn for following in parts[1:]), turn]
    return [kept_as(marked(*part)) for part in zip(parts, turns, strict=True)]


def kept_as(entries: Entries) -> SharedGroup:
    """The group of the shared log that entries become."""
    content, time_us = encode_group(entries), entries[-1].ts_us
    reloaded = reload_in(entries)
    if reloaded is None:
        return content, time_us, EntryKind.RECORDS
    reload = Reload(fingerprint(reloaded), packed(reloaded), content)
    return reload.encode(), time_us, EntryKind.RELOAD


async def entries_read(group: LogGroup) -> list[LogEntry]:
    """The entries of a group; those of a long one are decoded beside the loop. Raises Damaged."""
    if len(group.content) < LONG_BYTES:
        return [*entries_of(group)]
    return await asyncio.to_thread(lambda: [*entries_of(group)])


def entries_of(group: LogGroup) -> Iterator[LogEntry]:
    """The entries of a group that was read from the log, a reload or not. Raises Damaged."""
    reload = decode_reload(group.content) if group.kind == EntryKind.RELOAD else None
    return entries_in(group.content if reload is None else reload.records)


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
