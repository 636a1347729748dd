"""Entries of an outbox, and the channel memberships that they belong to.

An entry is an opaque frame (`Queued`), frames that are made on demand, a channel's delivery
(`sow.streaming.outbox`), or a single update. The last two are *foldable*: they belong to
a membership, from the session's joining a channel to its leaving it, and updates are folded within
that. The position of an entry, its pair and the totals are the queue's
(`sow.streaming.outbox.conflate`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from sow.core.definitions import Policy
from sow.protocol.replies import Frames
from sow.streaming.outbox import Delivery, FoldPlace, Reencode
from sow.streaming.queue_memory import (
    DELTA_BYTES,
    ENTRY_BYTES,
    UPDATE_BYTES,
    Holders,
    KeptStates,
    size_of,
)
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Update

FOLDED_AWAY = Update("", False, None, 0, 0, 0, 0)
"""The update of an entry that was folded into another one."""


class Queued:
    """A frame of `message_count` lines. It may leave when the commit group `group` is durable."""

    __slots__ = ("answers", "frame", "group", "lives", "message_count", "since_us", "size")

    def __init__(
        self, group: int, since_us: int, frame: bytes, message_count: int, answers: bool = False
    ) -> None:
        self.group = group
        self.since_us = since_us
        self.frame = frame
        self.size = len(frame)
        """The bytes of its frame, whether it is there or has to be made again."""
        self.message_count = message_count
        self.answers = answers
        """It has records that were read under the permissions that its client had then."""
        self.lives = True
        """It has not been folded into another entry."""

    @property
    def policy(self) -> Policy:
        """What back-pressure may do with it."""
        return "off"

    def wait_since(self, since_us: int) -> None:
        """Set since when it has waited."""
        self.since_us = since_us

    def reframe(self, frame: bytes) -> None:
        """Replace its frame."""
        self.frame, self.size = frame, len(frame)

    @property
    def kept(self) -> KeptStates | None:
        """What it keeps beside its frame."""
        return None

    def strip(self) -> None:
        """Drop its frame, if that can be made again."""

    def again(self) -> bytes:
        """Its frame as it would be made again."""
        return self.frame


class QueuedFrames(Queued):
    """Frames that are made when they are pulled, and are not counted until then."""

    __slots__ = ("frames",)

    def __init__(self, group: int, since_us: int, frames: Frames, answers: bool = False) -> None:
        super().__init__(group, since_us, b"", 0, answers)
        self.frames = frames


class Foldable(Queued):
    """A channel's output to a member. Its abstract methods are for the type checker: `ABC` would
    slow down each `isinstance`, and queues call it for every entry."""

    __slots__ = ("membership",)

    membership: "Membership"

    @property
    @abstractmethod
    def source(self) -> object:
        """What it was encoded from; another object once that has changed."""

    @abstractmethod
    def updates(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its updates, each with its encoder."""

    @abstractmethod
    def reencode(self, replace: Reencode) -> bool:
        """Replace each of its updates by `replace` of it; False if nothing is left."""


class QueuedDelivery(Foldable):
    """A shared frame, and the delivery that it was encoded from."""

    __slots__ = ("delivery",)

    def __init__(
        self, membership: "Membership", delivery: Delivery, group: int, since_us: int
    ) -> None:
        # One is made for each frame and session, so without calling the base class.
        self.group = group
        self.since_us = since_us
        self.frame = delivery.frame
        self.size = delivery.size
        self.message_count = delivery.message_count
        self.lives = True
        self.membership = membership
        self.delivery = delivery

    @property
    def policy(self) -> Policy:
        """What its topics allowed when it was sent."""
        return self.delivery.policy

    @property
    def source(self) -> object:
        """Its delivery."""
        return self.delivery

    @property
    def kept(self) -> KeptStates:
        """Its delivery."""
        return self.delivery

    def strip(self) -> None:
        """Drop its frame, if that can be made again."""
        self.frame = self.delivery.strip()

    def make(self) -> None:
        """Make its frame again, if it was dropped."""
        if not self.frame and self.size:
            self.frame = self.delivery.made()

    def again(self) -> bytes:
        """Its frame as it would be made again."""
        return self.delivery.made() if self.delivery.can_be_made else self.frame

    def updates(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its updates, each with its encoder."""
        return [(encoder, update) for encoder, _, update in self.delivery.keyed()]

    def reencode(self, replace: Reencode) -> bool:
        """Replace each of its updates by `replace` of it; False if nothing is left."""
        self.membership.remove(self.delivery)
        self.delivery = self.delivery.reencoded(replace)
        self.membership.add(self.delivery)
        self.message_count = self.delivery.message_count
        self.frame, self.size = self.delivery.frame, self.delivery.size
        return self.message_count > 0


class QueuedUpdate(Foldable):
    """A single update; `lines` encodes it, and `frame` is its line.

    The single updates of a membership are numbered in their order (`number`). At most two of one
    place are a *pair*: `older` and `newer` refer to the other one; `apart` on the newer one means
    that it cannot take the older one's position. `moved` counts its moves to the end.
    """

    __slots__ = (
        "_states_bytes", "apart", "encoder", "moved", "newer", "number", "older", "place",
        "update",
    )  # fmt: skip

    holders: Holders | None = None
    keepers: Holders | None = None

    def __init__(
        self,
        membership: "Membership",
        encoder: UpdateEncoder,
        place: FoldPlace,
        update: Update,
        group: int,
        since_us: int,
        moved: int = 0,
    ) -> None:
        super().__init__(group, since_us, encoder.shortest_line(update), 1)
        self.membership = membership
        self.encoder = encoder
        self.place = place
        self.update = update
        self._states_bytes = -1
        self.moved = moved
        self.number = 0
        self.older: QueuedUpdate | None = None
        self.newer: QueuedUpdate | None = None
        self.apart = False

    @property
    def policy(self) -> Policy:
        """What its topic allows now."""
        return self.encoder.queue_policy.policy

    @property
    def source(self) -> object:
        """Its update."""
        return self.update

    @property
    def kept(self) -> KeptStates:
        """Its update."""
        return self

    def states(self) -> Iterator[bytes]:
        """The states of the record in its update."""
        return self.update.states()

    @property
    def states_bytes(self) -> int:
        """What these take."""
        if self._states_bytes < 0:
            self._states_bytes = sum(map(size_of, self.update.states()))
        return self._states_bytes

    @property
    def beside_bytes(self) -> int:
        """What it takes beside its line and these."""
        document = 0 if self.update.delta is None else DELTA_BYTES
        return UPDATE_BYTES - ENTRY_BYTES + document

    @property
    def more_bytes(self) -> int:
        """What counts for a client beyond the line that is there."""
        return max(self.states_bytes, self.size) - len(self.frame)

    def strip(self) -> None:
        """Drop its line, which can be made again."""
        self.frame = b""

    @property
    def line(self) -> bytes:
        """Its line, made again where it was dropped."""
        return self.frame or self.again()

    def again(self) -> bytes:
        """Its line as it would be made again."""
        return self.encoder.shortest_line(self.update)

    def updates(self) -> Sequence[tuple[UpdateEncoder, Update]]:
        """Its update, with its encoder."""
        return ((self.encoder, self.update),) if self.lives else ()

    def reencode(self, replace: Reencode) -> bool:
        """Replace its update by `replace` of it; False if nothing is left."""
        other = replace(self.encoder, self.update)
        if other is None:
            return False
        if other != (self.encoder, self.update):
            self.encoder, self.update = other
            self._states_bytes = -1
            self.reframe(self.encoder.shortest_line(self.update))
            self.membership.reach(self)
        return True

    def rewrite(self, update: Update, group: int) -> None:
        """Replace its update in its position by another one of `group`."""
        grown = self.encoder.grown(self.update, update)
        if grown is None:
            self.reframe(self.encoder.shortest_line(update))
            self.update, self._states_bytes = update, -1
            self.group = max(self.group, group)
        else:
            self.strip()
            self.grow(update, group, grown)

    def grow(self, update: Update, group: int, grown: int) -> None:
        """Replace its update by one with so many more bytes; its line is made when it leaves."""
        self.update = update
        self.size += grown
        if self._states_bytes >= 0:
            self._states_bytes += grown
        if group > self.group:
            self.group = group

    def fold_away(self) -> None:
        """Another entry has taken its update in."""
        self.lives = False
        self.message_count = self.size = 0
        self.frame, self.update = b"", FOLDED_AWAY

    def follow(self, older: "QueuedUpdate", apart: bool = False) -> None:
        """Become the newer one of a pair; `apart`: it may not take the older one's position."""
        self.older, older.newer, self.apart = older, self, apart

    def displace(self, older: "QueuedUpdate") -> None:
        """Take in the older one of its pair, in its own position."""
        self.moved += older.moved + 1

    def part(self) -> bool:
        """Leave its pair; False if it had none."""
        newer = self.newer or self
        older = newer.older
        if older is None:
            return False
        older.newer = newer.older = None
        return True


class ConflationStats(NamedTuple):
    """Lines that folding has saved a member, and the times of the first and the last of these."""

    lines: int
    since_us: int
    until_us: int


class Membership:
    """A session's membership in a channel, from joining to leaving, and its waiting updates.

    `eager` counts the waiting frames of topics that are always conflated; `saved` is what folding
    has saved the member.
    """

    __slots__ = (
        "_number", "_passage", "eager", "encoders", "name", "newest", "reached", "saved",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.eager = 0
        self.saved: ConflationStats | None = None
        self._passage = 0
        self.restart()

    def save(self, count: int, came_us: int) -> None:
        """Count lines that folding has saved the member; they came at `came_us`."""
        if count:
            before = self.saved or ConflationStats(0, came_us, came_us)
            self.saved = ConflationStats(
                before.lines + count, min(before.since_us, came_us), max(before.until_us, came_us)
            )

    def restart(self) -> None:
        """Begin a passage: nothing that comes is folded into entries that are not passed yet."""
        self._number = 0
        self.newest: dict[FoldPlace, QueuedUpdate] = {}
        """The newest single update of each place; later ones are folded into it."""
        self.reached: dict[tuple[UpdateEncoder, str], int] = {}
        """The number of each record's last update: with Match it may wait in several places."""
        self.encoders: set[UpdateEncoder] = set()
        """Those of its single updates, including some that have left."""

    def begin(self, passage: int) -> None:
        """Restart at the first of its entries in a passage through the queue."""
        if self._passage != passage:
            self._passage = passage
            self.restart()

    def add(self, delivery: Delivery) -> None:
        """A frame was queued."""
        self.eager += delivery.policy == "always"

    def remove(self, delivery: Delivery) -> None:
        """A frame has left, or was split."""
        self.eager -= delivery.policy == "always"

    def enter(self, entry: QueuedUpdate) -> None:
        """A single update was queued at the end."""
        self._number += 1
        entry.number = self._number
        self.newest[entry.place] = entry
        self.reach(entry)

    def reach(self, entry: QueuedUpdate) -> None:
        """An entry has another update than before."""
        record = entry.encoder, entry.update.identity
        # Inserted again, so that nearly all numbers stay in order.
        self.reached.pop(record, None)
        self.reached[record] = entry.number
        self.encoders.add(entry.encoder)

    def number_of(self, entry: QueuedUpdate) -> int:
        """The number of an entry; 0 if a passage has not reached it yet."""
        return entry.number if self.newest.get(entry.place) is entry else 0

    def reach_instead(self, entry: QueuedUpdate, number: int) -> None:
        """An entry has taken over the update of the one with a number; another update of its record
        may stand behind that, under other values."""
        if self.last(entry.encoder, entry.update) <= max(number, entry.number):
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
        """A single update is dropped, and the rest stays as it is."""
        if self.newest.get(entry.place) is entry:
            del self.newest[entry.place]

    def last(self, encoder: UpdateEncoder, update: Update) -> int:
        """The number of the last entry with an update of this record; 0: there is none."""
        return self.reached.get((encoder, update.identity), 0)

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
        """Assert what folding relies on; `living` are its entries that wait, in order, `unfolded`
        those behind them that a passage has not reached."""
        every = [*living, *unfolded]
        frames = [entry for entry in every if isinstance(entry, QueuedDelivery)]
        assert self.eager == sum(entry.policy == "always" for entry in frames)
        singles = [entry for entry in every if isinstance(entry, QueuedUpdate)]
        seqs: dict[tuple[UpdateEncoder, str], int] = {}
        for entry in singles:
            record, seq = (entry.encoder, entry.update.identity), entry.update.seq
            # Windows by another key than the record's release its updates in their own order.
            if not entry.encoder.key.conflation_key:
                assert seqs.get(record, 0) < seq, f"{record[1]} goes backwards"
                seqs[record] = seq
        if unfolded and self._passage != passage:
            assert not living, "entries were passed in a passage that did not begin"
            return
        singles = [entry for entry in living if isinstance(entry, QueuedUpdate)]
        assert all(one.number < other.number for one, other in pairwise(singles))
        last = {entry.place: entry for entry in singles}
        assert all(last[place] is entry for place, entry in self.newest.items())
        assert all(
            self.reached[entry.encoder, entry.update.identity] >= entry.number for entry in singles
        )
