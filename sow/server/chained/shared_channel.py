"""The lines of a shared subscription, for its members and for those that are on their way.

A session joins before its snapshot is taken. From then on changes are kept for it; when the place
of the snapshot is known, those behind it follow. The subscription's lines may be behind that place,
since both come over connections of their own: what the snapshot has is left out until a line is
newer than it.

Sessions that are sent the same are members of one channel, which passes lines on as they came, or
conflates them in time.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from sow.core.paths import value_at
from sow.protocol.replies import LINES
from sow.server.chained.link import is_later, name_field, renamed, without_key
from sow.streaming.channel import ChangeChannel, Channel, DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.outbox import Delivery
from sow.streaming.sessions import SLOW, Session
from sow.streaming.update_encoder import UpdateEncoder, withdrawn
from sow.topic.batch import Update, compose
from sow.topic.queue_policy import Key, key_of

BEFORE_ALL = -1
"""The place of who begins without a snapshot: no change has a smaller bookmark."""
WITHDRAWN = "entitlement"
"""The reason of a record that its user may not see any more."""


class Passed(NamedTuple):
    """A line of upstream and its update; `name` is the field of its subscription's name there.
    `marked`: it has a bookmark, as all changes have, and that a record has left only where the
    subscription has begun at a bookmark."""

    update: Update
    line: bytes
    name: bytes = b""
    marked: bool = True


@dataclass(slots=True, eq=False)
class Joining:
    """A session that waits for its snapshot, and what has come since. `keys` are those of the
    snapshot's rows, where it matters which there are, and then of what the session holds. The
    snapshot is as of `place`; `open`: what comes is sent, unless the snapshot has it."""

    held: list[Passed] = field(default_factory=list)
    size_bytes: int = 0
    keys: set[str] | None = None
    place: int | None = None
    open: bool = False

    def note(self, key: str, is_there: bool, place: int | None) -> None:
        """A row, or a change up to a place, has come to it."""
        self.place = self.place if place is None else place
        if self.keys is not None and key:
            (self.keys.add if is_there else self.keys.discard)(key)

    def copied(self) -> "Joining":
        """The same state, as it is now."""
        return Joining(keys=None if self.keys is None else {*self.keys}, place=self.place)

    def hold_for(self, other: "Joining") -> None:
        """What this holds, another one holds from now on, and what comes to this one."""
        if other.keys is not None:
            other.keys |= self.keys or set()
            self.keys = other.keys

    def behind(self) -> list[Passed]:
        """Take what follows the snapshot, in order."""
        held, self.held, self.size_bytes = self.held, [], 0
        assert self.place is not None
        # Without a bookmark, that a record has left is older than the snapshot if a change of the
        # record that is in the snapshot follows, or if the record is not there.
        done = {
            one.update.identity: at
            for at, one in enumerate(held)
            if one.marked and not is_later(one.update.seq, self.place)
        }
        found = []
        for at, one in enumerate(held):
            if at > done.get(one.update.identity, -1) and self.passes(one):
                found.append(one)
        return found

    def passes(self, one: Passed) -> bool:
        """Whether a line says what the session does not know."""
        update, keys, place = one.update, self.keys, self.place
        if one.marked and place is not None and not is_later(update.seq, place):
            return False
        if keys is None:
            return True
        if update.new is not None:
            keys.add(update.identity)
            return True
        was_there = update.identity in keys
        keys.discard(update.identity)
        return was_there

    def is_past(self, one: Passed) -> bool:
        """All that follows this line is newer than the snapshot."""
        return self.place is not None and one.marked and is_later(one.update.seq, self.place)


def withdraw(session: Session, name: str, gone: AbstractSet[str]) -> Update | None:
    """A session may not see records any more: no line of them that waits or was sent is sent.
    Returns the first one that has waited: the session holds what was before it."""
    waited: list[Update] = []

    def left(encoder: UpdateEncoder, update: Update) -> tuple[UpdateEncoder, Update] | None:
        if update.identity not in gone:
            return encoder, update
        waited.append(update)
        return None

    session.outbox.reencode(name, left)
    session.recovery.withdraw()
    return waited[0] if waited else None


def with_keys(encoder: UpdateEncoder, held: Update) -> Update:
    """An update whose old state has the key fields at least, where it is not known here."""
    renderer = encoder.topic.renderer
    if held.old or not held.new or not renderer.keys:
        return held
    return held._replace(old=renderer.delta(encoder.shape, {}, renderer.document(held.new)))


def part_from(session: Session, name: str, held: Update) -> None:
    """Report that a record has left to a session that holds what was before an update: nothing
    where that was new to it, and by the key fields where it is not known here."""

    def reported(encoder: UpdateEncoder, update: Update) -> tuple[UpdateEncoder, Update] | None:
        if (update.identity, update.reason) != (held.identity, WITHDRAWN):
            return encoder, update
        old = with_keys(encoder, held).old
        found = update._replace(known=held.known, old=old, parting=old)
        return None if found.is_void else (encoder, found)

    session.outbox.reencode(name, reported)


@dataclass(slots=True)
class ChannelCalls:
    """What channels need of the engine: hand out what is pending, write to a session, let a channel
    act in time; and what is called once nobody follows one of them."""

    flush: Callable[[Channel], None]
    touch: Callable[[Session], None]
    time: Callable[[ConflatedChannel], None]
    over: Callable[["SharedChannel"], None]


class SharedChannel(ChangeChannel):
    """The lines of one subscription upstream, as some sessions are sent them."""

    encoder: UpdateEncoder
    _calls: ChannelCalls

    def share(self, encoder: UpdateEncoder, calls: ChannelCalls) -> None:
        """Encode lines that are made here so."""
        self.joining: dict[Session, Joining] = {}
        self.whole: set[Session] = set()
        """Those that have begun with a snapshot."""
        self.encoder = encoder
        self._calls = calls

    @abstractmethod
    def _take(self, some: Sequence[Passed], now_us: int) -> None:
        """Take lines for the members."""

    @abstractmethod
    def _sent(
        self, some: Sequence[Passed]
    ) -> tuple[list[bytes], list[tuple[UpdateEncoder, Update]]]:
        """The lines of these for one session, and their updates."""

    @abstractmethod
    def _admit(self, session: Session, place: int) -> None:
        """A session becomes a member, which knows everything up to a place."""

    def put_all(self, some: Sequence[Passed], now_us: int) -> None:
        """Take lines, in order: for the members, and for those that are on their way."""
        is_withdrawn = WITHDRAWN in [one.update.reason for one in some]
        if is_withdrawn and not self._reports_withdrawn:
            some, is_withdrawn = self._without_withdrawn(some, now_us), False
        if self.joining or is_withdrawn:
            for one in some:
                self._put(one, now_us)
        elif self.members:
            self._take(some, now_us)

    @property
    def _reports_withdrawn(self) -> bool:
        """What the members are sent depends on when a record was withdrawn."""
        return self.encoder.key.reports_withdrawn

    def _without_withdrawn(self, some: Sequence[Passed], now_us: int) -> list[Passed]:
        """The lines without those of records that are withdrawn behind them; nor is one sent that
        waits."""
        left, gone = list[Passed](), set[str]()
        for one in reversed(some):
            if one.update.reason == WITHDRAWN:
                gone.add(one.update.identity)
            elif one.update.identity not in gone:
                left.append(one)
        for joining in self.joining.values():
            joining.held = [one for one in joining.held if one.update.identity not in gone]
            joining.size_bytes = sum(len(one.line) for one in joining.held)
        self._forget(gone, now_us)
        return left[::-1]

    def _forget(self, gone: AbstractSet[str], _now_us: int) -> None:
        """No line of these records that waits is sent."""
        self._calls.flush(self)
        for member in self.members:
            withdraw(member, self.name, gone)

    def _put(self, one: Passed, now_us: int) -> None:
        waited: dict[Session, Update] = {}
        if one.update.reason == WITHDRAWN:
            for member in self.members:
                first = withdraw(member, self.name, {one.update.identity})
                if first is not None:
                    waited[member] = first
        if self.joining:
            for session, joining in [*self.joining.items()]:
                self._put_to(session, joining, one, now_us)
        if self.members:
            self._take((one,), now_us)
        if waited:
            self._part(waited, one.update)

    def _part(self, waited: Mapping[Session, Update], _update: Update) -> None:
        """Members hold what was before these updates of a record that has left: they are sent no
        more of it."""
        self._calls.flush(self)
        for member, first in waited.items():
            part_from(member, self.name, first)

    def _put_to(self, session: Session, joining: Joining, one: Passed, now_us: int) -> None:
        if joining.is_past(one):
            self.open(session, now_us)
            # What is pending is for the others.
            self._calls.flush(self)
            del self.joining[session]
            self._admit(session, joining.place or 0)
        elif joining.open:
            if joining.passes(one):
                self._send_to(session, [one], now_us)
        else:
            joining.held.append(one)
            joining.size_bytes += len(one.line)
            if joining.size_bytes > session.settings.queue_bytes_max:
                del self.joining[session]
                session.end(SLOW, now_us)

    def place(self, session: Session, place: int, now_us: int) -> None:
        """The snapshot of a session has been sent, and is as of a place."""
        joining = self.joining.get(session)
        if joining is not None:
            joining.place = place
            if any(map(joining.is_past, joining.held)):
                self.open(session, now_us)

    def open(self, session: Session, now_us: int) -> None:
        """All that the snapshot has has come: send what follows it."""
        joining = self.joining.get(session)
        if joining is not None and joining.place is not None and not joining.open:
            joining.open = True
            self._send_to(session, joining.behind(), now_us)

    # Replacing.

    def freeze(self, session: Session, now_us: int) -> None:
        """Keep what comes for a session from now on, which has been sent all before."""
        self._calls.flush(self)
        self._settle(session, now_us)
        is_whole = session in self.whole
        self.leave(session)
        self.joining[session] = Joining()
        if is_whole:
            self.whole.add(session)

    def _settle(self, session: Session, now_us: int) -> None:
        """Send a member what waits for it here."""

    def thaw(self, session: Session, state: Joining | None, now_us: int) -> None:
        """Send a session what was kept and has happened up to a state, else all; then it goes on as
        a member."""
        frozen = self.joining.get(session)
        if frozen is None:
            return
        held, behind = [*frozen.held], set[int]()
        if state is not None:
            state.held = [*held]
            behind = {id(one) for one in state.behind()}
        self._send_to(session, [one for one in held if id(one) not in behind], now_us)
        del self.joining[session]
        self._admit(session, BEFORE_ALL)

    def _send_to(self, session: Session, some: Sequence[Passed], now_us: int) -> None:
        lines, parts = self._sent(some)
        if lines:
            session.deliver(Delivery(self.name, self.encoding, lines, [*parts]), 0, now_us)
            # Not a member, so that no flush of the channel would write to it.
            self._calls.touch(session)

    def leave(self, session: Session) -> None:
        """A member leaves, or one that is on its way."""
        self.joining.pop(session, None)
        self.whole.discard(session)
        super().leave(session)

    def give_up(self, session: Session) -> None:
        """A session that was on its way does not come."""
        self.joining.pop(session, None)
        if not self.members:
            self.end()

    def fall_silent(self) -> None:
        """It goes on until it ends, for those that are on their way."""

    def end(self) -> None:
        """The last member has left; others may be on their way."""
        if not self.joining and not self.is_over:
            super().end()
            self._calls.over(self)


class PassingChannel(SharedChannel, DirectChannel):
    """Passes lines on."""

    def __init__(self, encoder: UpdateEncoder, calls: ChannelCalls) -> None:
        DirectChannel.__init__(self, encoder.name, LINES)
        self._name = name_field(self.name)
        self.share(encoder, calls)

    def _lines(self, some: Sequence[Passed]) -> list[bytes]:
        """The lines with the name of this channel."""
        lines = [renamed(one.line, one.name, self._name) for one in some]
        return lines if self.encoder.shape.sow_keys else [*map(without_key, lines)]

    def _take(self, some: Sequence[Passed], _now_us: int) -> None:
        for one, line in zip(some, self._lines(some), strict=True):
            self.append(self.encoder, one.update, [line])

    def _sent(
        self, some: Sequence[Passed]
    ) -> tuple[list[bytes], list[tuple[UpdateEncoder, Update]]]:
        return self._lines(some), [(self.encoder, one.update) for one in some]

    def _admit(self, session: Session, _place: int) -> None:
        self.join(session)


class ConflatingChannel(SharedChannel, ConflatedChannel):
    """Conflates what comes in time, as the channel of a server with records does."""

    def __init__(self, encoder: UpdateEncoder, calls: ChannelCalls) -> None:
        ConflatedChannel.__init__(self, encoder.name, LINES, encoder.key.interval_us)
        self.share(encoder, calls)

    def _key(self, update: Update) -> Key:
        paths = self.encoder.conflation_key
        if not paths:
            return (update.identity,)
        document = self.encoder.topic.message_type.parse(update.new or b"")
        return key_of([value_at(document, path) for path in paths], update.identity)

    def _take(self, some: Sequence[Passed], now_us: int) -> None:
        for one in some:
            self.offer((self.encoder, self._key(one.update)), one.update, now_us)

    @property
    def _reports_withdrawn(self) -> bool:
        # A window of a record says what has become of it, one of several records does not.
        return not self.encoder.conflation_key

    def _forget(self, gone: AbstractSet[str], now_us: int) -> None:
        super()._forget(gone, now_us)
        waiting = [(place, one.update) for place, one in self.conflator.pending().items()]
        for place, update in waiting:
            if update.identity in gone:
                self.offer(place, withdrawn(update), now_us)

    def _part(self, waited: Mapping[Session, Update], update: Update) -> None:
        place = self.encoder, self._key(update)
        for member, first in waited.items():
            self.go_back(member, place, with_keys(self.encoder, first))

    def _sent(
        self, some: Sequence[Passed]
    ) -> tuple[list[bytes], list[tuple[UpdateEncoder, Update]]]:
        folded: dict[Key, Update] = {}
        for one in some:
            key = self._key(one.update)
            folded[key] = compose(folded[key], one.update) if key in folded else one.update
        found = [(self.encoder.line(update), update) for update in folded.values()]
        there = [(line, update) for line, update in found if line is not None]
        return [line for line, _ in there], [(self.encoder, update) for _, update in there]

    def _settle(self, session: Session, now_us: int) -> None:
        waiting = [self.pending_for(session, place) for place in self.conflator.pending()]
        found = [Passed(update, b"") for update in waiting if update is not None]
        if session in self.members:
            self._send_to(session, found, now_us)

    def _admit(self, session: Session, place: int) -> None:
        # What waits in windows was sent to it by itself, or is in its snapshot.
        self.join_at(session, max(place, 1))
        self._calls.time(self)


def channel_for(encoder: UpdateEncoder, calls: ChannelCalls) -> SharedChannel:
    """The channel that sends lines as the key of an encoder has it."""
    conflates = encoder.key.interval_us is not None or encoder.key.auto
    return ConflatingChannel(encoder, calls) if conflates else PassingChannel(encoder, calls)
