"""The commit sequencer: numbers changes and groups log entries until they are durable.

Every change gets a time that never lies before the last one, and the next sequence numbers; its log
entry goes into the open *group*. A flush closes the group and hands it to the store; until it is
released, its entries are in flight. The sequencer knows nothing of topics or subscribers, and
stores nothing.
"""

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from itertools import pairwise

from sow.store.protocols import KeptWindows, Log, LogEntry, LogPiece
from sow.streaming.sessions import Session
from sow.topic.batch import Batch


@dataclass(slots=True)
class Group:
    """What one flush hands over: store `entries`, then write to `sessions`, in this order.

    `number` counts the flushes from 1. Frames made in a group carry its number, and a session sends
    none before its group is released. `changes` are those of each source, by its name.
    """

    number: int
    entries: list[LogEntry] = field(default_factory=list)
    sessions: dict[Session, None] = field(default_factory=dict)
    changes: dict[str, list[Batch]] = field(default_factory=dict)


class CommitSequencer:
    """Numbers, moments and groups of one engine. All times in microseconds."""

    def __init__(self) -> None:
        self.seq = 0
        """The newest number that was given."""
        self.now_us = 0
        self._arrived_us = 0
        """The newest of the times that `arrivals` has given."""
        self.released = 0
        """The newest group that is durable."""
        self.open = Group(1)
        self._in_flight: deque[Group] = deque()
        self.unreleased: Sized = ()
        """Views that have something to release."""
        self.turn_of: Callable[[str], int] = lambda _topic: 0
        """Returns the record that a turn of views began with which a change of a topic is part of
        now, if any is `unreleased`; 0: none."""

    def moment(self, now_us: int) -> int:
        """The time of a change: times in the log never go back, whatever a clock does."""
        if now_us > self.now_us:  # several times at every publish, so without a call
            self.now_us = now_us
        return self.now_us

    def arrivals(self, count: int, now_us: int) -> range:
        """Times for messages that arrive at `now_us`. Each is given once, since keys may be made of
        them: later log entries have no earlier time, so that a restart finds the newest one."""
        first = max(now_us, self._arrived_us + 1)
        self._arrived_us = first + count - 1
        self.moment(self._arrived_us)
        return range(first, first + count)

    def numbers(self, count: int, account: bool) -> Sequence[int]:
        """Numbers for changes. System topics take none: their entries carry the last one."""
        if account:
            return [self.seq] * count
        seqs = range(self.seq + 1, self.seq + 1 + count)
        self.seq += count
        return seqs

    def note_turns(self, unreleased: Sized, turn_of: Callable[[str], int]) -> None:
        """Use these from now on."""
        self.unreleased, self.turn_of = unreleased, turn_of

    def begin_after(self, seq: int) -> None:
        """Continue after `seq`, the last number that a restart has found, and with arrival times
        after the newest time."""
        self.seq = seq
        self._arrived_us = self.now_us

    def write(self, entry: LogEntry) -> None:
        """Add an entry to the open group."""
        self.open.entries.append(entry)

    def note(self, topic: str, batch: Batch) -> None:
        """Records of a source have changed in the open group."""
        self.open.changes.setdefault(topic, []).append(batch)

    def close(self) -> Group:
        """Close the open group and open the next; returns the closed one."""
        group = self.open
        self.open = Group(group.number + 1)
        if group.entries or group.changes:
            self._in_flight.append(group)
        return group

    def release(self, group: Group) -> None:
        """A group is durable, and so are all before it."""
        assert group.number == self.released + 1
        self.released = group.number
        if self._in_flight and self._in_flight[0] is group:
            self._in_flight.popleft()

    def check(self) -> None:
        """Assert the invariants of a sequencer."""
        numbers = [group.number for group in (*self._in_flight, self.open)]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > self.released
        entries = [*self.in_flight()]
        for entry, following in pairwise(entries):
            assert entry.seq + len(entry) == following.seq, "the log would have a hole"
            assert entry.ts_us <= following.ts_us
        assert not entries or entries[-1].seq + len(entries[-1]) - 1 == self.seq
        assert not entries or entries[-1].ts_us <= self.now_us

    def changes_in_flight(self, topic: str) -> Iterator[Batch]:
        """Changes of a source that are not known to be durable yet, in order."""
        for group in (*self._in_flight, self.open):
            yield from group.changes.get(topic, ())

    @property
    def durable_seq(self) -> int:
        """The newest number up to which everything is known to be durable."""
        first = next(self.in_flight(), None)
        return self.seq if first is None else first.seq - 1

    def in_flight(self) -> Iterator[LogEntry]:
        """Log entries that are not known to be durable yet, in order; without system topics."""
        for group in (*self._in_flight, self.open):
            yield from (entry for entry in group.entries if not entry.account)


class CurrentLog:
    """The log of a journal with the entries that are on their way to it."""

    def __init__(self, journal: Log, sequencer: CommitSequencer) -> None:
        self._journal = journal
        self._sequencer = sequencer

    @property
    def log_id(self) -> str:
        """The name of the log."""
        return self._journal.log_id

    @property
    def windows(self) -> KeptWindows:
        """What was open after some of its records."""
        return self._journal.windows

    @property
    def first_seq(self) -> int:
        """The oldest record that is kept."""
        return self._journal.first_seq

    @property
    def begins_after(self) -> int:
        """The record behind which it has begun."""
        return self._journal.begins_after

    @property
    def last_seq(self) -> int:
        """The newest record that can be read."""
        return max([self._journal.last_seq, *(e.seq + len(e) - 1 for e in self._coming())])

    def misses_load(self, seq: int) -> bool:
        """Records up to `seq` cannot be read before they are durable: their entry only names
        them."""
        coming = self._sequencer.in_flight()
        return any(entry.load is not None and entry.seq <= seq for entry in coming)

    def read(self, after_seq: int) -> Iterator[LogEntry]:
        """Entries in order from the one holding record `after_seq + 1`, up to the newest."""
        for piece in self.pieces(after_seq):
            yield from piece.entries

    def pieces(self, after_seq: int, topics: Container[str] | None = None) -> Iterator[LogPiece]:
        """The same in pieces of bounded size, as those of a journal."""
        reached = after_seq
        for piece in self._journal.pieces(after_seq, topics):
            yield piece
            reached = piece.last_seq
        for entry in [*self._coming()]:
            last_seq = entry.seq + len(entry) - 1
            if last_seq > reached:
                yield LogPiece(last_seq, [entry] if topics is None or entry.topic in topics else [])

    def _coming(self) -> Iterator[LogEntry]:
        """Entries that are on their way, up to one without its records."""
        for entry in self._sequencer.in_flight():
            if entry.load is not None:
                return
            yield entry
