"""Strands: what is said under one subscription's name, whatever its topics, in one order.

A subscription follows one topic or many, and hears each of them through a feed
(`sow.delivery.feeds`). Its feeds share a strand. They put there what they have to say as the
changes come, so the lines of a strand are in the order of the changes without anybody sorting them,
and a feed that has heard nothing is not asked. `flush` makes one `Delivery` of them, whose frame is
the same bytes for every member: the sessions that have subscribed alike.

Every beginning of a strand's lines is a place to go on from: whoever has got so many of them and
goes on from the bookmark of the last one is told all that it has not been told. A line therefore
carries the bookmark of the *first* change that it stands for, and lines come in that order
(`sow.delivery.conflated_feeds` and `sow.delivery.outbox` say how they keep to it).
"""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sow.definitions import Policy
from sow.delivery.outbox import FoldPlace, folded
from sow.delivery.sessions import Session
from sow.topic.updates import Update
from sow.wire import Encoding

if TYPE_CHECKING:
    from sow.delivery.feeds import Feed

Columns = tuple[Sequence[str], Sequence[bytes], Sequence[int], Sequence[int]]
"""Records that were published: identities, bodies, sequence numbers and times."""
Part = tuple["Feed", Update | Columns]
"""Something that one feed says: a line, or one for each record."""


class Delivery:
    """What a strand says at one time: a frame, and what it was made of should it have to be folded.

    Shared by all sessions that have it in their outbox. Its topics have one `policy` towards that.
    Each of its forms is made once, when somebody wants it.
    """

    __slots__ = (
        "_folded",
        "_frame",
        "_keyed",
        "_lines",
        "_parts",
        "messages",
        "policy",
        "strand",
    )

    def __init__(self, strand: "Strand", lines: list[bytes], parts: list[Part]) -> None:
        self.strand = strand
        self.messages = len(lines)
        self.policy: Policy = parts[0][0].folding.policy if parts else "always"
        self._lines = lines
        self._parts = parts
        self._frame: bytes | None = None
        self._folded: Delivery | None = None
        self._keyed: list[tuple[Feed, FoldPlace, Update]] | None = None

    @property
    def frame(self) -> bytes:
        """The lines as one frame."""
        if self._frame is None:
            self._frame = self.strand.encoding.frame(self._lines)
            self._lines = []
        return self._frame

    def folded(self) -> "Delivery":
        """The same with its updates folded, for sessions that conflate as they queue; without
        lines if what came and went at once leaves nothing to say."""
        if self._folded is None:
            self._folded = _folded(self)
        return self._folded

    @property
    def is_dated(self) -> bool:
        """A topic's policy has been changed since; what is said before and after may be folded by
        the new one."""
        feeds = self._parts if self._keyed is None else self._keyed
        return any(part[0].folding.policy != self.policy for part in feeds)

    def keyed(self) -> list[tuple["Feed", FoldPlace, Update]]:
        """Each update, made only when somebody needs them, with what it is matched by."""
        if self._keyed is None:
            self._keyed = []
            for feed, run in groupby(self._parts, lambda part: part[0]):
                updates = [update for _, said in run for update in _updates(said)]
                self._keyed += [
                    (feed, (feed.folding, key), update)
                    for key, update in zip(feed.keys(updates), updates, strict=True)
                ]
            self._parts = []
        return self._keyed


def _updates(said: Update | Columns) -> Sequence[Update]:
    if isinstance(said, Update):
        return (said,)
    return [
        Update(identity, False, new, seq, ts_us, seq, ts_us)
        for identity, new, seq, ts_us in zip(*said, strict=True)
    ]


class Strand:
    """Lines of one subscription and the sessions that follow it; `feeds` has a feed a topic."""

    def __init__(self, name: str, encoding: Encoding) -> None:
        self.name = name
        self.encoding = encoding
        self.members: dict[Session, None] = {}
        self.feeds: dict[str, Feed] = {}
        self.lines: list[bytes] = []
        self.parts: list[Part] = []
        """What the lines say, in their order."""

    def due_us(self) -> int | None:
        """When the strand next has something to do by itself: never."""
        return None

    def release(self, now_us: int) -> None:
        """Do what is due: nothing."""

    @property
    def waiting(self) -> bool:
        """There are lines that `flush` would hand out. What has gathered before anybody has joined,
        at the end of a replay, is for whoever does."""
        return bool(self.lines and self.members)

    def join_at(self, session: Session, _seq: int) -> None:
        """Add a member that knows everything up to a bookmark; what gathered was handed out."""
        self.members[session] = None

    def leave(self, session: Session) -> None:
        """Take a member out; what gathered was handed out."""
        self.members.pop(session, None)
        session.leave(self)

    def flush(self, group: int, now_us: int) -> None:
        """Hand the gathered lines to every member."""
        if self.lines:
            lines, self.lines = self.lines, []
            parts, self.parts = self.parts, []
            self._hand_out(list(self.members), lines, parts, group, now_us)

    def collect(self) -> list[bytes]:
        """The lines that `flush` would hand out, for a strand without members."""
        lines, self.lines = self.lines, []
        self.parts = []
        return lines

    def _hand_out(
        self,
        sessions: Sequence[Session],
        lines: list[bytes],
        parts: list[Part],
        group: int,
        now_us: int,
    ) -> None:
        """One shared frame, or one for each run of topics of one policy."""
        # What topics have said that are not followed any more is among it: `feeds` cannot tell.
        feeds = {feed for feed, _ in parts}
        if len(feeds) == 1 or len({feed.folding.policy for feed in feeds}) == 1:
            deliveries = [Delivery(self, lines, parts)]
        else:
            deliveries = self._pieces(lines, parts)
        for delivery in deliveries:
            for session in sessions:
                session.deliver(delivery, group, now_us)

    def _pieces(self, lines: list[bytes], parts: list[Part]) -> list[Delivery]:
        pieces, start = [], 0
        for _, run in groupby(parts, lambda part: part[0].folding.policy):
            piece = list(run)
            stop = start + sum(_count(said) for _, said in piece)
            pieces.append(Delivery(self, lines[start:stop], piece))
            start = stop
        return pieces


def _count(said: Update | Columns) -> int:
    return 1 if isinstance(said, Update) else len(said[0])


def _folded(delivery: Delivery) -> Delivery:
    keyed = delivery.keyed()
    if len({place for _, place, _ in keyed}) == len(keyed):
        return delivery
    left = folded(delivery)
    lines = [feed.shortest_line(update) for feed, update in left]
    return Delivery(delivery.strand, lines, [*left])
