"""The commit sequencer: numbers changes and groups log entries until they are durable.

Every change gets a time that never lies before the last one, and the next sequence numbers; its log
entry goes into the open *group*. A flush closes the group and hands it to the store; until it is
released, its entries are in flight. The sequencer knows nothing of topics or subscribers, and
stores nothing.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sow.store.protocols import LogEntry
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
