"""The outbox: what waits to be written to one session, in order, bounded.

Frames of a feed are shared between sessions and held by reference. While a client keeps up nothing
but references passes through here. When it does not, updates are *folded* (`sow.folding`), topic
by topic: entries that hold shared frames are taken apart into single updates, and those that match
become one. What must not be touched (acks, snapshots, topics with the policy `off`) keeps its
place.

Every entry carries the number of the commit group it was said in; it may leave once that group
is durable, so that nothing a client has seen can be lost in a crash. Counts of messages and bytes
are exact at all times. No I/O and no clock here.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sow.folding import DISPLACEMENTS_MAX, Key
from sow.topics import SessionSettings
from sow.updates import Update

if TYPE_CHECKING:
    from sow.feeds import Feed
    from sow.strands import Delivery, Strand

Frames = Iterator[tuple[bytes, int]]

GATHERED_MAX = 500
"""So many single updates leave in one frame."""
DEAD_MIN = 64


class Entry:
    """One thing that waits. Exactly one of these, by what is set:

    a frame of `messages` lines (`delivery` says of what, None: not to be touched); frames
    still to be made (`frames`); or a single update of `feed`, whose line is `frame`.
    """

    __slots__ = (
        "delivery",
        "feed",
        "frame",
        "frames",
        "group",
        "key",
        "messages",
        "moved",
        "since_us",
        "update",
    )

    def __init__(self, group: int, since_us: int, frame: bytes, messages: int) -> None:
        self.group = group
        self.since_us = since_us
        self.frame = frame
        self.messages = messages
        self.delivery: Delivery | None = None
        self.frames: Frames | None = None
        self.feed: Feed | None = None
        self.key: Key | None = None
        self.update: Update | None = None
        self.moved = 0

    @property
    def strand(self) -> "Strand | None":
        """The subscription that it belongs to."""
        if self.delivery is not None:
            return self.delivery.strand
        return None if self.feed is None else self.feed.strand


class Outbox:
    """What waits for one socket."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._waiting: deque[Entry] = deque()
        self._dead = 0
        self._notice: Entry | None = None
        self._singles: dict[tuple[Feed, Key], Entry] = {}
        """The newest single update of each record, into which later ones are folded."""
        self.messages = 0
        self.bytes = 0
        self.folded = 0
        """Messages that folding has saved."""

    def __bool__(self) -> bool:
        return len(self._waiting) > self._dead

    @property
    def full(self) -> bool:
        """Over one of the bounds."""
        return (
            self.messages > self._settings.queue_messages_max
            or self.bytes > self._settings.queue_bytes_max
        )

    def fills(self, fraction: float) -> bool:
        """Over this part of one of the bounds."""
        return (
            self.messages > fraction * self._settings.queue_messages_max
            or self.bytes > fraction * self._settings.queue_bytes_max
        )

    def oldest_us(self) -> int | None:
        """Since when the head of the queue has waited."""
        return next((entry.since_us for entry in self._waiting if _lives(entry)), None)

    # In.

    def push(self, frame: bytes, messages: int, group: int, since_us: int) -> None:
        """Queue a frame that is not to be touched."""
        self._append(Entry(group, since_us, frame, messages))

    def push_first(self, frames: Iterable[tuple[bytes, int]]) -> None:
        """Put frames before all others; they have left once already."""
        for frame, messages in reversed(list(frames)):
            self._waiting.appendleft(Entry(0, 0, frame, messages))
            self.messages += messages
            self.bytes += len(frame)

    def push_notice(self, frame: bytes, since_us: int) -> None:
        """Queue a frame that stands for all of its kind: one that still waits is replaced."""
        if self._notice is None:
            self._notice = Entry(0, since_us, frame, 1)
            self._append(self._notice)
        else:
            self.bytes += len(frame) - len(self._notice.frame)
            self._notice.frame = frame

    def push_frames_first(self, frames: Frames) -> None:
        """Put frames that are made when they are pulled before all others."""
        entry = Entry(0, 0, b"", 0)
        entry.frames = frames
        self._waiting.appendleft(entry)

    def push_frames(self, frames: Frames, group: int, since_us: int) -> None:
        """Queue frames that are made when they are pulled, and so are not counted until then."""
        entry = Entry(group, since_us, b"", 0)
        entry.frames = frames
        self._waiting.append(entry)

    def push_delivery(
        self, delivery: "Delivery", group: int, since_us: int, conflates: bool
    ) -> None:
        """Queue a strand's frame; may leave the queue over its bounds, which the session judges.

        Where the topic wants it and something waits, its updates are folded at once.
        """
        if conflates and delivery.policy == "always" and self:
            before = self.messages + delivery.messages
            self._take_apart(delivery.strand)
            run = _Run(self, self._singles)
            for feed, key, update in delivery.keyed():
                run.fold(feed, key, update, group, since_us)
            self._singles = run.newest
            self._bury()
            self.folded += before - self.messages
            return
        entry = Entry(group, since_us, delivery.frame, delivery.messages)
        entry.delivery = delivery
        self._append(entry)

    def _append(self, entry: Entry) -> None:
        self._waiting.append(entry)
        self.messages += entry.messages
        self.bytes += len(entry.frame)

    # Out.

    def pull(self, released: int) -> tuple[bytes, int] | None:
        """The next frame of a group up to `released`, and its lines; None when none may leave.

        An empty frame says: ask again soon, there was work to do and nothing yet to show for it.
        """
        while self._waiting and self._waiting[0].group <= released:
            head = self._waiting[0]
            if head.frames is not None:
                made = next(head.frames, None)
                if made is not None:
                    return made
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            if not _lives(head):
                self._dead -= 1
                continue
            self._forget(head)
            if head.feed is None:
                return head.frame, head.messages
            return self._gather(head, released)
        return None

    def _gather(self, head: Entry, released: int) -> tuple[bytes, int]:
        """One frame of single updates that follow each other."""
        lines, waiting = [head.frame], self._waiting
        while waiting and len(lines) < GATHERED_MAX:
            entry = waiting[0]
            if entry.feed is None or entry.group > released:
                break
            waiting.popleft()
            if _lives(entry):
                lines.append(entry.frame)
                self._forget(entry)
            else:
                self._dead -= 1
        assert head.feed is not None
        return head.feed.encoding.frame(lines), len(lines)

    def _forget(self, entry: Entry) -> None:
        self.messages -= entry.messages
        self.bytes -= len(entry.frame)
        if entry is self._notice:
            self._notice = None
        if entry.feed is not None and entry.key is not None:
            place = (entry.feed, entry.key)
            if self._singles.get(place) is entry:
                del self._singles[place]

    def clear(self) -> None:
        """Drop all that waits."""
        self._waiting.clear()
        self._singles.clear()
        self._notice = None
        self.messages = self.bytes = self._dead = 0

    # Conflation.

    def conflate(self) -> None:
        """Fold the whole queue, topic by topic, in one batch."""
        before = self.messages
        run = _Run(self, self._singles)
        for entry in self._take_all():
            delivery = entry.delivery
            if delivery is None or delivery.policy == "off":
                # What was folded before is one update of each record already: it only has to
                # stay where it is, and to be found.
                if _lives(entry):
                    self._append(entry)
                continue
            for feed, key, update in delivery.keyed():
                run.fold(feed, key, update, entry.group, entry.since_us)
        self._singles = run.newest
        self._bury(always=True)
        self.folded += before - self.messages

    def strands_to_give_up(self) -> list["Strand"]:
        """Strands with a topic that says that under back-pressure it is given up."""
        held = (entry.delivery for entry in self._waiting if entry.delivery is not None)
        return list(dict.fromkeys(d.strand for d in held if d.policy == "unsubscribe"))

    def drop(self, strand: "Strand") -> int:
        """Drop what waits of one strand; returns how many messages that were."""
        before = self.messages
        self._singles = {
            place: entry for place, entry in self._singles.items() if place[0].strand is not strand
        }
        for entry in self._take_all():
            if entry.strand is not strand and _lives(entry):
                self._append(entry)
        return before - self.messages

    def _take_apart(self, strand: "Strand") -> None:
        """Turn a strand's shared frames into single updates, so that they can be folded."""
        if not any(_is_always(entry, strand) for entry in self._waiting):
            return
        run = _Run(self, self._singles)
        for entry in self._take_all():
            delivery = entry.delivery
            if delivery is not None and _is_always(entry, strand):
                for feed, key, update in delivery.keyed():
                    run.fold(feed, key, update, entry.group, entry.since_us)
            elif _lives(entry):
                self._append(entry)
        self._singles = run.newest

    def _take_all(self) -> deque[Entry]:
        """All entries, out of the queue and its counts, to be put back one by one."""
        entries, self._waiting = self._waiting, deque()
        self.messages = self.bytes = self._dead = 0
        return entries

    def _bury(self, always: bool = False) -> None:
        """Take out what was folded away, once it is most of the queue."""
        if always or (self._dead > DEAD_MIN and 2 * self._dead > len(self._waiting)):
            self._waiting = deque(filter(_lives, self._waiting))
            self._dead = 0

    def check(self) -> None:
        """Assert that the counts are those of what is held."""
        assert self.messages == sum(entry.messages for entry in self._waiting)
        assert self.bytes == sum(len(entry.frame) for entry in self._waiting)
        assert self._dead == sum(not _lives(entry) for entry in self._waiting)
        assert all(_lives(entry) for entry in self._singles.values())


class _Run:
    """One pass of folding. `newest` finds the entry that a matching update is folded into."""

    def __init__(self, outbox: Outbox, newest: dict[tuple["Feed", Key], Entry]) -> None:
        self._outbox = outbox
        self.newest = newest

    def fold(
        self,
        feed: "Feed",
        key: Key | None,
        update: Update,
        group: int,
        since_us: int,
    ) -> None:
        """Queue an update, or let an earlier one that matches take it in."""
        current = None if key is None else self.newest.get((feed, key))
        if key is None:
            # Nothing that comes later may be moved before a record's leaving.
            self.newest = {place: e for place, e in self.newest.items() if place[0] is not feed}
        if current is None or current.update is None:
            self._queue(feed, key, update, group, since_us, 0)
            return
        folded = feed.folding.fold(current.update, update)
        if folded == "kept both":
            self._queue(feed, key, update, group, since_us, 0)
        elif folded != "kept current":
            assert isinstance(folded, Update)
            if folded.is_void:
                self._kill(current)
                self.newest.pop((feed, current.key or ()))
            elif feed.folding.appends and current.moved < DISPLACEMENTS_MAX:
                self._kill(current)
                # Its place is that of its newest change, and so is its bookmark.
                folded = folded._replace(first_seq=folded.seq)
                self._queue(feed, key, folded, group, current.since_us, current.moved + 1)
            else:
                # Whosever update stands there now, the place is still that of the first one.
                folded = folded._replace(first_seq=current.update.first_seq)
                self._rewrite(current, folded, group)

    def _queue(
        self,
        feed: "Feed",
        key: Key | None,
        update: Update,
        group: int,
        since_us: int,
        moved: int,
    ) -> None:
        entry = Entry(group, since_us, feed.shortest_line(update), 1)
        entry.feed, entry.key, entry.update, entry.moved = feed, key, update, moved
        self._outbox._append(entry)
        if key is not None:
            self.newest[feed, key] = entry

    def _rewrite(self, entry: Entry, update: Update, group: int) -> None:
        assert entry.feed is not None
        line = entry.feed.shortest_line(update)
        self._outbox.bytes += len(line) - len(entry.frame)
        entry.frame, entry.update = line, update
        entry.group = max(entry.group, group)

    def _kill(self, entry: Entry) -> None:
        outbox = self._outbox
        outbox.messages -= entry.messages
        outbox.bytes -= len(entry.frame)
        outbox._dead += 1
        entry.messages, entry.frame, entry.update = 0, b"", None


def _lives(entry: Entry) -> bool:
    """Whether an entry has not been folded into another."""
    return bool(entry.messages) or entry.frames is not None


def _is_always(entry: Entry, strand: "Strand") -> bool:
    """Whether an entry is a frame of a strand's topics that are always conflated."""
    delivery = entry.delivery
    return delivery is not None and delivery.strand is strand and delivery.policy == "always"
