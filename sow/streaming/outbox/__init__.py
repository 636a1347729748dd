"""The outbox of a session; here, what a channel sends at one time, and what is held back.

A `Delivery` is one frame for all members of a channel, and the updates that it was encoded from, in
case they have to be folded (`sow.streaming.outbox.conflate`) or encoded again. Members' outboxes
hold it by reference. `HeldBack` keeps the deliveries of a session whose permissions change.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from sow.core.definitions import Policy, SessionSettings
from sow.protocol.replies import Encoding
from sow.streaming.queue_memory import (
    DELIVERY_BYTES,
    DELTA_BYTES,
    ENTRY_BYTES,
    UNFOLDED_BYTES,
    Holders,
    QueueShare,
    State,
    size_of,
)
from sow.streaming.update_encoder import Columns, UpdateEncoder
from sow.streaming.windows import PageStep
from sow.topic.batch import Update
from sow.topic.queue_policy import Key, QueuePolicy
from sow.topic.records import Records

FoldPlace = tuple[Records, QueuePolicy, Key]
"""The unit of folding: updates that the topic's settings at the time match with each other."""
Part = tuple[UpdateEncoder, Update | Columns]
"""Output for one topic: a line, or one for each record."""
Reencode = Callable[[UpdateEncoder, Update], tuple[UpdateEncoder, Update] | None]
"""Maps a waiting update and its encoder to those that replace it; None: it is dropped."""


class Delivery:
    """What a channel sends at one time: a frame, and the updates it was encoded from.

    Shared by the outboxes of all members. Its topics have one `policy` towards folding; the
    argument `policy` is that of lines without updates. Its other forms are made once, on demand.
    A frame that waits for one session alone can be dropped, and made again when it is to leave.
    """

    __slots__ = (
        "_beside_bytes", "_encoding", "_folded", "_is_folded", "_keyed", "_parts",
        "_states_bytes", "frame", "holders", "keepers", "message_count", "name", "policy",
        "size", "steps",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        rendered: list[bytes],
        parts: list[Part],
        policy: Policy = "always",
    ) -> None:
        self.name = name
        self.message_count = len(rendered)
        self.policy: Policy = parts[0][0].queue_policy.policy if parts else policy
        self.steps: Sequence[PageStep] = ()
        """Of a live window: from the page before it to the one after it."""
        self.frame = encoding.frame(rendered) if rendered else b""
        """The lines as one frame."""
        self.size = len(self.frame)
        self.holders: Holders | None = None
        """Who waits for its frame; None: one session alone may."""
        self.keepers: Holders | None = None
        """Who keeps its updates, to fold them."""
        self._beside_bytes = self._states_bytes = 0
        self._encoding = encoding
        self._parts = parts
        self._is_folded = False
        self._folded: Delivery | None = None
        self._keyed: list[tuple[UpdateEncoder, FoldPlace, Update]] | None = None

    def folded(
        self, fold: "Callable[[Delivery], list[tuple[UpdateEncoder, Update]]]"
    ) -> "Delivery":
        """The delivery with its updates folded by `fold`, for sessions that conflate on queueing;
        without lines if a record came and went at once."""
        if self._folded is None:
            keyed = self.keyed()
            if len({place for _, place, _ in keyed}) == len(keyed):
                self._folded = self
            else:
                left = fold(self)
                rendered = [encoder.shortest_line(update) for encoder, update in left]
                self._folded = Delivery(self.name, self._encoding, rendered, [*left])
                self._folded._is_folded = True
                if self.holders is not None:
                    self._folded.share()
        return self._folded

    def share(self) -> None:
        """Several sessions are to wait for it."""
        self.holders, self.keepers = {}, {}

    # Its frame, dropped and made again.

    def strip(self) -> bytes:
        """Drop a frame that waits for one session alone and can be made again; what is left."""
        if self.holders is None and self.can_be_made:
            self.frame = b""
        return self.frame

    @property
    def can_be_made(self) -> bool:
        """Its updates are all that its frame is made of."""
        return bool(self._parts)

    def made(self) -> bytes:
        """Its frame, made again."""
        rendered: list[bytes] = []
        for lines, content in self._parts:
            rendered += self._again(lines, content)
        return self._encoding.frame(rendered)

    def _again(self, lines: UpdateEncoder, content: Update | Columns) -> list[bytes]:
        if self._is_folded and isinstance(content, Update):
            return [lines.shortest_line(content)]
        return lines.again(content)

    # What it keeps in case that it has to be folded.

    def states(self) -> Iterator[State]:
        """The states of records in its updates, and a column of each batch."""
        for _, content in self._parts:
            if isinstance(content, Update):
                yield from content.states()
            else:
                yield content[0]
                yield from content[1]

    @property
    def states_bytes(self) -> int:
        """What these take."""
        self._measure()
        return self._states_bytes

    @property
    def more_bytes(self) -> int:
        """What counts for a client beyond the frame that is there."""
        return max(self.states_bytes, self.size) - len(self.frame)

    @property
    def beside_bytes(self) -> int:
        """What it takes beside its frame and these."""
        self._measure()
        return self._beside_bytes

    def _measure(self) -> None:
        if not self._beside_bytes:
            singles = sum(isinstance(content, Update) for _, content in self._parts)
            self._states_bytes = sum(map(size_of, self.states()))
            deltas = sum(map(_is_delta, self._parts))
            self._beside_bytes = DELIVERY_BYTES + UNFOLDED_BYTES * singles + DELTA_BYTES * deltas

    def lead(self, steps: Sequence[PageStep]) -> None:
        """Set the steps from one page of a live window to another that it performs."""
        self.steps = steps

    def reencoded(self, replace: Reencode) -> "Delivery":
        """The delivery with each update replaced by `replace` of it."""
        before = [(encoder, update) for encoder, _, update in self.keyed()]
        others = [replace(*one) for one in before]
        if others == before:
            return self
        parts: list[tuple[UpdateEncoder, Update]] = []
        rendered: list[bytes] = []
        for one in others:
            line = None if one is None else one[0].line(one[1])
            if one is not None and line is not None:
                parts.append(one)
                rendered.append(line)
        return Delivery(self.name, self._encoding, rendered, [*parts], self.policy)

    @property
    def is_dated(self) -> bool:
        """A topic's policy has changed since; lines before and after it may be folded by the new
        one."""
        return any(lines.queue_policy.policy != self.policy for lines, _ in self._parts)

    def records(self) -> Iterator[tuple[Records, str]]:
        """The record of each update."""
        for encoder, content in self._parts:
            identities = (content.identity,) if isinstance(content, Update) else content[0]
            yield from ((encoder.topic, identity) for identity in identities)

    def keyed(self) -> list[tuple[UpdateEncoder, FoldPlace, Update]]:
        """Each update with the place that it is folded in; made on demand."""
        if self._keyed is None:
            self._keyed = []
            for encoder, run in groupby(self._parts, lambda part: part[0]):
                updates = [update for _, content in run for update in updates_of(content)]
                topic, policy = encoder.topic, encoder.queue_policy
                self._keyed += [
                    (encoder, (topic, policy, key), update)
                    for key, update in zip(encoder.keys(updates), updates, strict=True)
                ]
        return self._keyed


def _is_delta(part: Part) -> bool:
    return isinstance(part[1], Update) and part[1].delta is not None


def updates_of(content: Update | Columns) -> Sequence[Update]:
    """The content of a part as single updates."""
    if isinstance(content, Update):
        return (content,)
    return [
        Update(identity, False, new, seq, ts_us, seq, ts_us)
        for identity, new, seq, ts_us in zip(*content, strict=True)
    ]


class HeldBack:
    """Deliveries that wait until their session applies its permissions, by the names of their
    channels."""

    def __init__(self) -> None:
        self._share: QueueShare | None = None
        self._by_name: dict[str, list[tuple[Delivery, int]]] = {}
        self.message_count = self.bytes = 0

    def add(self, delivery: Delivery, group: int) -> None:
        """Keep one more."""
        self._by_name.setdefault(delivery.name, []).append((delivery, group))
        self._count(delivery, 1)

    def exceeds(self, settings: SessionSettings) -> bool:
        """It is more than may wait in a queue."""
        messages_max, bytes_max = settings.queue_messages_max, settings.queue_bytes_max
        return self.message_count > messages_max or self.bytes > bytes_max

    def of(self, name: str) -> Sequence[tuple[Delivery, int]]:
        """Those of a channel, with their groups."""
        return self._by_name.get(name, ())

    def forget(self, name: str) -> None:
        """Drop those of a channel."""
        for delivery, _ in self._by_name.pop(name, ()):
            self._count(delivery, -1)

    def taken(self) -> list[tuple[Delivery, int]]:
        """Take all of them."""
        deliveries = [one for kept in self._by_name.values() for one in kept]
        for name in list(self._by_name):
            self.forget(name)
        return deliveries

    def count_for(self, share: QueueShare | None) -> None:
        """From now on they count for another client, or for nobody."""
        deliveries, self._share = self.taken(), share
        for delivery, group in deliveries:
            self.add(delivery, group)

    def _count(self, delivery: Delivery, times: int) -> None:
        self.message_count += times * delivery.message_count
        self.bytes += times * delivery.size
        if self._share is None:
            return
        if times > 0:
            self._share.hold(delivery.holders, len(delivery.frame), ENTRY_BYTES)
            self._share.keep(delivery)
        else:
            self._share.drop(delivery.holders, len(delivery.frame), ENTRY_BYTES)
            self._share.release(delivery)
