"""Strands: what is said under one subscription's name, whatever its topics, in one order.

A subscription follows one topic or many, and hears each of them through a feed
(`sow.streaming.feeds`). Its feeds share a strand. They put there what they have to say as the
changes come, so what is said is in the order of the changes without anybody sorting it, and a feed
that has heard nothing is not asked. `flush` makes one `Delivery` of it, whose frame is the same
bytes for every member: the sessions that have subscribed alike. A strand does not know its feeds.

Every beginning of a strand's lines is a place to go on from: whoever has got so many of them and
goes on from the bookmark of the last one is told all that it has not been told. A line therefore
carries the bookmark of the *first* change that it stands for, and lines come in that order
(`sow.streaming.conflated_channel` and `sow.streaming.outbox.outbox` say how they keep to it).

What cannot be worded is the strand's own failure: it says no more, and whoever has made it ends the
subscription. Neither the publisher nor those who follow the same topic otherwise notice.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from sow.protocol.encodings import Encoding
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import Columns, Delivery, Part, UpdateEncoder, updates_of
from sow.topic.records import Records
from sow.topic.updates import Update


def raised(_channel: "Channel", error: Exception) -> None:
    """Nobody hears of failures."""
    raise error


class Channel:
    """What is said under one name, and the sessions that hear it. `on_failure` is called once if
    something could not be worded; without it that is raised."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        on_failure: Callable[["Channel", Exception], None] = raised,
    ) -> None:
        self.name = name
        self.encoding = encoding
        self._on_failure = on_failure
        self.members: dict[Session, None] = {}
        self.rendered: list[bytes] = []
        """The lines that have gathered."""
        self.is_over = False
        """Nothing is said any more; its feeds are on their way out."""
        self._parts: list[Part] = []
        """What they say, in their order."""
        self._exclusive: Records | None = None
        """The topic that nothing else may come between the lines of, while there is one."""
        self._behind: list[tuple[UpdateEncoder, Update | Columns, list[bytes]]] = []
        """What has come of other topics meanwhile."""

    def append(self, lines: UpdateEncoder, said: Update | Columns, rendered: list[bytes]) -> None:
        """Gather lines of a topic, and what they were made of."""
        if self.is_over:
            return
        if self._exclusive is not None and self._exclusive is not lines.topic:
            self._behind.append((lines, said, rendered))
            return
        self._parts.append((lines, said))
        self.rendered += rendered

    def end(self) -> None:
        """Gather nothing any more: the last member has left."""
        self.is_over = True

    def fail(self, error: Exception) -> None:
        """Something could not be worded, so nothing is said any more but what has gathered."""
        if not self.is_over:
            self.is_over = True
            self._on_failure(self, error)

    def hold_others(self, topic: Records) -> None:
        """Let nothing of other topics come between what there is to say of this one, until
        `release_others`: its numbers are given already, and theirs are newer."""
        self._exclusive = topic

    def release_others(self, _now_us: int) -> None:
        """Hear all topics again, beginning with what has come of the others."""
        self._exclusive = None
        behind, self._behind = self._behind, []
        for lines, said, rendered in behind:
            self.append(lines, said, rendered)

    def due_us(self) -> int | None:
        """When the strand next has something to do by itself: never."""
        return None

    def release(self, now_us: int) -> None:
        """Do what is due: nothing."""

    def release_all(self) -> None:
        """Do what there is to do, due or not: nothing."""

    @property
    def waiting(self) -> bool:
        """There are lines that `flush` would hand out. What has gathered before anybody has joined,
        at the end of a replay, is for whoever does."""
        return bool(self.rendered and self.members)

    def join_at(self, session: Session, _seq: int) -> None:
        """Add a member that knows everything up to a bookmark; what gathered was handed out."""
        self.members[session] = None

    def leave(self, session: Session) -> None:
        """Take a member out; what gathered was handed out."""
        self.members.pop(session, None)
        session.leave(self.name)

    def flush(self, group: int, now_us: int) -> None:
        """Hand the gathered lines to every member."""
        if self.rendered:
            rendered, self.rendered = self.rendered, []
            parts, self._parts = self._parts, []
            self._hand_out(list(self.members), rendered, parts, group, now_us)

    def collect(self) -> list[bytes]:
        """The lines that `flush` would hand out, for a strand without members."""
        rendered, self.rendered = self.rendered, []
        self._parts = []
        return rendered

    def gathered(self) -> list[tuple[UpdateEncoder, Update]]:
        """The same as updates."""
        parts, self._parts = self._parts, []
        self.rendered = []
        return [(lines, update) for lines, said in parts for update in updates_of(said)]

    def check(self) -> None:
        """Assert what handing out relies on."""
        count = sum(_count(said) for _, said in self._parts)
        assert count == len(self.rendered), "lines that nobody knows the updates of"
        seqs: dict[tuple[UpdateEncoder, str], int] = {}
        for lines, said in self._parts:
            for update in updates_of(said):
                record = lines, update.identity
                assert seqs.get(record, 0) < update.seq, f"{update.identity} goes backwards"
                seqs[record] = update.seq
        assert all(lines.name == self.name for lines, _ in self._parts), "another strand's lines"
        assert self._exclusive is not None or not self._behind, "lines that nobody waits with"

    def _hand_out(
        self,
        sessions: Sequence[Session],
        rendered: list[bytes],
        parts: list[Part],
        group: int,
        now_us: int,
    ) -> None:
        """One shared frame, or one for each run of topics of one policy."""
        if len(parts) == 1 or _have_one_policy(parts):
            deliveries = [Delivery(self.name, self.encoding, rendered, parts)]
        else:
            deliveries = self._pieces(rendered, parts)
        for delivery in deliveries:
            for session in sessions:
                session.deliver(delivery, group, now_us)

    def _pieces(self, rendered: list[bytes], parts: list[Part]) -> list[Delivery]:
        pieces, start = [], 0
        for _, run in groupby(parts, lambda part: part[0].queue_policy.policy):
            piece = list(run)
            stop = start + sum(_count(said) for _, said in piece)
            pieces.append(Delivery(self.name, self.encoding, rendered[start:stop], piece))
            start = stop
        return pieces


def _have_one_policy(parts: Sequence[Part]) -> bool:
    topics = {lines for lines, _ in parts}
    return len(topics) == 1 or len({lines.queue_policy.policy for lines in topics}) == 1


def _count(said: Update | Columns) -> int:
    return 1 if isinstance(said, Update) else len(said[0])
