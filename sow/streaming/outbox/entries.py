"""What waits in an outbox: entries of its queue, and whose they are.

An entry is a frame that is not to be touched (`Queued`), frames still to be made, what a strand has
said at one time, or a single update. The last two are *foldable*: they belong to a membership, from
a session's joining a strand to its leaving it, within which updates are folded. An entry guards its
own state; where it stands and what all of them come to is the queue's
(`sow.streaming.outbox.queue`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sow.core.definitions import Policy
from sow.protocol.encodings import Frames
from sow.streaming.update_encoder import Delivery, FoldPlace, Reencode, UpdateEncoder
from sow.topic.updates import Update

FOLDED_AWAY = Update("", False, None, 0, 0, 0, 0)
"""What an entry says whose update another one has taken in."""


class Queued:
    """A frame of `message_count` lines. It may leave when the commit group `group` is durable."""

    __slots__ = ("answers", "frame", "group", "lives", "message_count", "since_us")

    def __init__(
        self, group: int, since_us: int, frame: bytes, message_count: int, answers: bool = False
    ) -> None:
        self.group = group
        self.since_us = since_us
        self.frame = frame
        self.message_count = message_count
        self.answers = answers
        """It says records that were found by the rights that its client had."""
        self.lives = True
        """It has not been folded into another one."""

    @property
    def policy(self) -> Policy:
        """What may be done with it under back-pressure."""
        return "off"

    def wait_after(self, other: "Queued") -> None:
        """It has not waited longer than one that stands before it: a clock may be set back."""
        self.since_us = max(self.since_us, other.since_us)

    def wait_before(self, oldest_us: int) -> None:
        """It has waited as long as what it is put in front of."""
        self.since_us = min(self.since_us, oldest_us)

    def reframe(self, frame: bytes) -> None:
        """Say something else in its place."""
        self.frame = frame


class QueuedFrames(Queued):
    """Frames that are made when they are pulled, and so are not counted until then."""

    __slots__ = ("frames",)

    def __init__(self, group: int, since_us: int, frames: Frames, answers: bool = False) -> None:
        super().__init__(group, since_us, b"", 0, answers)
        self.frames = frames


class Foldable(Queued):
    """What a strand has said to a member. Its abstract methods are for the type checker: with
    `ABC` each `isinstance`, which queues ask of every entry, would take a slower way."""

    __slots__ = ("membership",)

    membership: "ChannelEntries"

    @property
    @abstractmethod
    def source(self) -> object:
        """What it says, which is another object where it says something else."""

    @abstractmethod
    def said(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its updates, and what words each."""

    @abstractmethod
    def reencode(self, told: Reencode) -> bool:
        """Say what becomes of each of its updates; False if that is nothing."""


class QueuedDelivery(Foldable):
    """A shared frame, and what it was made of."""

    __slots__ = ("delivery",)

    def __init__(
        self, membership: "ChannelEntries", delivery: Delivery, group: int, since_us: int
    ) -> None:
        # One is made for each frame and session, so without a call to what it is made from.
        self.group = group
        self.since_us = since_us
        self.frame = delivery.frame
        self.message_count = delivery.message_count
        self.lives = True
        self.membership = membership
        self.delivery = delivery

    @property
    def policy(self) -> Policy:
        """What its topics allowed when it was said."""
        return self.delivery.policy

    @property
    def source(self) -> object:
        """What it says."""
        return self.delivery

    def said(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its updates, and what words each."""
        return [(lines, update) for lines, _, update in self.delivery.keyed()]

    def reencode(self, told: Reencode) -> bool:
        """Say what becomes of each of its updates; False if that is nothing."""
        self.membership.remove(self.delivery)
        self.delivery = self.delivery.reencoded(told)
        self.membership.add(self.delivery)
        self.message_count, self.frame = self.delivery.message_count, self.delivery.frame
        return self.message_count > 0


class QueuedUpdate(Foldable):
    """A single update, which `lines` words and `frame` is the line of.

    The single updates of a membership are numbered in their order (`number`). Two of a place at
    most are a *pair*: `older` and `newer` are the other one; `apart` says of the newer one that it
    cannot take the place of the older one. `moved` is how often it was moved to the end.
    """

    __slots__ = ("apart", "lines", "moved", "newer", "number", "older", "place", "update")

    def __init__(
        self,
        membership: "ChannelEntries",
        lines: UpdateEncoder,
        place: FoldPlace,
        update: Update,
        group: int,
        since_us: int,
        moved: int = 0,
    ) -> None:
        super().__init__(group, since_us, lines.shortest_line(update), 1)
        self.membership = membership
        self.lines = lines
        self.place = place
        self.update = update
        self.moved = moved
        self.number = 0
        self.older: QueuedUpdate | None = None
        self.newer: QueuedUpdate | None = None
        self.apart = False

    @property
    def policy(self) -> Policy:
        """What its topic allows now."""
        return self.lines.queue_policy.policy

    @property
    def source(self) -> object:
        """What it says."""
        return self.update

    def said(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its update, and what words it."""
        return ((self.lines, self.update),) if self.lives else ()

    def reencode(self, told: Reencode) -> bool:
        """Say what becomes of its update; False if that is nothing."""
        other = told(self.lines, self.update)
        if other is None:
            return False
        if other != (self.lines, self.update):
            self.lines, self.update = other
            self.frame = self.lines.shortest_line(self.update)
            self.membership.reach(self)
        return True

    def rewrite(self, update: Update, group: int) -> None:
        """Say another update in its place, which was said in `group`."""
        self.frame, self.update = self.lines.shortest_line(update), update
        self.group = max(self.group, group)

    def fold_away(self) -> None:
        """Another one says what it said."""
        self.lives = False
        self.message_count, self.frame, self.update = 0, b"", FOLDED_AWAY

    def follow(self, older: "QueuedUpdate") -> None:
        """Be the newer one of a pair."""
        self.older, older.newer = older, self

    def stand_apart(self, apart: bool) -> None:
        """Whether, as the newer one of a pair, it may take the place of the older one."""
        self.apart = apart

    def displace(self, older: "QueuedUpdate") -> None:
        """Take in the older one of its pair, and leave its place."""
        self.moved += older.moved + 1

    def part(self) -> bool:
        """Be no part of a pair any more; False if it was none."""
        newer = self.newer or self
        older = newer.older
        if older is None:
            return False
        older.newer = newer.older = None
        return True


class ConflationStats(NamedTuple):
    """What folding has spared a member: so many lines, by such as came from then to then."""

    lines: int
    since_us: int
    until_us: int


class ChannelEntries:
    """What a session is told under the name of a strand, from joining it to leaving it.

    `eager` counts the waiting frames of topics that are always conflated; `saved` is what folding
    has spared the member.
    """

    __slots__ = ("_number", "_passage", "eager", "name", "newest", "reached", "saved")

    def __init__(self, name: str) -> None:
        self.name = name
        self.eager = 0
        self.saved: ConflationStats | None = None
        self._passage = 0
        self.restart()

    def save(self, count: int, came_us: int) -> None:
        """Folding has spared the member so many lines, by one that came then."""
        if count:
            before = self.saved or ConflationStats(0, came_us, came_us)
            self.saved = ConflationStats(
                before.lines + count,
                min(before.since_us, came_us),
                max(before.until_us, came_us),
            )

    def restart(self) -> None:
        """Begin to go through what waits: nothing that comes is folded into what is behind it."""
        self._number = 0
        self.newest: dict[FoldPlace, QueuedUpdate] = {}
        """The newest single update of each place, into which later ones are folded."""
        self.reached: dict[tuple[UpdateEncoder, str], int] = {}
        """The number of each record's last update: with Match it may wait in several places."""

    def begin(self, passage: int) -> None:
        """The first of its entries is met in a passage through the queue."""
        if self._passage != passage:
            self._passage = passage
            self.restart()

    def add(self, delivery: Delivery) -> None:
        """A frame has begun to wait."""
        self.eager += delivery.policy == "always"

    def remove(self, delivery: Delivery) -> None:
        """A frame has left, or was taken apart."""
        self.eager -= delivery.policy == "always"

    def enter(self, entry: QueuedUpdate) -> None:
        """A single update stands at the end."""
        self._number += 1
        entry.number = self._number
        self.newest[entry.place] = entry
        self.reach(entry)

    def reach(self, entry: QueuedUpdate) -> None:
        """An entry says another update than before."""
        record = entry.lines, entry.update.identity
        # Put in again, so that the numbers stand in order but for few.
        self.reached.pop(record, None)
        self.reached[record] = entry.number

    def number_of(self, entry: QueuedUpdate) -> int:
        """The number of an entry; 0 of one that a passage has still to go through."""
        return entry.number if self.newest.get(entry.place) is entry else 0

    def reach_instead(self, entry: QueuedUpdate, number: int) -> None:
        """An entry says what the one of a number said; behind that one another of its record may
        stand, under other values."""
        if self.last(entry.lines, entry.update) <= max(number, entry.number):
            self.reach(entry)

    def give_up(self, entry: QueuedUpdate) -> None:
        """A single update is dropped: the older one of its pair, if any, is the newest again."""
        older = entry.older
        if older is None:
            del self.newest[entry.place]
        else:
            number = self.number_of(entry)
            self.newest[entry.place] = older
            if older.update.identity == entry.update.identity:
                self.reach_instead(older, number)

    def discard(self, entry: QueuedUpdate) -> None:
        """A single update is dropped, and what else waits stays as it is."""
        if self.newest.get(entry.place) is entry:
            del self.newest[entry.place]

    def last(self, lines: UpdateEncoder, update: Update) -> int:
        """The number of the last entry that said something of an update's record; 0: none did."""
        return self.reached.get((lines, update.identity), 0)

    def close_places(self) -> None:
        """Nothing that comes is folded into what waits already."""
        self.newest.clear()

    def forget(self, entry: QueuedUpdate) -> None:
        """A single update has left."""
        if self.newest.get(entry.place) is entry:
            del self.newest[entry.place]
        while self.reached:
            record, number = next(iter(self.reached.items()))
            if number > entry.number:
                break
            del self.reached[record]

    def check(
        self, living: Sequence[Foldable], unfolded: Sequence[Foldable] = (), passage: int = 0
    ) -> None:
        """Assert what folding relies on; `living` are its entries that wait, in their order, and
        behind them those that a passage has still to go through."""
        every = [*living, *unfolded]
        frames = [entry for entry in every if isinstance(entry, QueuedDelivery)]
        assert self.eager == sum(entry.policy == "always" for entry in frames)
        singles = [entry for entry in every if isinstance(entry, QueuedUpdate)]
        seqs: dict[tuple[UpdateEncoder, str], int] = {}
        for entry in singles:
            record, seq = (entry.lines, entry.update.identity), entry.update.seq
            # Windows by another key than the record's hand out its updates in their own order.
            if not entry.lines.key.conflation_key:
                assert seqs.get(record, 0) < seq, f"{record[1]} goes backwards"
                seqs[record] = seq
        if unfolded and self._passage != passage:
            assert not living, "it was gone through, and nobody began"
            return
        singles = [entry for entry in living if isinstance(entry, QueuedUpdate)]
        assert all(one.number < other.number for one, other in pairwise(singles))
        last = {entry.place: entry for entry in singles}
        assert all(last[place] is entry for place, entry in self.newest.items())
        assert all(
            self.reached[entry.lines, entry.update.identity] >= entry.number for entry in singles
        )
