"""Conflated channels: subscriptions conflated in time (`conflation=1s`, `conflation=auto`).

A conflated channel holds updates in a conflator, one composed update for each key of each topic,
until their window ends or, with `auto`, until its client has taken what was sent before. Snapshots
never wait. Windows end in the order in which they opened, across topics, so lines come in the order
of the first changes they stand for.

A member that joins late shares the windows that are already open. Its snapshot includes what waits
in them, so it is a *newcomer* until those windows have ended: it gets only what changed since its
snapshot.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from conflated_topics import Conflator, OnDemand, PerKey
from sow.core.cooperative import Task
from sow.protocol.replies import Encoding
from sow.streaming.channel import ChangeChannel, Channel, Late, raised
from sow.streaming.outbox import Part
from sow.streaming.queue_memory import UPDATE_BYTES, Holders, resize
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import UpdateEncoder
from sow.topic.batch import Update, compose
from sow.topic.queue_policy import Key

RELEASED_AT_ONCE = 1_000
"""Updates that are released in one step; wording them takes some five milliseconds."""

ConflationPlace = tuple[UpdateEncoder, Key]
"""What an update is conflated by: the topic as the subscription sees it, and its key there."""
Places = dict[ConflationPlace, None]


class Waiting(NamedTuple):
    """An update in a window, and the arrival number of the newest update folded into it.

    Bookmarks would not do: a change of a conflated topic has the bookmark of its original, which
    may be older than what has been sent since.
    """

    number: int
    update: Update


class Newcomer:
    """A member that joined at `seq`, while `held` waited; `number` was the newest arrival."""

    def __init__(self, seq: int, number: int, held: Mapping[ConflationPlace, Waiting]) -> None:
        self.seq = seq
        self.number = number
        self.held = dict(held)
        self.before: dict[ConflationPlace, Update] = {}
        """Updates that it was not sent, unlike the others: it holds what was before these."""

    @property
    def is_settled(self) -> bool:
        """From now on it gets what the others get."""
        return not self.held and not self.before

    def corrected(
        self, released: Iterable[tuple[ConflationPlace, Waiting]]
    ) -> list[tuple[UpdateEncoder, Update]]:
        """Released updates as they apply to a member whose snapshot is as of `seq`."""
        updates: list[tuple[UpdateEncoder, Update]] = []
        for place, waiting in released:
            update = self.meant(place, waiting)
            if update is not None:
                updates.append((place[0], update))
            self.before.pop(place, None)
            held = self.held.get(place)
            if held is not None and held.number <= waiting.number:
                del self.held[place]
        return updates

    def meant(self, place: ConflationPlace, waiting: Waiting) -> Update | None:
        """A waiting update as if it were released now; None: the snapshot includes it."""
        held, (number, update) = self.held.get(place), waiting
        before = self.before.get(place)
        if before is not None and before.identity == update.identity:
            return update._replace(
                known=before.known, old=before.old, parting=before.old, delta=None
            )
        if held is None:
            return update
        if number <= self.number:
            return None
        # The snapshot includes everything this update stands for, up to the snapshot's bookmark.
        first_seq = min(max(update.first_seq, self.seq), update.seq)
        # Its delta stays: the part that the snapshot includes is applied a second time.
        old = held.update.new
        return update._replace(known=old is not None, old=old, first_seq=first_seq)


class ConflatedChannel(ChangeChannel):
    """A channel with a conflator. `interval_us` is None to follow the client's pace."""

    def __init__(
        self,
        name: str,
        encoding: Encoding,
        interval_us: int | None,
        on_failure: Callable[[Channel, Exception], None] = raised,
    ) -> None:
        super().__init__(name, encoding, on_failure)
        self._demand = OnDemand[ConflationPlace]() if interval_us is None else None
        self.conflator: Conflator[ConflationPlace, Waiting] = Conflator(
            self._demand or PerKey(interval_us or 1), _folded
        )
        self._offered = 0
        self.held_bytes = 0
        """What its windows hold, as far as it was counted, and for which clients: once for all. The
        states are those of the topic."""
        self.holders: Holders = {}
        self.lines_out = 0
        """Lines that its windows released; those of newcomers are not counted."""
        self._released: list[tuple[ConflationPlace, Waiting]] = []
        self._newcomers: dict[Session, Newcomer] = {}
        self._noting: tuple[Places, ...] = ()

    def offer(self, place: ConflationPlace, update: Update, now_us: int) -> None:
        """Add an update to its window."""
        if self.is_over:
            return
        if self._exclusive is not None and self._exclusive is not place[0].topic:
            self._behind.append(lambda now_us: self.offer(place, update, now_us))
            return
        self._offered += 1
        for noted in self._noting:
            noted[place] = None
        self.conflator.offer((place,), (Waiting(self._offered, update),), now_us)

    @property
    def updates_in(self) -> int:
        """Updates that were offered."""
        return self._offered

    @property
    def waiting(self) -> bool:
        """`flush` has something to deliver."""
        if self.is_over or not self.members:
            return False
        return bool(self._released) or self._client_is_ready()

    def _client_is_ready(self) -> bool:
        """The one client of an `auto` channel has taken all that was sent, and more waits."""
        return (
            self._demand is not None
            and len(self.conflator) > 0
            and all(session.idle for session in self.members)
        )

    def catch_up(self) -> Late:
        """Do a step of what is late, and count what its windows hold then."""
        late = super().catch_up()
        self.count()
        return late

    def release_others(self, now_us: int) -> None:
        """Accept all topics again, and count what its windows hold then."""
        super().release_others(now_us)
        self.count()

    def count(self) -> None:
        """Count what its windows hold now."""
        grown = UPDATE_BYTES * len(self.conflator) - self.held_bytes
        if grown:
            self.held_bytes += grown
            resize(self.holders, grown)

    def join(self, session: Session) -> None:
        """Add a member that knows everything; nothing is pending."""
        self.count()  # a replay has taken some without members
        super().join(session)
        session.memory.wait_in(self)

    def join_at(self, session: Session, seq: int) -> None:
        """Add a member that knows everything up to `seq`; 0: it gets what waits."""
        self.join(session)
        held = self.conflator.pending()
        if seq and held:
            self._newcomers[session] = Newcomer(seq, self._offered, held)

    def leave(self, session: Session) -> None:
        """Remove a member; nothing is pending."""
        super().leave(session)
        session.memory.leave(self)
        self._newcomers.pop(session, None)

    def go_back(self, session: Session, place: ConflationPlace, update: Update) -> None:
        """A member was not sent an update, and holds what was before it: what waits at a place is
        to say no more of that record."""
        self._newcomers.setdefault(session, Newcomer(0, 0, {})).before[place] = update

    def note(self, noted: Places) -> list[ConflationPlace]:
        """Record in `noted` each place whose waiting update changes from now on; returns all places
        that have one."""
        self._noting += (noted,)
        return self.conflator.keys()

    def note_no_more(self, noted: Places) -> None:
        """Stop recording in `noted`."""
        self._noting = tuple(one for one in self._noting if one is not noted)

    def pending_for(self, session: Session, place: ConflationPlace) -> Update | None:
        """The update that waits for a member at a place."""
        waiting = self.conflator.folded(place)
        newcomer = self._newcomers.get(session)
        if waiting is None or newcomer is None:
            return None if waiting is None else waiting.update
        return newcomer.meant(place, waiting)

    def due_us(self) -> int | None:
        """When `advance` next has something to do."""
        return self.conflator.due_us()

    def advance(self, now_us: int) -> Sequence[Channel]:
        """Take what is due, or a part of it, out of the conflator for `flush`."""
        self._released += self.conflator.take(now_us, RELEASED_AT_ONCE).items()
        return ()

    def release_all(self) -> None:
        """Take everything out of the conflator, due or not."""
        self._released += self.conflator.take_all().items()

    def collect(self) -> list[bytes]:
        """The lines of what was released, for a channel without members."""
        released, self._released = self._released, []
        return self._encoded(_updates(released))[0]

    def gathered(self) -> list[tuple[UpdateEncoder, Update]]:
        """Take all that is pending, due or not, as updates."""
        self.release_all()
        released, self._released = self._released, []
        return [*_updates(released)]

    def flush(self, group: int, now_us: int) -> None:
        """Deliver what was released; newcomers get what applies to them."""
        if self._client_is_ready():
            assert self._demand is not None
            self._demand.demand()
            self.advance(now_us)
        self.count()
        released, self._released = self._released, []
        for noted in self._noting:
            noted.update([(place, None) for place, _ in released])
        self.lines_out += len(released)
        settled = [session for session in self.members if session not in self._newcomers]
        if settled:
            self._send(settled, _updates(released), group, now_us)
        for session, newcomer in list(self._newcomers.items()):
            self._send([session], newcomer.corrected(released), group, now_us)
            if newcomer.is_settled:
                del self._newcomers[session]

    def let_go(self) -> Task[None]:
        """Discard what waits once there are no members, in steps: freeing very many updates takes
        as long as releasing them."""
        left = self.conflator.take_all()
        while left:
            for _ in range(min(len(left), RELEASED_AT_ONCE)):
                left.popitem()
            yield

    def check(self) -> None:
        """Assert what releasing relies on."""
        super().check()
        self.conflator.check()
        pending = self.conflator.pending()
        assert all(waiting.number <= self._offered for waiting in pending.values())
        assert all(encoder.name == self.name for encoder, _ in pending), (
            "updates of another channel"
        )
        assert self._newcomers.keys() <= self.members.keys(), "a newcomer has left"
        assert not any(newcomer.is_settled for newcomer in self._newcomers.values()), (
            "a newcomer like the others"
        )

    def _send(
        self,
        sessions: Sequence[Session],
        updates: Iterable[tuple[UpdateEncoder, Update]],
        group: int,
        now_us: int,
    ) -> None:
        rendered, parts = self._encoded(updates)
        if rendered:
            self._hand_out(sessions, rendered, parts, group, now_us)

    @staticmethod
    def _encoded(updates: Iterable[tuple[UpdateEncoder, Update]]) -> tuple[list[bytes], list[Part]]:
        """Encode updates, leaving out those without a line."""
        rendered: list[bytes] = []
        parts: list[Part] = []
        for encoder, update in updates:
            line = encoder.line(update)
            if line is not None:
                rendered.append(line)
                parts.append((encoder, update))
        return rendered, parts


def _updates(
    waiting: Iterable[tuple[ConflationPlace, Waiting]],
) -> Iterator[tuple[UpdateEncoder, Update]]:
    return ((place[0], one.update) for place, one in waiting)


def _folded(current: Waiting, new: Waiting) -> Waiting:
    """Two updates of one place."""
    return Waiting(new.number, compose(current.update, new.update))
