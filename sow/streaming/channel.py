"""Channels: the output stream of one subscription, over all its topics, in one order.

A subscription follows one topic or many, each through a feed (`sow.streaming.feeds`). Its feeds
share a channel and append their lines as changes come, so lines are in the order of the changes
without sorting, and a feed without changes costs nothing. `flush` makes one `Delivery` of them. Its
frame is the same bytes for every member: the sessions with equal subscriptions. A channel does not
know its feeds.

Every prefix of a channel's lines is a place to resume from: a client that has received that many
lines and resumes at the bookmark of the last one gets everything it has not received. A line
therefore carries the bookmark of the *first* change it stands for, and lines come in that order
(`sow.streaming.conflated_channel` and `sow.streaming.outbox.outbox` keep to it).

A line that cannot be encoded fails the channel alone: it emits nothing more, and its owner ends the
subscription. The publisher and other subscribers of the topic do not notice.
"""

from collections.abc import Callable, Sequence
from itertools import groupby

from sow.protocol.encodings import Encoding
from sow.streaming.outbox.entries import Delivery, Part, updates_of
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import Columns, UpdateEncoder
from sow.topic.records import Records
from sow.topic.updates import Update


def raised(_channel: "Channel", error: Exception) -> None:
    """Raise a failure where no handler was given."""
    raise error


class Channel:
    """The lines of one subscription, and the sessions that receive them. `on_failure` is called
    once if an update cannot be encoded; without it the error is raised."""

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
        """The pending lines."""
        self.is_over = False
        """Nothing is emitted any more; its feeds are about to be removed."""
        self._parts: list[Part] = []
        """The updates of these lines, in order."""
        self._exclusive: Records | None = None
        """While set, the only topic whose lines are accepted; those of others are held back."""
        self._behind: list[tuple[UpdateEncoder, Update | Columns, list[bytes]]] = []
        """Lines of other topics that are held back."""

    def append(
        self, lines: UpdateEncoder, updates: Update | Columns, rendered: list[bytes]
    ) -> None:
        """Append lines of a topic, with the updates they were encoded from."""
        if self.is_over:
            return
        if self._exclusive is not None and self._exclusive is not lines.topic:
            self._behind.append((lines, updates, rendered))
            return
        self._parts.append((lines, updates))
        self.rendered += rendered

    def end(self) -> None:
        """Accept nothing more: the last member has left."""
        self.is_over = True

    def fail(self, error: Exception) -> None:
        """An update could not be encoded: emit nothing beyond the pending lines."""
        if not self.is_over:
            self.is_over = True
            self._on_failure(self, error)

    def hold_others(self, topic: Records) -> None:
        """Hold back the lines of other topics until `release_others`: this topic's sequence numbers
        are assigned already, and those of others are newer."""
        self._exclusive = topic

    def release_others(self, _now_us: int) -> None:
        """Accept all topics again, starting with the lines that were held back."""
        self._exclusive = None
        behind, self._behind = self._behind, []
        for lines, updates, rendered in behind:
            self.append(lines, updates, rendered)

    def due_us(self) -> int | None:
        """When the channel next has work of its own: never."""
        return None

    def release(self, now_us: int) -> None:
        """Do what is due: nothing."""

    def release_all(self) -> None:
        """Do what there is to do, due or not: nothing."""

    @property
    def waiting(self) -> bool:
        """`flush` has lines to deliver. Lines that were appended before the first member, at the
        end of a replay, wait for it."""
        return bool(self.rendered and self.members)

    def join_at(self, session: Session, _seq: int) -> None:
        """Add a member that knows everything up to a bookmark; nothing is pending."""
        self.members[session] = None

    def leave(self, session: Session) -> None:
        """Remove a member; nothing is pending."""
        self.members.pop(session, None)
        session.leave(self.name)

    def flush(self, group: int, now_us: int) -> None:
        """Deliver the pending lines to every member."""
        if self.rendered:
            rendered, self.rendered = self.rendered, []
            parts, self._parts = self._parts, []
            self._hand_out(list(self.members), rendered, parts, group, now_us)

    def collect(self) -> list[bytes]:
        """Take the lines that `flush` would deliver, for a channel without members."""
        rendered, self.rendered = self.rendered, []
        self._parts = []
        return rendered

    def gathered(self) -> list[tuple[UpdateEncoder, Update]]:
        """Take them as updates."""
        parts, self._parts = self._parts, []
        self.rendered = []
        return [(lines, update) for lines, content in parts for update in updates_of(content)]

    def check(self) -> None:
        """Assert what delivery relies on."""
        count = sum(_count(updates) for _, updates in self._parts)
        assert count == len(self.rendered), "lines without updates"
        seqs: dict[tuple[UpdateEncoder, str], int] = {}
        for lines, content in self._parts:
            for update in updates_of(content):
                record = lines, update.identity
                assert seqs.get(record, 0) < update.seq, f"{update.identity} goes backwards"
                seqs[record] = update.seq
        assert all(lines.name == self.name for lines, _ in self._parts), "lines of another channel"
        assert self._exclusive is not None or not self._behind, "lines held back for nothing"

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
            stop = start + sum(_count(updates) for _, updates in piece)
            pieces.append(Delivery(self.name, self.encoding, rendered[start:stop], piece))
            start = stop
        return pieces


def _have_one_policy(parts: Sequence[Part]) -> bool:
    topics = {lines for lines, _ in parts}
    return len(topics) == 1 or len({lines.queue_policy.policy for lines in topics}) == 1


def _count(updates: Update | Columns) -> int:
    return 1 if isinstance(updates, Update) else len(updates[0])
