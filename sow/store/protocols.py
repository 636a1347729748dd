"""What the engine asks of a store, with no say in how it is kept.

The log is the truth: an `LogEntry` is appended for every accepted batch, and a `Journal` makes it
durable. A checkpoint is a conflated copy of the log: the same entries with only the last change
of each record. `sow.store.journal` and `sow.store.checkpoint` keep them on disk,
`sow.store.volatile` in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

Op = Literal["publish", "delete", "expire"]


@dataclass(slots=True)
class LogEntry:
    """A batch of log records of one topic and one operation, in order.

    Record `i` has sequence number `seq + i` (dense over all topics) and all share `ts_us`.
    `identities` are the records' identities within the topic (see `sow.keys`); None for a
    publish whose identities follow from its bodies. `bodies` is empty unless `op` is publish.
    `expires_us` is the absolute time at which the batch's records expire, or 0 for never.

    An `account` is of a topic of the server's own: it takes no numbers (`seq` is the last one that
    was given), so that the log of everybody else's records has no holes. It names its records, and
    of each only the last state is kept.
    """

    op: Op
    topic: str
    seq: int
    ts_us: int
    identities: Sequence[str] | None
    bodies: Sequence[bytes]
    expires_us: int = 0
    account: bool = False

    def __len__(self) -> int:
        return len(self.bodies) if self.op == "publish" else len(self.identities or ())

    def size_bytes(self) -> int:
        """Bytes of its bodies and identities. Works on every record."""
        texts = sum(len(text.encode(errors="replace")) for text in self.identities or ())
        return texts + sum(map(len, self.bodies))


def accounts_of(entry: LogEntry) -> Iterator[tuple[str, LogEntry | None]]:
    """What an account entry says of each record: an entry of its own, or None if it is gone."""
    for at, name in enumerate(entry.identities or ()):
        gone = entry.op != "publish"
        bodies = entry.bodies[at : at + 1]
        yield name, None if gone else replace(entry, identities=[name], bodies=bodies)


@dataclass(slots=True)
class Slice:
    """Part of a checkpoint of one topic: records as columns, each as of its own `seqs[i]`.

    `born` orders records by first publication (docs/semantics.md, Rule 9).
    """

    identities: list[str]
    bodies: list[bytes]
    seqs: list[int]
    ts_us: list[int]
    born: list[int]
    expires_us: list[int]

    def at(self, places: Sequence[int], identity: Callable[[str], str]) -> "Slice":
        """The records at some places, their identities changed by `identity`."""
        return Slice(
            [identity(self.identities[at]) for at in places],
            [self.bodies[at] for at in places],
            [self.seqs[at] for at in places],
            [self.ts_us[at] for at in places],
            [self.born[at] for at in places],
            [self.expires_us[at] for at in places],
        )


class Journal(Protocol):
    """The transaction log. `append` and `trim` write, from one thread; any thread may read."""

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Make `entries` durable, all or none; raises DiskFull (then none is kept)."""
        ...

    def read(self, after_seq: int) -> Iterator[LogEntry]:
        """Entries in order from the one holding record `after_seq + 1`; raises Damaged.

        Accounts are not among them.
        """
        ...

    def accounts(self) -> Sequence[LogEntry] | None:
        """The last state of each account, an entry each; None where none was ever kept so."""
        ...

    @property
    def first_seq(self) -> int:
        """The oldest record still kept, or `last_seq + 1` when there is none."""
        ...

    @property
    def last_seq(self) -> int:
        """The newest durable record, 0 in a new journal."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes kept."""
        ...

    def has_room(self) -> bool:
        """Whether the disk takes more without touching the reserve; cheap."""
        ...

    def takes(self, size_bytes: int) -> bool:
        """Whether so many bytes more fit, if only into the reserve; cheap."""
        ...

    def is_strained(self) -> bool:
        """Whether more is kept beyond what retention wants than the disk has room left; cheap."""
        ...

    def trim(self, now_us: int, keep_from_seq: int) -> bool:
        """Drop what retention no longer wants, in bounded steps; True when there may be more."""
        ...

    def close(self) -> None:
        """Release the files."""
        ...


class Checkpoint(Protocol):
    """The stored copy of one topic's table."""

    @property
    def seq(self) -> int:
        """Every log record up to here is contained; replay starts after it. 0: none yet."""
        ...

    def load(self) -> Iterator[Slice]:
        """The last complete checkpoint, in slices of bounded size; raises Damaged."""
        ...

    def write(self, seq: int, slices: Iterable[Slice]) -> None:
        """Replace the checkpoint, atomically: until it is complete the old one stands."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...
