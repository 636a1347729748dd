"""The interface of a store: what the engine requires, whatever the implementation.

The log is the truth: an `LogEntry` is appended for every accepted batch, and a `Journal` makes it
durable. A checkpoint is a conflated copy of the log: the same entries with only the last change
of each record. `sow.store.journal` and `sow.store.checkpoint` keep them on disk, and those of the
tests in memory.
"""

from array import array
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from sow.core.cooperative import Task
from sow.errors import StoreFailing

Op = Literal["publish", "delete", "expire", "edit"]
Numbers: TypeAlias = "array[int]"
"""A column of integers as in a file, loaded into a table at once."""


def numbers(values: Iterable[int]) -> Numbers:
    """A column of signed 64-bit integers."""
    return array("q", values)


class EventOrigin(NamedTuple):
    """Where the messages of an entry of a series come from: their author, and the number of the
    event that the only one of them replaces, 0 where they are events of their own."""

    author: str
    edits: int = 0


class Load(NamedTuple):
    """Records of one topic that the journal holds already, but that are not in the log: the parts
    of one `name`, of so many bytes. `checksum` is that of the last part."""

    name: str
    parts: int
    records: int
    size_bytes: int
    checksum: int


EVENT_ROWS = -2
"""Stands for the lifetime of each row of a slice that is an event of a series, not a record."""
TOPICS_LIFETIME = -1
"""Stands for the time at which a record of a load expires that has the lifetime of its topic, which
begins with the commit."""


@dataclass(slots=True)
class LogEntry:
    """A batch of log records of one topic and one operation, in order.

    `op` is what was done to them; an expiry is a delete by the server. Record `i` has sequence
    number `seq + i` (from 1, dense over all topics), and all share `ts_us`, microseconds since 1970
    UTC.
    `identities` are the records' identities within the topic (see `sow.core.keys`); None for a
    publish whose identities follow from its bodies. `bodies` are the messages byte for byte, one
    for each record; none unless `op` is publish, and empty ones where the topic is not stored.
    `expires_us` is the time, since 1970 too, at which the batch's records expire, of all of them or
    one for each; 0 for never.

    An `account` is an entry of a system topic: it takes no numbers (`seq` is the last one given),
    so that the log of all other records has no holes. It names its records, and only the last state
    of each is kept.

    `turn` is for views, which show the changes of one turn together: the record that the turn began
    with, where this entry was logged before the views had released that; 0: it begins one.

    Entries of a series have an `origin`. One that replaces the newest event of a record is a
    publish of that record; one that replaces an older event, no change of the record, an edit.

    An entry with a `load` makes the records of that part of the log, and has none itself. It is
    only written: a reader of the log gets the records, in entries of bounded size.

    `encoded` are its bytes in the block that it was read from, where these are kept to be written
    again (`sow.store.layout`). What is made of the entry by `replace` has none.
    """

    op: Op
    topic: str
    seq: int
    ts_us: int
    identities: Sequence[str] | None
    bodies: Sequence[bytes]
    expires_us: int | Sequence[int] = 0
    account: bool = False
    _bodies_bytes: int | None = field(default=None, compare=False, repr=False)
    load: Load | None = None
    origin: EventOrigin | None = None
    turn: int = 0
    encoded: memoryview | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def bodies_bytes(self) -> int:
        """The size of its bodies; computed once, unless the writer has set it."""
        if self._bodies_bytes is None:
            self._bodies_bytes = sum(map(len, self.bodies))
        return self._bodies_bytes

    def keep(self, encoded: memoryview) -> None:
        """Keep its bytes, which it is written in."""
        self.encoded = encoded

    def __len__(self) -> int:
        if self.load is not None:
            return self.load.records
        named = self.identities if self.op in ("delete", "expire") else self.bodies
        return len(named or ())

    def size_bytes(self) -> int:
        """Bytes of its bodies and identities. Takes time in proportion to the records."""
        texts = sum(len(text.encode(errors="replace")) for text in self.identities or ())
        return texts + self.bodies_bytes


class LogPiece(NamedTuple):
    """A stretch of the log that ends with record `last_seq`: its entries, or those of some topics.

    `entries` are decoded as they are iterated.
    """

    last_seq: int
    entries: Iterable[LogEntry]


class EntryHead(NamedTuple):
    """An entry of the log by itself: so many records, from `seq` on."""

    topic: str
    seq: int
    records: int
    ts_us: int


class LogStretch(NamedTuple):
    """Records `first_seq` to `last_seq` of the log: how many of some topics there are, if that is
    known without reading them, and what reads the heads of their entries."""

    first_seq: int
    last_seq: int
    rows: Mapping[str, int] | None
    heads: Callable[[], Iterator[EntryHead]]


def accounts_of(entry: LogEntry) -> Iterator[tuple[str, LogEntry | None]]:
    """An account entry split by record: an entry for each, or None if it is removed."""
    names, gone = entry.identities or (), entry.op != "publish"
    if len(names) == 1:  # as a publisher has it, several hundred times a second
        yield names[0], None if gone else entry
        return
    for at, name in enumerate(names):
        bodies = entry.bodies[at : at + 1]
        yield (
            name,
            None if gone else replace(entry, identities=[name], bodies=bodies, _bodies_bytes=None),
        )


def part_of(entry: LogEntry, start: int, end: int) -> LogEntry:
    """The records of an entry from one place to before another, as an entry of their own."""
    identities, expires_us = entry.identities, entry.expires_us
    return replace(
        entry,
        seq=entry.seq + start,
        identities=None if identities is None else identities[start:end],
        bodies=entry.bodies[start:end],
        expires_us=expires_us if isinstance(expires_us, int) else expires_us[start:end],
        _bodies_bytes=None,
    )


def expiries_of(entry: LogEntry) -> Iterable[int]:
    """When the records of an entry expire."""
    expires_us = entry.expires_us
    return repeat(expires_us, len(entry)) if isinstance(expires_us, int) else expires_us


def goes_on(entry: LogEntry, following: LogEntry) -> bool:
    """Whether one change goes on in the next entry: that of a topic at one time. A large publish is
    logged in slices, a commit by what it does; two changes have two times, since a server's clock
    never stands still."""
    is_next = entry.seq + len(entry) == following.seq and entry.ts_us == following.ts_us
    return is_next and entry.topic == following.topic


def joins(entry: LogEntry, following: LogEntry) -> bool:
    """Whether a later entry is of the same turn: views have released the changes of both at
    once."""
    return 0 < following.turn < entry.seq + len(entry)


@dataclass(slots=True)
class Slice:
    """Part of a checkpoint of one topic: records as columns, each as of its own `seqs[i]`.

    All columns are of one length; `numbers` makes those of numbers. `ts_us` and `expires_us`
    (0: never) are microseconds since 1970 UTC. `born` is the sequence number of a record's first
    publication, which orders the records of an answer (docs/semantics.md, Rule 9). `sow_keys`,
    unsigned, take longer to make than to read; None where there are none, or an earlier release has
    written the file. `values` are what indexes know of the records (`sow.indexes.stored_values`),
    where that was stored.

    The events of a series are in slices of their own (`sow.topic.series`).
    """

    identities: list[str]
    bodies: list[bytes]
    seqs: Numbers
    ts_us: Numbers
    born: Numbers
    expires_us: Numbers
    sow_keys: "Numbers | None" = None
    values: bytes | None = None

    @property
    def is_events(self) -> bool:
        """Whether its rows are events of a series."""
        return bool(self.expires_us) and self.expires_us[0] == EVENT_ROWS

    def at(self, places: Sequence[int], identity: Callable[[str], str]) -> "Slice":
        """The records at some places, their identities changed by `identity`."""
        return Slice(
            [identity(self.identities[at]) for at in places],
            [self.bodies[at] for at in places],
            numbers(self.seqs[at] for at in places),
            numbers(self.ts_us[at] for at in places),
            numbers(self.born[at] for at in places),
            numbers(self.expires_us[at] for at in places),
            None if self.sow_keys is None else array("Q", [self.sow_keys[at] for at in places]),
        )


class Loads(Protocol):
    """Records that a journal keeps ahead of the entries that make them part of its log, by load."""

    def put(self, name: str, entries: Sequence[LogEntry]) -> None:
        """Make `entries` durable as the next part of a load: publishes of one topic, numbered from
        1 on in each load. For the thread that appends; raises what `append` does."""
        ...

    def load(self, name: str) -> Load:
        """What was put so far, for the entry that makes it part of the log."""
        ...

    def entries(self, load: Load) -> Iterator[LogEntry]:
        """The entries of a load as they were put; raises Damaged."""
        ...

    def discard(self, name: str) -> None:
        """Give up a load that no entry was appended for; there may be none. `trim` removes it, and
        the next start does what was not appended. For the thread that appends."""
        ...


class OpenWindows(NamedTuple):
    """What was open after record `seq` at a time, in the form of who made it."""

    seq: int
    time_us: int
    windows: list[Any]


class WindowsPlace(NamedTuple):
    """Where open windows are kept: after record `seq`, at a time."""

    seq: int
    time_us: int


class KeptWindows(Protocol):
    """What was open after some records of a log. One thread writes."""

    @property
    def places(self) -> Sequence[WindowsPlace]:
        """Where some are kept, in order."""
        ...

    def put(self, place: WindowsPlace, block: bytes) -> None:
        """Keep what `seal_windows` made of those of a record that is durable and later than all
        others, unless they are too many; raises StoreError."""
        ...

    def load(self, place: WindowsPlace) -> Task[OpenWindows | None]:
        """Those of a place, read in steps; None where they are kept no more, or are not as they
        were written."""
        ...


class Log(Protocol):
    """A log that is read; any thread may."""

    @property
    def log_id(self) -> str:
        """Its name, which no other log has; empty until a start has given it one."""
        ...

    def read(self, after_seq: int) -> Iterator[LogEntry]:
        """Entries in order from the one holding record `after_seq + 1`, up to the newest.

        The first may begin before that record. Accounts are not among them. Raises StoreError
        where retention has removed that record already, and Damaged where a stored byte is not
        what was written.
        """
        ...

    def pieces(self, after_seq: int, topics: Container[str] | None = None) -> Iterator[LogPiece]:
        """The same in pieces of bounded size, without a gap; entries of other topics than `topics`
        are passed over without decoding them."""
        ...

    @property
    def windows(self) -> KeptWindows:
        """What was open after some of its records."""
        ...

    @property
    def first_seq(self) -> int:
        """The oldest record still kept, or `last_seq + 1` when there is none."""
        ...

    @property
    def begins_after(self) -> int:
        """The record behind which the log has begun: nothing was before."""
        ...

    @property
    def last_seq(self) -> int:
        """The newest durable record, 0 in a new journal."""
        ...


def is_whole(log: Log) -> bool:
    """Whether a log is kept from its beginning on: what it does not have has never been."""
    return log.first_seq - 1 <= log.begins_after


class Journal(Log, Protocol):
    """The transaction log. `append` and `trim` write, from one thread; any thread may read.

    What `append` has returned from is durable: it is read again after any end of the process.
    """

    log_id: str
    begins_after: int

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Make `entries` durable, all or none.

        They follow the newest record without a gap, except accounts, which may come anywhere.
        Raises DiskFull where there is no room and StoreError where the disk refuses otherwise;
        then none is kept, and the same entries may be appended again.
        """
        ...

    @property
    def loads(self) -> Loads:
        """Records that are not in the log yet."""
        ...

    def stretches(self, after_seq: int, topics: Container[str]) -> Iterator[LogStretch]:
        """`pieces` for a reader that counts: stretches of bounded size, without a gap; the first
        may begin before record `after_seq + 1`."""
        ...

    def blocks(self, after_seq: int, until_seq: int) -> Generator[bytes, None, None]:
        """What is stored from the block that holds record `after_seq + 1` up to record `until_seq`,
        where one ends, as it is. Raises Damaged."""
        ...

    def accounts(self) -> Sequence[LogEntry] | None:
        """The last state of each account, an entry each, in the order of their numbers and times.

        None where no account was ever kept. Raises Damaged.
        """
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes kept."""
        ...

    def has_room(self, size_bytes: int = 0) -> bool:
        """Whether the disk takes `size_bytes` more, with a margin, without the reserve. Cheap
        enough for every message."""
        ...

    def takes(self, size_bytes: int) -> bool:
        """Whether `size_bytes` more fit, if only into the reserve. Cheap enough for every
        message."""
        ...

    def lost(self) -> StoreFailing | None:
        """Why there is no room, where that is not for want of space: the disk has the journal no
        more."""
        ...

    @property
    def room_bytes(self) -> int:
        """How much the disk takes without touching the reserve."""
        ...

    def is_strained(self) -> bool:
        """Whether more is kept beyond what retention wants than the disk has room left; cheap."""
        ...

    def trim(self, now_us: int, keep_from_seq: int, beyond: bool = False) -> bool:
        """Drop a bounded part of what retention no longer wants, or of what it wants too, if
        `beyond`; True when there may be more.

        `now_us` is what the age of entries is measured against. Record `keep_from_seq` and what
        follows is kept, and so is what an open `read` has yet to read.
        """
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class KeptCheckpoint(NamedTuple):
    """An earlier checkpoint, kept for the History of its topic.

    With the log behind record `seq` it gives every state from record `exact_seq` on: its records
    were copied while others came, and that was the newest one at the end, at `exact_us`.
    """

    seq: int
    exact_seq: int
    exact_us: int
    generation: int = 0


Exact = Callable[[], tuple[int, int] | None]
"""Says, once all slices of a checkpoint have been taken, from which record and time on it is exact,
if it is to be kept."""


class StoredRecords(Protocol):
    """Records of one definition, to begin with."""

    @property
    def seq(self) -> int:
        """Every log record up to here is contained; replay starts after it. 0: none yet."""
        ...

    @property
    def records(self) -> int:
        """How many records it holds."""
        ...

    def load(self) -> Iterator[Slice]:
        """The last complete checkpoint, in the slices in which it was written.

        Raises Damaged where a stored byte is not what was written.
        """
        ...


class Checkpoint(StoredRecords, Protocol):
    """The stored copy of one topic's table, and earlier ones that are kept. One thread writes."""

    def write(self, seq: int, slices: Iterable[Slice], exact: Exact | None = None) -> None:
        """Replace the checkpoint, atomically: until it is complete the old one counts.

        `slices` contain every record of the log up to `seq`, and maybe newer states. It is kept
        when the next one replaces it, if `exact` says so. Raises DiskFull and StoreError; then the
        old one stays.
        """
        ...

    @property
    def kept(self) -> Sequence[KeptCheckpoint]:
        """Those that are kept, the oldest first; the last may be the current one."""
        ...

    def load_kept(self, kept: KeptCheckpoint) -> Iterator[Slice]:
        """The slices of one of them; raises Damaged, and StoreError if it is kept no more."""
        ...

    def forget(self, count: int) -> None:
        """Keep the oldest `count` of them no more."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


NOTHING_STORED: Mapping[str, Checkpoint] = {}
"""The checkpoints where none are."""
