"""Channels: the output stream of one subscription, over all its topics, in one order.

A subscription follows one topic or many, each through a feed (`sow.streaming.feeds`). Its feeds
share a channel, and a channel does not know its feeds. `flush` makes one `Delivery` of what they
have put into it. Its frame is the same bytes for every member: the sessions with equal
subscriptions.

A `DirectChannel` takes lines as changes come, so they are in the order of the changes without
sorting, and a feed without changes costs nothing. One that conflates in time takes updates
(`sow.streaming.conflated_channel`), one of a live window that something may have changed
(`sow.streaming.windows.window_channel`): these two fall due.

Every prefix of a channel's lines is a place to resume from: a client that has received that many
lines and resumes at the bookmark of the last one gets everything it has not received. A line
therefore carries the bookmark of the *first* change it stands for, and lines come in that order
(`sow.streaming.conflated_channel` and `sow.streaming.outbox.outbox` keep to it).

A channel may be *late*. What a batch costs depends on who follows: a hundred select lists of their
own take a hundred times as long as one. So beyond what a step may take, batches wait at the channel
for its feeds, in order, and are processed in steps (`catch_up`). To its members it is as if they
had been published a little later: the lines of a batch leave together.

A line that cannot be encoded fails the channel alone: it emits nothing more, and its owner ends the
subscription. The publisher and other subscribers of the topic do not notice.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from sow.protocol.replies import Encoding
from sow.streaming.outbox import Delivery, Part, updates_of
from sow.streaming.session_memory import SessionMemory
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import Columns, UpdateEncoder
from sow.topic.batch import Update
from sow.topic.records import Records


def raised(_channel: "Channel", error: Exception) -> None:
    """Raise a failure where no handler was given."""
    raise error


class Late(NamedTuple):
    """What a channel has still to do because of a change of `topic`, in its order. A step of it
    takes about so long."""

    topic: Records
    step_us: float
    steps: Iterator[object]

    def of(self, _latecomer: "Latecomer") -> "Late":
        """What it is to the one that is late with it."""
        return self

    def seal(self, _latecomer: "Latecomer") -> None:
        """Nothing is added to it."""


class LateTogether(Protocol):
    """What very many have still to do because of one change: postponing it costs each of them
    nothing but a reference."""

    topic: Records

    @property
    def alone(self) -> "tuple[LateTogether]":
        """It, as all that one is late with."""
        ...

    def of(self, latecomer: "Latecomer") -> Late:
        """What it is to one of them."""
        ...

    def seal(self, latecomer: "Latecomer") -> None:
        """Nothing is added for one of them any more."""
        ...


class CatchUpTurn(Protocol):
    """The turn in which some catch up (`sow.streaming.late_turns`)."""

    is_alone: bool
    """It is one client's, and all that waits there counts for it."""
    is_awaited: bool
    memories: dict[SessionMemory, None]


NONE_LATE: tuple[LateTogether, ...] = ()
"""An empty deque takes 760 bytes, and most channels are never late."""


class Latecomer:
    """What may be late with the changes of topics."""

    def __init__(self) -> None:
        self.members: dict[Session, None] = {}
        self.is_over = False
        """Nothing is emitted any more."""
        self.late: deque[Late | LateTogether] | tuple[LateTogether, ...] = NONE_LATE
        self.is_amid = False
        """A part of a batch has been processed: nothing of it leaves before the rest."""
        self.turn: CatchUpTurn | None = None
        """Its turn, while it is late."""

    def postpone(self, late: Late | LateTogether) -> None:
        """Do this after all that is late."""
        late.topic.late += 1
        if self.turn is not None and not self.turn.is_awaited:
            late.topic.count_unawaited(1)
        if self.late:
            self.late[-1].seal(self)
        elif not isinstance(late, Late):
            self.late = late.alone
            return
        if not isinstance(self.late, deque):
            self.late = deque(self.late)
        self.late.append(late)

    def catch_up(self) -> Late:
        """Do a step of what is late; returns of what. Where it is over, no more is to be done."""
        if not isinstance(self.late, deque):
            self.late = deque(self.late)
        first = self.late[0] = self.late[0].of(self)
        self.is_amid = False
        try:
            for _ in () if self.is_over else first.steps:
                self.is_amid = True
                break
        except Exception as error:
            self.fail(error)
        if not self.is_amid:
            self.late.popleft()
            first.topic.late -= 1
            if self.turn is not None and not self.turn.is_awaited:
                first.topic.count_unawaited(-1)
            if not self.late:
                self.late = NONE_LATE
        return first

    def fail(self, error: Exception) -> None:
        """A step has raised this."""
        raise error


class Channel(Latecomer, ABC):
    """The output of one subscription, and the sessions that receive it. `on_failure` is called once
    if an update cannot be encoded; without it the error is raised. Once it `is_over`, its feeds are
    about to be removed."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        on_failure: Callable[["Channel", Exception], None] = raised,
    ) -> None:
        super().__init__()
        self.name = name
        self.encoding = encoding
        self._on_failure = on_failure

    @property
    @abstractmethod
    def waiting(self) -> bool:
        """`flush` may have something to deliver."""

    @abstractmethod
    def flush(self, group: int, now_us: int) -> None:
        """Deliver the pending output to the members."""

    def end(self) -> None:
        """Accept nothing more: the last member has left."""
        self.is_over = True

    def fall_silent(self) -> None:
        """The last member is about to leave, and is sent nothing more."""
        self.is_over = True

    def fail(self, error: Exception) -> None:
        """An update could not be encoded: emit nothing beyond the pending lines."""
        if not self.is_over:
            self.is_over = True
            self._on_failure(self, error)

    def join(self, session: Session) -> None:
        """Add a member that knows everything; nothing is pending."""
        self.members[session] = None

    def leave(self, session: Session) -> None:
        """Remove a member; nothing is pending."""
        self.members.pop(session, None)
        session.leave(self.name)

    @abstractmethod
    def check(self) -> None:
        """Assert what delivery relies on."""

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
            if len(sessions) > 1:
                delivery.share()
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


class ChangeChannel(Channel):
    """A channel that takes each change, by lines or updates."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        on_failure: Callable[[Channel, Exception], None] = raised,
    ) -> None:
        super().__init__(name, encoding, on_failure)
        self._exclusive: Records | None = None
        """While set, the only topic whose changes are accepted; those of others are held back."""
        self._behind: list[Callable[[int], None]] = []
        """Accept the changes of other topics that are held back, at a time."""

    def hold_others(self, topic: Records) -> None:
        """Hold back the changes of other topics until `release_others`: this topic's sequence
        numbers are assigned already, and those of others are newer."""
        self._exclusive = topic

    def in_order(self, topic: Records, act: Callable[[], None]) -> None:
        """Do this once all is processed that came before."""
        if self.late:
            self.postpone(Late(topic, 0, in_one_step(act)))
        else:
            act()

    def release_others(self, now_us: int) -> None:
        """Accept all topics again, starting with the changes that were held back."""
        self._exclusive = None
        behind, self._behind = self._behind, []
        for accept in behind:
            accept(now_us)

    @abstractmethod
    def collect(self) -> list[bytes]:
        """Take the lines that `flush` would deliver, for a channel without members."""

    @abstractmethod
    def gathered(self) -> list[tuple[UpdateEncoder, Update]]:
        """Take all that is pending, due or not, as updates."""

    def check(self) -> None:
        """Assert what delivery relies on."""
        assert self._exclusive is not None or not self._behind, "changes held back for nothing"


class DirectChannel(ChangeChannel):
    """A channel that sends every change, at the end of the turn."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        on_failure: Callable[[Channel, Exception], None] = raised,
    ) -> None:
        super().__init__(name, encoding, on_failure)
        self.rendered: list[bytes] = []
        """The pending lines."""
        self._parts: list[Part] = []
        """The updates of these lines, in order."""

    def append(
        self, encoder: UpdateEncoder, updates: Update | Columns, rendered: list[bytes]
    ) -> None:
        """Append lines of a topic, with the updates they were encoded from."""
        if self.is_over:
            return
        if self._exclusive is not None and self._exclusive is not encoder.topic:
            self._behind.append(lambda _now_us: self.append(encoder, updates, rendered))
            return
        self._parts.append((encoder, updates))
        self.rendered += rendered

    @property
    def waiting(self) -> bool:
        """`flush` has lines to deliver. Lines that were appended before the first member, at the
        end of a replay, wait for it."""
        return bool(self.rendered and self.members)

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
        return [(encoder, update) for encoder, content in parts for update in updates_of(content)]

    def check(self) -> None:
        """Assert what delivery relies on."""
        super().check()
        count = sum(_count(updates) for _, updates in self._parts)
        assert count == len(self.rendered), "lines without updates"
        seqs: dict[tuple[UpdateEncoder, str], int] = {}
        for encoder, content in self._parts:
            for update in updates_of(content):
                record = encoder, update.identity
                assert seqs.get(record, 0) < update.seq, f"{update.identity} goes backwards"
                seqs[record] = update.seq
        assert all(encoder.name == self.name for encoder, _ in self._parts), (
            "lines of another channel"
        )


def in_one_step(act: Callable[[], object]) -> Iterator[None]:
    """Steps of what takes one."""
    act()
    yield from ()


def _have_one_policy(parts: Sequence[Part]) -> bool:
    topics = {encoder for encoder, _ in parts}
    return len(topics) == 1 or len({encoder.queue_policy.policy for encoder in topics}) == 1


def _count(updates: Update | Columns) -> int:
    return 1 if isinstance(updates, Update) else len(updates[0])


class ReportingChannel(DirectChannel):
    """Stands for a subscription of one session whose lines are made elsewhere; `on_end` is called
    with its name when it ends, whatever ends it."""

    def __init__(self, name: str, session: Session, on_end: Callable[[str], None]) -> None:
        super().__init__(name, session.encoding)
        self._on_end: Callable[[str], None] | None = on_end
        self.join(session)

    def end(self) -> None:
        """The session has left it."""
        super().end()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self.name)
