"""A journal and a checkpoint that forget everything with the process: for tests and simulations.

They keep the promises of `sow.store.journal` and `sow.store.checkpoint` without files, threads or
chance. A crash is simulated by giving the same objects to a new engine; a full disk by a hook.
"""

import sys
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from dataclasses import replace

from sow.core.cooperative import Task
from sow.errors import DiskFull, StoreError
from sow.store.layout import GROUP, HEADER_BYTES, encode_entries, seal
from sow.store.log_indexes import decode_windows
from sow.store.protocols import (
    TOPICS_LIFETIME,
    EntryHead,
    Exact,
    KeptCheckpoint,
    Load,
    LogEntry,
    LogPiece,
    LogStretch,
    OpenWindows,
    Slice,
    WindowsPlace,
    accounts_of,
)

Hook = Callable[[Sequence[LogEntry]], None]


class MemoryLoads:
    """Loads in lists. `before_put` sees every part first and may raise to refuse it."""

    def __init__(self) -> None:
        self.held: dict[str, list[list[LogEntry]]] = {}
        self.before_put: Callable[[str], None] = lambda _name: None

    def put(self, name: str, entries: Sequence[LogEntry]) -> None:
        """Keep a part."""
        self.before_put(name)
        self.held.setdefault(name, []).append(list(map(_copy, entries)))

    def load(self, name: str) -> Load:
        """What is held."""
        parts = self.held.get(name, [])
        entries = [entry for part in parts for entry in part]
        return Load(name, len(parts), sum(map(len, entries)), sum(map(_bytes, entries)), 0)

    def entries(self, load: Load) -> Iterator[LogEntry]:
        """The entries as they were put."""
        for part in self.held.get(load.name, []):
            yield from map(_copy, part)

    def discard(self, name: str) -> None:
        """Forget it."""
        self.held.pop(name, None)

    def linked(self, entry: LogEntry) -> Iterator[LogEntry]:
        """What an entry with a load makes part of the log."""
        assert entry.load is not None
        assert self.load(entry.load.name) == entry.load, "the load is not there whole"
        for one in self.entries(entry.load):
            is_topics = one.expires_us == TOPICS_LIFETIME
            expires_us = entry.expires_us if is_topics else one.expires_us
            seq = entry.seq + one.seq - 1
            yield replace(one, seq=seq, ts_us=entry.ts_us, expires_us=expires_us)


class MemoryWindows:
    """Kept windows in a list, as they are read back from a disk."""

    def __init__(self) -> None:
        self._held: dict[WindowsPlace, bytes] = {}

    @property
    def places(self) -> list[WindowsPlace]:
        """Where some are kept, in order."""
        return [*self._held]

    def put(self, place: WindowsPlace, block: bytes) -> None:
        """Keep these."""
        self._held[place] = block

    def load(self, place: WindowsPlace) -> Task[OpenWindows | None]:
        """Those of a place."""
        if place not in self._held:
            return None
        return (yield from decode_windows(self._held[place][HEADER_BYTES:]))


class MemoryJournal:
    """A journal in a list. `before_append` sees every group first and may raise to refuse it."""

    log_id = "00000000000000aa"
    begins_after = 0

    def __init__(
        self,
        *,
        retention_bytes: int = 4 * 1024**3,
        retention_age_us: int | None = None,
        before_append: Hook | None = None,
    ) -> None:
        self.full = False
        """Set to behave as on a full disk with `reserve_bytes` left."""
        self.reserve_bytes = 0
        self._retention_bytes = retention_bytes
        self._retention_age_us = retention_age_us
        self._before_append = before_append
        self._loads = MemoryLoads()
        self.windows = MemoryWindows()
        """What was open after some of its records."""
        self._entries: list[LogEntry] = []
        self._accounts: dict[tuple[str, str], LogEntry] | None = None
        self._base_seq = self._last_seq = self._size_bytes = 0

    @property
    def loads(self) -> MemoryLoads:
        """Records that are not in the log yet."""
        return self._loads

    @property
    def first_seq(self) -> int:
        """The oldest record still kept, or `last_seq + 1` when there is none."""
        return self._base_seq + 1

    @property
    def last_seq(self) -> int:
        """The newest record, 0 in a new journal."""
        return self._last_seq

    @property
    def size_bytes(self) -> int:
        """Bytes of the bodies and identities kept."""
        return self._size_bytes

    def has_room(self, _size_bytes: int = 0) -> bool:
        """False while `full` is set."""
        return not self.full

    def takes(self, size_bytes: int) -> bool:
        """False while `full` is set, but for what fits into the reserve."""
        return not self.full or size_bytes <= self.reserve_bytes

    def lost(self) -> None:
        """Memory does not get lost under a process."""

    @property
    def room_bytes(self) -> int:
        """As much as one likes, unless `full` is set."""
        return 0 if self.full else sys.maxsize

    def is_strained(self) -> bool:
        """Whether the disk is full."""
        return self.full

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Keep `entries`, all or none; raises DiskFull when they do not fit."""
        size_bytes = sum(map(_bytes, entries))
        if not self.takes(size_bytes):
            raise DiskFull("the journal has no room; nothing of the request is acknowledged")
        if self._before_append is not None:
            self._before_append(entries)
        seq = self._last_seq
        numbered = [entry for entry in entries if not entry.account]
        for entry in numbered:
            assert entry.seq == seq + 1, f"record {entry.seq} does not follow {seq}"
            seq += len(entry)
        for entry in numbered:
            if entry.load is not None:
                self._entries += self._loads.linked(entry)
            elif len(entry):
                self._entries.append(_copy(entry))
        for entry in entries:
            self._keep_accounts(entry)
        self._size_bytes += size_bytes
        self.reserve_bytes -= size_bytes if self.full else 0
        self._last_seq = seq

    def read(self, after_seq: int) -> Iterator[LogEntry]:
        """Entries in order from the one holding record `after_seq + 1`."""
        for piece in self.pieces(after_seq):
            yield from piece.entries

    def pieces(self, after_seq: int, topics: Container[str] | None = None) -> Iterator[LogPiece]:
        """The same, a piece for each entry."""
        if after_seq < self._base_seq:
            raise StoreError(
                f"record {after_seq + 1} is no longer kept; the oldest is {self.first_seq}"
            )
        for entry in tuple(self._entries):
            if (last_seq := entry.seq + len(entry) - 1) > after_seq:
                wanted = topics is None or entry.topic in topics
                yield LogPiece(last_seq, [_copy(entry)] if wanted else ())

    def stretches(self, after_seq: int, topics: Container[str]) -> Iterator[LogStretch]:
        """The same, a stretch for each entry; every second one is counted."""
        for at, piece in enumerate(self.pieces(after_seq, topics)):
            heads = [EntryHead(e.topic, e.seq, len(e), e.ts_us) for e in piece.entries]
            first = heads[0].seq if heads else piece.last_seq
            rows = {head.topic: head.records for head in heads}
            is_counted = at % 2 == 1 and (not heads or first > after_seq)
            yield LogStretch(first, piece.last_seq, rows if is_counted else None, heads.__iter__)

    def _keep_accounts(self, entry: LogEntry) -> None:
        if not entry.account:
            return
        self._accounts = self._accounts or {}
        for name, record in accounts_of(entry):
            if record is None:
                self._accounts.pop((entry.topic, name), None)
            else:
                self._accounts[entry.topic, name] = record

    def blocks(self, after_seq: int, until_seq: int) -> Generator[bytes, None, None]:
        """What is stored, a block for each entry."""
        for entry in self.read(after_seq):
            if entry.seq <= until_seq:
                yield seal(GROUP, encode_entries([entry]), seq=entry.seq, count=len(entry))[0]

    def accounts(self) -> list[LogEntry] | None:
        """The last state of each account; None where there never was one."""
        return None if self._accounts is None else list(self._accounts.values())

    def trim(self, now_us: int, keep_from_seq: int, beyond: bool = False) -> bool:
        """Remove the oldest entries that retention no longer wants, or wants too, if `beyond`;
        never more to do after."""
        while self._entries and self._unwanted(self._entries[0], now_us, keep_from_seq, beyond):
            oldest = self._entries.pop(0)
            self._base_seq += len(oldest)
            self._size_bytes -= _bytes(oldest)
        return False

    def _unwanted(self, entry: LogEntry, now_us: int, keep_from_seq: int, beyond: bool) -> bool:
        age_us = self._retention_age_us
        too_old = age_us is not None and now_us - entry.ts_us > age_us
        too_many = self._size_bytes > self._retention_bytes
        return entry.seq + len(entry) - 1 < keep_from_seq and (beyond or too_old or too_many)

    def close(self) -> None:
        """Nothing to release."""


class MemoryCheckpoint:
    """A checkpoint in a list."""

    def __init__(self) -> None:
        self._seq = 0
        self._slices: list[Slice] = []
        self._kept: list[tuple[KeptCheckpoint, list[Slice]]] = []

    @property
    def seq(self) -> int:
        """Every log record up to here is contained. 0: none yet."""
        return self._seq

    @property
    def records(self) -> int:
        """How many records it holds."""
        return sum(len(part.identities) for part in self._slices)

    def load(self) -> Iterator[Slice]:
        """The last complete checkpoint, in the slices it was written in."""
        return iter(self._slices)

    def write(self, seq: int, slices: Iterable[Slice], exact: Exact | None = None) -> None:
        """Replace the checkpoint; if `slices` raises, the old one stays."""
        complete = [replace(part) for part in slices]
        if exact is not None and (moment := exact()) is not None:
            self._kept.append((KeptCheckpoint(seq, *moment), complete))
        self._seq, self._slices = seq, complete

    @property
    def kept(self) -> list[KeptCheckpoint]:
        """Those that are kept, the oldest first."""
        return [kept for kept, _ in self._kept]

    def load_kept(self, kept: KeptCheckpoint) -> Iterator[Slice]:
        """The slices of one of them."""
        for one, slices in self._kept:
            if one == kept:
                return iter(slices)
        raise StoreError(f"the checkpoint as of record {kept.seq} is no longer kept")

    def forget(self, count: int) -> None:
        """Keep the oldest `count` of them no more."""
        del self._kept[:count]

    def close(self) -> None:
        """Nothing to release."""


def _copy(entry: LogEntry) -> LogEntry:
    """The entry with columns of its own, as if read back from a disk."""
    identities = None if entry.identities is None else list(entry.identities)
    # Field by field: `replace` would take as long as all the rest of an append.
    return LogEntry(
        entry.op,
        entry.topic,
        entry.seq,
        entry.ts_us,
        identities,
        list(entry.bodies),
        entry.expires_us if isinstance(entry.expires_us, int) else list(entry.expires_us),
        entry.account,
        origin=entry.origin,
        turn=entry.turn,
    )


def _bytes(entry: LogEntry) -> int:
    return sum(map(len, entry.bodies)) + sum(map(len, entry.identities or ()))
