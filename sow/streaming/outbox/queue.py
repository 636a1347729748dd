"""The queue of an outbox: entries in order, with exact counts of messages and bytes.

An entry that was folded away stays in place, empty, until it is at the head or most of the queue is
such: removing single entries from the middle would cost as much as the queue is long. Entries are
older the nearer they are to the head. A pair counts as one message.

During a passage that folds the queue, entries that it has not reached are apart (`unfolded`),
behind all others; new entries are appended there. They count and leave like the rest.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, pairwise

from sow.streaming.outbox.entries import Queued, QueuedUpdate
from sow.topic.updates import Update

DEAD_MIN = 64
"""Fewer entries that were folded away are not worth a walk through the queue."""
NONE_UNFOLDED: deque[Queued] = deque()
"""Shared by all queues that are not being folded, and never added to: an empty deque takes 760
bytes."""


class Queue:
    """Entries, how many messages they are, and the bytes of their frames."""

    __slots__ = ("_pairs", "bytes", "dead", "entries", "message_count", "unfolded")

    def __init__(self) -> None:
        self.entries: deque[Queued] = deque()
        self.unfolded = NONE_UNFOLDED
        """Entries behind them that a passage has not reached."""
        self.dead = 0
        """Entries that were folded away and are still in place."""
        self._pairs = 0
        self.message_count = 0
        """Lines that wait, of a pair only the newer one."""
        self.bytes = 0

    def __bool__(self) -> bool:
        return len(self.entries) + len(self.unfolded) > self.dead

    def __iter__(self) -> Iterator[Queued]:
        return chain(self.entries, self.unfolded)

    @property
    def line_count(self) -> int:
        """Lines that wait, of a pair both."""
        return self.message_count + self._pairs

    def oldest_us(self) -> int | None:
        """Since when the head of the queue has waited; nothing has waited longer."""
        return next((entry.since_us for entry in self if entry.lives), None)

    # In and out.

    def append(self, entry: Queued) -> None:
        """Append an entry at the end."""
        self._append(self.unfolded or self.entries, entry)

    def append_folded(self, entry: Queued) -> None:
        """Append an entry behind those that a passage has reached."""
        self._append(self.entries, entry)

    def _append(self, entries: deque[Queued], entry: Queued) -> None:
        if entries and entry.since_us < entries[-1].since_us:
            entry.wait_after(entries[-1])
        entries.append(entry)
        self.message_count += entry.message_count
        self.bytes += len(entry.frame)

    def prepend(self, entry: Queued) -> None:
        """Put an entry before all others."""
        oldest_us = self.oldest_us()
        if oldest_us is not None:
            entry.wait_before(oldest_us)
        self.entries.appendleft(entry)
        self.message_count += entry.message_count
        self.bytes += len(entry.frame)

    def pop(self) -> None:
        """Remove the first entry."""
        self._take_first(self.entries)

    def _take_first(self, entries: deque[Queued]) -> Queued:
        entry = entries.popleft()
        self.dead -= not entry.lives
        self.message_count -= entry.message_count
        self.bytes -= len(entry.frame)
        return entry

    def begin_again(self) -> None:
        """Begin a passage through all entries, unless there is one."""
        if not self.unfolded:
            self.entries, self.unfolded = deque(), self.entries

    def take_unfolded(self) -> Queued:
        """Remove the first unfolded entry, to be put where it belongs."""
        entry = self._take_first(self.unfolded)
        if not self.unfolded:
            self.unfolded = NONE_UNFOLDED
        return entry

    def filter(self, wanted: Callable[[Queued], bool]) -> None:
        """Keep the entries that live and are `wanted`."""
        for entries in (self.entries, self.unfolded):
            for _ in range(len(entries)):
                entry = self._take_first(entries)
                if entry.lives and wanted(entry):
                    self._append(entries, entry)

    def clear(self) -> None:
        """Drop everything that waits, and leave no cycles: the collector rarely looks for those of
        long-lived objects (`sow.server.loop.gc_pacing`), so each slow client would leave its whole
        queue behind.
        """
        for entry in self:
            if isinstance(entry, QueuedUpdate):
                entry.part()
                entry.membership.close_places()
        self.entries.clear()
        self.unfolded = NONE_UNFOLDED
        self.message_count = self.bytes = self.dead = self._pairs = 0

    # Waiting entries.

    def reframe(self, entry: Queued, frame: bytes) -> None:
        """Replace the frame of an entry."""
        self.bytes += len(frame) - len(entry.frame)
        entry.reframe(frame)

    def rewrite(self, entry: QueuedUpdate, update: Update, group: int) -> None:
        """Replace the update of a single update by one of `group`."""
        self.bytes -= len(entry.frame)
        entry.rewrite(update, group)
        self.bytes += len(entry.frame)

    def kill(self, entry: QueuedUpdate) -> None:
        """Another entry has taken in this one's update."""
        self.part(entry)
        self.message_count -= entry.message_count
        self.bytes -= len(entry.frame)
        self.dead += 1
        entry.fold_away()

    def pair(self, older: QueuedUpdate, newer: QueuedUpdate) -> None:
        """Count two single updates of a place as one message."""
        newer.follow(older)
        self._pairs += 1
        self.message_count -= 1

    def part(self, entry: QueuedUpdate) -> None:
        """Dissolve the pair of a single update, if it has one."""
        parted = entry.part()
        self._pairs -= parted
        self.message_count += parted

    def compact(self, always: bool = False) -> None:
        """Remove what was folded away, once it is most of the queue."""
        if always or (self.dead > DEAD_MIN and 2 * self.dead > len(self.entries)):
            count = len(self.entries)
            self.entries = deque(entry for entry in self.entries if entry.lives)
            self.dead -= count - len(self.entries)

    def check(self) -> None:
        """Assert what everything above relies on."""
        entries, living = list(self), [e for e in self if e.lives]
        singles = [entry for entry in living if isinstance(entry, QueuedUpdate)]
        assert self.line_count == sum(entry.message_count for entry in entries)
        assert self.bytes == sum(len(entry.frame) for entry in entries)
        assert self.dead == len(entries) - len(living)
        pairs = [(e.older, e) for e in singles if e.older is not None]
        assert self._pairs == len(pairs) == sum(e.newer is not None for e in singles)
        assert all(older.newer is newer and older.lives for older, newer in pairs)
        gone_through = {id(entry) for entry in self.entries}
        numbered = [pair for pair in pairs if id(pair[1]) in gone_through]
        assert all(older.number < newer.number for older, newer in numbered)
        assert all(older.place == newer.place and older.older is None for older, newer in pairs)
        assert all(one.since_us <= other.since_us for one, other in pairwise(living))
