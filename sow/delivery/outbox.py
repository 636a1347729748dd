"""The outbox: what waits to be written to one session, in order, bounded.

A strand's frames are shared between sessions and held by reference. While a client keeps up nothing
but references passes through here. When it does not, updates are *folded*
(`sow.topic.queue_policy`), topic by topic: entries that hold shared frames are taken apart into
single updates, and those that match become one. What must not be touched (acks, snapshots, topics
with the policy `off`) keeps its place.

Folding keeps within a *membership*, from a session's joining a strand to its leaving it: one that
unsubscribes and comes back begins another, so that nothing is moved in front of its new snapshot.
It takes an update to an earlier one that waits, or to the end, and never in front of another one of
the same record: a record does not go backwards.

Every entry carries the number of the commit group it was said in; it may leave once that group
is durable, so that nothing a client has seen can be lost in a crash. While there is always a group
on its way to the disk, a record that changes all the time would never leave if each change were
folded into the one that waits. So an update is not folded into one that is on its way, but gets an
entry of its own, into which all that follow are folded. There are two of a place at most, a *pair*:
the older leaves as soon as the disk has it. If it only waits for the client, both become one again.
A pair counts as one message.

Counts of messages and bytes are exact at all times. No I/O and no clock here.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from sow.definitions import Policy, SessionSettings
from sow.delivery.lines import Delivery, FoldPlace, Lines
from sow.encodings import Frames
from sow.topic.queue_policy import DISPLACEMENTS_MAX
from sow.topic.updates import Update

GATHERED_MAX = 500
"""So many single updates leave in one frame."""
DEAD_MIN = 64


class Pulled(NamedTuple):
    """A frame that leaves, how many lines it has, and since when it has waited."""

    frame: bytes
    messages: int
    since_us: int


class Queued:
    """One thing that waits. Exactly one of these, by what is set:

    a frame of `messages` lines (`delivery` says of what, None: not to be touched); frames still to
    be made (`frames`); or a single `update`, which `lines` words and `frame` is the line of. The
    single updates of a membership are numbered in their order. `older` and `newer` are the other
    one of its pair; `apart` says of the newer one that it cannot take the place of the older one.
    """

    __slots__ = (
        "apart",
        "delivery",
        "frame",
        "frames",
        "group",
        "lines",
        "membership",
        "messages",
        "moved",
        "newer",
        "number",
        "older",
        "place",
        "since_us",
        "update",
    )

    def __init__(self, group: int, since_us: int, frame: bytes, messages: int) -> None:
        self.group = group
        self.since_us = since_us
        self.frame = frame
        self.messages = messages
        self.membership: Membership | None = None
        self.delivery: Delivery | None = None
        self.frames: Frames | None = None
        self.lines: Lines | None = None
        self.place: FoldPlace | None = None
        self.update: Update | None = None
        self.moved = 0
        self.number = 0
        self.older: Queued | None = None
        self.newer: Queued | None = None
        self.apart = False

    @property
    def lives(self) -> bool:
        """Whether it has not been folded into another."""
        return bool(self.messages) or self.frames is not None

    @property
    def policy(self) -> Policy:
        """What may be done with it under back-pressure."""
        if self.delivery is not None:
            return self.delivery.policy
        return "off" if self.lines is None else self.lines.queue_policy.policy


class Membership:
    """What a session is told under one name, from joining a strand to leaving it.

    `eager` counts the waiting frames of topics that are always conflated.
    """

    __slots__ = ("_number", "eager", "name", "newest", "reached")

    def __init__(self, name: str) -> None:
        self.name = name
        self.eager = 0
        self.restart()

    def restart(self) -> None:
        """Begin to go through what waits: nothing that comes is folded into what is behind it."""
        self._number = 0
        self.newest: dict[FoldPlace, Queued] = {}
        """The newest single update of each place, into which later ones are folded."""
        self.reached: dict[tuple[Lines, str], int] = {}
        """The number of each record's last update: with Match it may wait in several places."""

    def enter(self, entry: Queued) -> None:
        """A single update stands at the end."""
        assert entry.place is not None
        self._number += 1
        entry.number = self._number
        self.newest[entry.place] = entry
        self.reach(entry)

    def reach(self, entry: Queued) -> None:
        """An entry says another update than before."""
        assert entry.lines is not None
        assert entry.update is not None
        record = entry.lines, entry.update.identity
        # Put in anew, so that the numbers stand in order but for few.
        self.reached.pop(record, None)
        self.reached[record] = entry.number

    def give_up(self, entry: Queued) -> None:
        """A single update is dropped: the older one of its pair, if any, is the newest again."""
        assert entry.place is not None
        assert entry.update is not None
        older = entry.older
        if older is None:
            del self.newest[entry.place]
        else:
            assert older.update is not None
            self.newest[entry.place] = older
            if older.update.identity == entry.update.identity:
                self.reach(older)

    def last(self, lines: Lines, update: Update) -> int:
        """The number of the last entry that said something of an update's record; 0: none did."""
        return self.reached.get((lines, update.identity), 0)

    def forget(self, entry: Queued) -> None:
        """A single update has left."""
        assert entry.place is not None
        if self.newest.get(entry.place) is entry:
            del self.newest[entry.place]
        while self.reached:
            record, number = next(iter(self.reached.items()))
            if number > entry.number:
                break
            del self.reached[record]

    def check(self, living: list[Queued]) -> None:
        """Assert what folding relies on; `living` are its entries that wait, in their order."""
        assert self.eager == sum(e.delivery is not None and e.policy == "always" for e in living)
        singles = [entry for entry in living if entry.update is not None]
        assert all(one.number < other.number for one, other in pairwise(singles))
        last = {entry.place: entry for entry in singles}
        assert all(last[place] is entry for place, entry in self.newest.items())
        seqs: dict[tuple[Lines, str], int] = {}
        for entry in singles:
            assert entry.lines is not None
            assert entry.update is not None
            record, seq = (entry.lines, entry.update.identity), entry.update.seq
            # Windows by another key than the record's hand out its updates in their own order.
            if not entry.lines.key.conflation_key:
                assert seqs.get(record, 0) < seq, f"{record[1]} goes backwards"
                seqs[record] = seq
            assert self.reached[record] >= entry.number


class Outbox:
    """What waits for one socket. Entries have waited the longer the nearer they are to the head.

    `released` says up to which group everything is durable.
    """

    def __init__(self, settings: SessionSettings, released: Callable[[], int] = lambda: 0) -> None:
        self._settings = settings
        self._released = released
        self._waiting: deque[Queued] = deque()
        self._dead = 0
        self._notice: Queued | None = None
        self._memberships: dict[str, Membership] = {}
        """By name: of strands that the session is a member of and has been told something by."""
        self.line_count = 0
        self.bytes = 0
        self._pairs = 0
        self.folded = 0
        """Messages that folding has saved."""

    def __bool__(self) -> bool:
        return len(self._waiting) > self._dead

    @property
    def messages(self) -> int:
        """The lines that wait, of a pair the newer one alone."""
        return self.line_count - self._pairs

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
        """Since when the head of the queue has waited; nothing has waited longer."""
        return next((entry.since_us for entry in self._waiting if entry.lives), None)

    # In.

    def push(self, frame: bytes, messages: int, group: int, since_us: int) -> None:
        """Queue a frame that is not to be touched."""
        self._append(Queued(group, since_us, frame, messages))

    def push_first(self, pulled: Iterable[Pulled]) -> None:
        """Put frames before all others; they have left once already."""
        for frame, messages, since_us in reversed(list(pulled)):
            self._prepend(Queued(0, since_us, frame, messages))

    def push_notice(self, frame: bytes, since_us: int) -> None:
        """Queue a frame that stands for all of its kind: one that still waits is replaced."""
        if self._notice is None:
            self._notice = Queued(0, since_us, frame, 1)
            self._append(self._notice)
        else:
            self.bytes += len(frame) - len(self._notice.frame)
            self._notice.frame = frame

    def push_frames_first(self, frames: Frames, since_us: int) -> None:
        """Put frames that are made when they are pulled before all others."""
        entry = Queued(0, since_us, b"", 0)
        entry.frames = frames
        self._prepend(entry)

    def push_frames(self, frames: Frames, group: int, since_us: int) -> None:
        """Queue frames that are made when they are pulled, and so are not counted until then."""
        entry = Queued(group, since_us, b"", 0)
        entry.frames = frames
        self._append(entry)

    def push_delivery(self, delivery: Delivery, group: int, since_us: int, conflates: bool) -> None:
        """Queue a strand's frame; may leave the queue over its bounds, which the session judges.

        Where the topic wants it, its updates are folded at once: among themselves, and into those
        that wait.
        """
        membership = self._memberships.get(delivery.name)
        if membership is None:
            membership = self._memberships[delivery.name] = Membership(delivery.name)
        eager = delivery.policy == "always"
        if eager and conflates:
            folded = delivery.folded(folded_alone)
            self.folded += delivery.messages - folded.messages
            delivery = folded
            if self:
                self._push_folded(membership, delivery, group, since_us)
                return
            if not delivery.messages:
                return
        entry = Queued(group, since_us, delivery.frame, delivery.messages)
        entry.delivery, entry.membership = delivery, membership
        membership.eager += eager
        self._append(entry)

    def _push_folded(
        self, membership: Membership, delivery: Delivery, group: int, since_us: int
    ) -> None:
        before = self.line_count + delivery.messages
        if membership.eager:
            self._spread_all(lambda e: e.membership is membership and e.policy == "always")
        self._spread(membership, delivery, group, since_us)
        self._bury()
        self.folded += before - self.line_count

    def _append(self, entry: Queued) -> None:
        if self._waiting and entry.since_us < self._waiting[-1].since_us:
            # A clock may be set back.
            entry.since_us = self._waiting[-1].since_us
        self._waiting.append(entry)
        self.line_count += entry.messages
        self._pairs += entry.older is not None
        self.bytes += len(entry.frame)

    def _prepend(self, entry: Queued) -> None:
        oldest_us = self.oldest_us()
        if oldest_us is not None:
            entry.since_us = min(entry.since_us, oldest_us)
        self._waiting.appendleft(entry)
        self.line_count += entry.messages
        self.bytes += len(entry.frame)

    def leave(self, name: str) -> None:
        """The session has left a strand: what waits stays, and nothing is folded into it."""
        self._memberships.pop(name, None)

    # Out.

    def pull(self, released: int) -> Pulled | None:
        """The next frame of a group up to `released`; None when none may leave.

        An empty frame says: ask again soon, there was work to do and nothing yet to show for it.
        """
        while self._waiting and self._waiting[0].group <= released:
            head = self._waiting[0]
            if head.newer is not None:
                self._complete(head, released)
            if head.frames is not None:
                made = next(head.frames, None)
                if made is not None:
                    return Pulled(*made, head.since_us)
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            if not head.lives:
                self._dead -= 1
                continue
            self._forget(head)
            if head.update is None:
                return Pulled(head.frame, head.messages, head.since_us)
            return self._gather(head, released)
        return None

    def _gather(self, head: Queued, released: int) -> Pulled:
        """One frame of single updates that follow each other."""
        rendered, waiting = [head.frame], self._waiting
        while waiting and len(rendered) < GATHERED_MAX:
            entry = waiting[0]
            if entry.lines is None or entry.group > released:
                break
            if entry.newer is not None:
                self._complete(entry, released)
            waiting.popleft()
            if entry.lives:
                rendered.append(entry.frame)
                self._forget(entry)
            else:
                self._dead -= 1
        assert head.lines is not None
        return Pulled(head.lines.encoding.frame(rendered), len(rendered), head.since_us)

    def _forget(self, entry: Queued) -> None:
        self.line_count -= entry.messages
        self.bytes -= len(entry.frame)
        if entry.older is not None or entry.newer is not None:
            self._part(entry)
        if entry is self._notice:
            self._notice = None
        elif entry.membership is not None:
            if entry.delivery is not None:
                entry.membership.eager -= entry.delivery.policy == "always"
            else:
                entry.membership.forget(entry)

    def clear(self) -> None:
        """Drop all that waits."""
        self._waiting.clear()
        self._memberships.clear()
        self._notice = None
        self.line_count = self.bytes = self._dead = self._pairs = 0

    # Conflation.

    def conflate(self) -> None:
        """Fold the whole queue, topic by topic, in one batch."""
        before = self.line_count
        self._spread_all(lambda entry: entry.policy != "off")
        self._bury(always=True)
        self.folded += before - self.line_count

    def to_give_up(self) -> dict[Membership, bool]:
        """Memberships with a topic that says that under back-pressure it is given up; and whether
        the session is a member still."""
        return {
            entry.membership: self._memberships.get(entry.membership.name) is entry.membership
            for entry in self._waiting
            if entry.membership is not None and entry.policy == "unsubscribe"
        }

    def drop(self, memberships: Collection[Membership]) -> int:
        """Drop what waits of memberships; returns how many lines that were."""
        before = self.line_count
        for entry in self._take_all():
            if entry.membership is None or entry.membership not in memberships:
                if entry.lives:
                    self._append(entry)
            else:
                entry.membership.eager = 0
                entry.membership.restart()
        return before - self.line_count

    def _spread_all(self, wanted: Callable[[Queued], bool]) -> None:
        """Turn shared frames into single updates, and fold these into what stands before them."""
        for entry in self._waiting:
            if entry.membership is not None:
                entry.membership.restart()
        for entry in self._take_all():
            membership, delivery = entry.membership, entry.delivery
            if membership is not None and delivery is not None and wanted(entry):
                membership.eager -= entry.policy == "always"
                self._spread(membership, delivery, entry.group, entry.since_us)
            elif entry.lives:
                # What was folded before only has to stay where it is, and to be found.
                self._append(entry)
                if membership is not None and delivery is None:
                    membership.enter(entry)
                    self._reunite(entry)
                elif membership is not None and delivery is not None and delivery.is_dated:
                    # It stays as it is, and nothing that comes after it may go before it.
                    membership.newest.clear()

    def _spread(
        self, membership: Membership, delivery: Delivery, group: int, since_us: int
    ) -> None:
        for lines, place, update in delivery.keyed():
            self._fold(membership, lines, place, update, group, since_us)

    def _take_all(self) -> deque[Queued]:
        """All entries, out of the queue and its counts, to be put back one by one."""
        entries, self._waiting = self._waiting, deque()
        self.line_count = self.bytes = self._dead = self._pairs = 0
        return entries

    def _bury(self, always: bool = False) -> None:
        """Take out what was folded away, once it is most of the queue."""
        if always or (self._dead > DEAD_MIN and 2 * self._dead > len(self._waiting)):
            self._waiting = deque(entry for entry in self._waiting if entry.lives)
            self._dead = 0

    # Folding one update.

    def _fold(
        self,
        membership: Membership,
        lines: Lines,
        place: FoldPlace,
        update: Update,
        group: int,
        since_us: int,
    ) -> None:
        """Queue an update, or let an earlier one that matches take it in."""
        entry = Queued(group, since_us, b"", 1)
        entry.membership, entry.lines, entry.place, entry.update = membership, lines, place, update
        current = membership.newest.get(place)
        if current is not None:
            current = self._reunite(current)
        if current is None or current.update is None:
            self._queue(entry)
            return
        older, last = current.older, membership.last(lines, update)
        if older is None and self._released() < current.group < group:
            self._queue_behind(entry, current, last > current.number)
            return
        folded = lines.fold(current.update, update)
        if folded == "kept current":
            return
        if not isinstance(folded, Update):
            self._queue(entry)
            return
        apart = current.apart or (older is not None and older.number < last != current.number)
        overtakes = last > current.number
        starved = current.moved >= DISPLACEMENTS_MAX
        if folded.is_void:
            membership.give_up(current)
            self._kill(current)
        elif not overtakes and (starved or not lines.queue_policy.appends):
            current.apart = apart
            self._rewrite(current, folded, group)
        elif starved:
            self._queue(entry)
        else:
            self._kill(current)
            # Its place is that of what it took in, and so is its bookmark.
            entry.update = folded._replace(first_seq=update.first_seq)
            entry.moved = current.moved + 1
            self._queue_behind(entry, older, apart)

    def _queue(self, entry: Queued) -> None:
        assert entry.membership is not None
        assert entry.lines is not None
        assert entry.update is not None
        entry.frame = entry.lines.shortest_line(entry.update)
        self._append(entry)
        entry.membership.enter(entry)

    # Pairs.

    def _queue_behind(self, entry: Queued, older: Queued | None, apart: bool) -> None:
        """Queue an update as the newer one of a pair; `apart`: between the two stands another one
        of its record, which it must not get in front of."""
        if older is not None:
            entry.older, older.newer, entry.apart = older, entry, apart
        self._queue(entry)

    def _reunite(self, newer: Queued) -> Queued | None:
        """Fold a pair whose older one waits for nothing but the client; returns the newest of their
        place, None if nothing is left to say of it."""
        older = newer.older
        if older is None or newer.apart or older.group > self._released():
            return newer
        membership, lines = newer.membership, newer.lines
        assert membership is not None
        assert lines is not None
        assert newer.update is not None
        assert older.update is not None
        folded = lines.fold(older.update, newer.update)
        newer.apart = folded == "kept both" or membership.last(lines, newer.update) > newer.number
        if newer.apart:
            return newer
        membership.give_up(newer)
        self._kill(newer)
        if isinstance(folded, Update):
            if folded.is_void:
                membership.give_up(older)
                self._kill(older)
                return None
            self._rewrite(older, folded, newer.group)
        return older

    def _complete(self, older: Queued, released: int) -> None:
        """Let an entry that leaves say what its pair says, if all of that is durable."""
        if older.newer is not None and older.newer.group <= released:
            before = self.line_count
            self._reunite(older.newer)
            self.folded += before - self.line_count

    def _part(self, entry: Queued) -> None:
        """An entry is no part of a pair any more."""
        newer = entry if entry.older is not None else entry.newer
        if newer is not None:
            assert newer.older is not None
            newer.older.newer = None
            newer.older = None
            self._pairs -= 1

    def _rewrite(self, entry: Queued, update: Update, group: int) -> None:
        assert entry.membership is not None
        assert entry.lines is not None
        line = entry.lines.shortest_line(update)
        self.bytes += len(line) - len(entry.frame)
        entry.frame, entry.update = line, update
        entry.group = max(entry.group, group)
        entry.membership.reach(entry)

    def _kill(self, entry: Queued) -> None:
        self._part(entry)
        self.line_count -= entry.messages
        self.bytes -= len(entry.frame)
        self._dead += 1
        entry.messages, entry.frame, entry.update = 0, b"", None

    def check(self) -> None:
        """Assert what everything above relies on."""
        entries, living = list(self._waiting), [e for e in self._waiting if e.lives]
        assert self.line_count == sum(entry.messages for entry in entries)
        pairs = [(e.older, e) for e in living if e.older is not None]
        assert self._pairs == len(pairs) == sum(e.newer is not None for e in living)
        assert all(older.newer is newer and older.lives for older, newer in pairs)
        assert all(older.number < newer.number for older, newer in pairs)
        assert all(older.place == newer.place and older.older is None for older, newer in pairs)
        assert self.bytes == sum(len(entry.frame) for entry in entries)
        assert self._dead == len(entries) - len(living)
        assert self._notice is None or self._notice in living
        assert all(one.since_us <= other.since_us for one, other in pairwise(living))
        assert all(one.name == name for name, one in self._memberships.items())
        memberships = {e.membership for e in living if e.membership is not None}
        for membership in memberships | {*self._memberships.values()}:
            membership.check([entry for entry in living if entry.membership is membership])


def folded_alone(delivery: Delivery) -> list[tuple[Lines, Update]]:
    """What a queue in which nothing else waits makes of a delivery that it folds."""
    outbox = Outbox(SessionSettings())
    outbox._spread(Membership(delivery.name), delivery, 0, 0)
    return [
        (entry.lines, entry.update)
        for entry in outbox._waiting
        if entry.lines is not None and entry.update is not None
    ]
