"""The ledger: what is done to records, in order, until it is durable.

Every change is given a moment that never lies before the last one, and the next numbers of the log;
an entry of it goes into the open *group*. A group is closed by a flush and handed to whoever stores
it; until it is released, its entries are on their way. The ledger knows nothing of topics or of who
is told, and stores nothing.
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

    `number` counts the flushes from 1. Frames that were made in a group carry its number, and a
    session lets none go whose group has not been released. `changes` are those of each source, by
    its name.
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
        """When something happens: the times of the log never go back, whatever a clock does."""
        if now_us > self.now_us:  # asked several times at every publish, so without a call
            self.now_us = now_us
        return self.now_us

    def arrivals(self, count: int, now_us: int) -> range:
        """Times for messages that come at `now_us`. None is given twice, since keys may be made of
        them: what is logged later bears no earlier time, so that a restart finds the newest one."""
        first = max(now_us, self._arrived_us + 1)
        self._arrived_us = first + count - 1
        self.moment(self._arrived_us)
        return range(first, first + count)

    def numbers(self, count: int, account: bool) -> Sequence[int]:
        """Numbers for changes. The server's own accounts take none: they bear the last one."""
        if account:
            return [self.seq] * count
        seqs = range(self.seq + 1, self.seq + 1 + count)
        self.seq += count
        return seqs

    def begin_after(self, seq: int) -> None:
        """Go on with the numbers after `seq`, which a restart has found to be the last, and with
        the times of arrival after the newest moment."""
        self.seq = seq
        self._arrived_us = self.now_us

    def write(self, entry: LogEntry) -> None:
        """Have an entry stored with the open group."""
        self.open.entries.append(entry)

    def note(self, topic: str, batch: Batch) -> None:
        """Records of a source have changed in the open group."""
        self.open.changes.setdefault(topic, []).append(batch)

    def close(self) -> Group:
        """Close the open group and begin another one; returns the closed one."""
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
        """Assert what is always true of a ledger."""
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
        """What has changed in a source and is not known to be durable yet, in order."""
        for group in (*self._in_flight, self.open):
            yield from group.changes.get(topic, ())

    @property
    def durable_seq(self) -> int:
        """The newest number up to which everything is known to be durable."""
        first = next(self.in_flight(), None)
        return self.seq if first is None else first.seq - 1

    def in_flight(self) -> Iterator[LogEntry]:
        """Log entries that are not known to be durable yet, in order; no accounts."""
        for group in (*self._in_flight, self.open):
            yield from (entry for entry in group.entries if not entry.account)
