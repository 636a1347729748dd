"""Sessions: who is connected, and what is said to each of them.

A session says lines and is handed frames. Lines said one after the other leave in one frame; both
wait in the session's outbox (`sow.streaming.outbox.outbox`) until a socket takes them. When the
outbox is over its bounds, `apply_back_pressure` does what can be done, in this order: topics that
may be given up are given up, the queue is conflated, and a session that still does not keep up is
closed with a reason.

A session outlives its socket: dropped, it goes on collecting until somebody takes it up again or
its time is over (`sow.sessions.commands.session_manager`). No I/O here: an edge calls `pull` when
its socket can take more, and `apply_back_pressure` after it has.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol
from weakref import ref

from sow.core import protocol_messages
from sow.core.definitions import SessionSettings
from sow.core.protocol_messages import Reply
from sow.errors import described
from sow.protocol.encodings import Encoding, Frames
from sow.security.authorization import EVERYTHING, Permissions
from sow.streaming.conflation_budget import ConflationBudget
from sow.streaming.outbox.outbox import Outbox
from sow.streaming.recovery_buffer import RecoveryBuffer
from sow.streaming.update_encoder import Delivery

PATIENCE_US = 1_000_000
BURST_FACTOR = 4
"""A queue may be over its bounds for so long while the client's socket takes nothing, and by so
much in bytes: a burst that a client is reading away is no reason to give it up, nor is a server
that has had no time for it."""
AGAIN_FRACTION = 0.1
"""A queue that conflation could not bring under its bounds is conflated again when it has grown
by so much: what has just been folded will not fold again."""
SLOW = "slow client: the session's queue is full"
BACK_PRESSURE = "BACK_PRESSURE"
AUTHORIZATION = "AUTHORIZATION"
BARRED = "its user is known no longer; log on again"
OUTDATED = "the rights of its user have changed while records waited for it; log on again"
GONE = "the client has gone"
FAILED = "the server failed on what waits for this session; its log says why"


GIVEN_UP_MAX = 10
"""So many times it is remembered that subscriptions were given up, and of each so many topics: who
looks for the reason of a gap looks at the last ones."""


class GivenUp(NamedTuple):
    """That a session did not keep up with topics that may be given up, at `at_us`: the first
    of them, how many subscriptions they were, and how many lines were dropped with them."""

    at_us: int
    topics: tuple[str, ...]
    subscriptions: int
    lines: int


class Owner(Protocol):
    """Whoever writes what a session says: a socket."""

    @property
    def is_stuck(self) -> bool:
        """It takes nothing until its client has read something."""
        ...

    def lose(self) -> None:
        """Another one has taken the session up."""
        ...


def no_owner() -> None:
    """The owner of a session that is nobody's."""


class Session:
    """One client. `ended` is the reason once the server has given it up.

    `id` is what everybody calls it. `name` is a secret between server and client: whoever knows it
    can take the session up, so it is said in the ack of a logon and nowhere else.
    `released` says up to which group everything is durable. `give_up` ends the subscription of a
    name, because the session does not keep up with a topic that is not worth more, and returns what
    it was to; `on_end` hears that the server gives the session up, while what waits is still there.
    `connected` is False while no socket is there. `successor` is the session that a logon has
    taken up in this one's place. `rights` are what its user may do. `arrears` are what all sessions
    owe.
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        encoding: Encoding,
        settings: SessionSettings,
        connected_us: int,
        released: Callable[[], int],
        give_up: "Callable[[Session, str], str]",
        on_end: "Callable[[Session], None]",
        conflation_budget: "ConflationBudget[Session] | None" = None,
        address: str = "",
    ) -> None:
        self.id = session_id
        self.name = name
        self.encoding = encoding
        self.settings = settings
        self.client: str | None = None
        self.address = address
        """Where its client is."""
        self.connected_us = connected_us
        self.connected = True
        self.conflates = settings.conflates
        self.outbox = Outbox(settings, released, conflation_budget)
        self.recovery = RecoveryBuffer(settings)
        self.ended: str | None = None
        self.rights: Permissions = EVERYTHING
        """What its client may do: `entitle` says so before anything is carried out for it."""
        self.shown: object = None
        """What its client has shown to be who it is, for whoever finds out again."""
        self.fault = ""
        """The bug because of which it was ended, for the log."""
        self.successor: Session | None = None
        self.named = False
        """The client knows the session's name, and so can take it up again."""
        self._times_resumed = 0
        self.dropped = 0
        """Messages given up with their subscriptions."""
        self.given_up: deque[GivenUp] = deque(maxlen=GIVEN_UP_MAX)
        """The last times that subscriptions were."""
        self._give_up = give_up
        self._on_end = on_end
        self._owner: Callable[[], Owner | None] = no_owner
        self._lines: list[bytes] = []
        self._says_records = False
        """Some of these lines say records."""
        self._held_back: dict[str, list[tuple[Delivery, int]]] | None = None
        self._held_messages = self._held_bytes = 0
        self.folds = False
        """What waits is being folded, a step at a time."""
        self._begins = False
        """With the next step that begins."""
        self._conflating = False
        """All of it, because it is over its bounds or soon will be; else what is folded as it is
        queued, and was too much for one step."""
        self._full_since_us: int | None = None
        self._folded_to: tuple[int, int] | None = None
        self._sent = (0, 0)

    # Whose it is.

    def log_on(self, client: str | None) -> None:
        """Its client has said what it calls itself."""
        self.client = client

    def entitle(self, rights: Permissions, shown: object = None) -> None:
        """From now on its client may do this."""
        self.rights = rights
        self.shown = shown

    def belong_to(self, owner: Owner) -> None:
        """From now on `owner` writes what the session says, as long as there is such a socket."""
        self._owner = ref(owner)

    def belongs_to(self, owner: Owner) -> bool:
        """Whether nobody has taken it up since it was this one's."""
        return self._owner() is owner

    def disconnect(self) -> None:
        """Its socket has gone; it goes on collecting."""
        self.connected = False

    def resume(self, client: str | None, address: str) -> None:
        """Its client has come back, perhaps under another name, with another socket: whoever had
        the session loses it. `address` is where the client is now."""
        owner, self._owner = self._owner(), no_owner
        if owner is not None:
            owner.lose()
        self.connected, self.client = True, client or self.client
        self.address = address

    def give_way_to(self, successor: "Session") -> None:
        """Its client has taken up another session in its place."""
        self.successor = successor

    def allow_folding(self, allowed: bool) -> None:
        """From now on what waits may be folded, or nothing is."""
        self.conflates = allowed
        if not allowed:
            self.outbox.stop_folding()

    # Saying.

    def say(self, reply: Reply) -> None:
        """Add a line; it leaves with the lines said before and after it."""
        if self.ended is None:
            self._lines.append(self.encoding.reply(reply))

    def say_lines(self, lines: list[bytes]) -> None:
        """Add lines that the session's encoding has rendered."""
        if self.ended is None:
            self._lines.extend(lines)

    def say_records(self, lines: list[bytes]) -> None:
        """The same of lines of records, which its rights have to allow until they leave."""
        self._says_records |= bool(lines)
        self.say_lines(lines)

    def say_name(self, reply: Reply, group: int, now_us: int) -> None:
        """Say the ack that names the session, alone: lines are counted after it."""
        self.seal(group, now_us)
        if self.ended is None:
            frame = self.encoding.frame([self.encoding.reply(reply)])
            self.outbox.push_frames(self._name_frames(frame), group, now_us)
            self.named = True

    def _name_frames(self, frame: bytes) -> Frames:
        yield frame, 0
        # Reached when the frame has left.
        self.recovery.restart()

    def say_resumed(self, reply: Reply, now_us: int) -> None:
        """Say, before all that waits, that the session was taken up; this line is not counted."""
        self._times_resumed += 1
        frame = self.encoding.frame([self.encoding.reply(reply)])
        self.outbox.push_frames_first(self._resumed_frames(frame, self._times_resumed), now_us)

    def _resumed_frames(self, frame: bytes, time: int) -> Frames:
        # One that no socket has taken was for one that has gone: whoever hears it after another
        # would count it.
        if time == self._times_resumed:
            yield frame, 0

    def say_unsubscribed(
        self, name: str, reason: str, now_us: int, detail: str | None = None
    ) -> None:
        """Say at once that a subscription was ended by the server, and why."""
        line = self.encoding.reply(protocol_messages.unsubscribed(name, reason, detail))
        self.outbox.push(self.encoding.frame([line]), 1, 0, now_us)

    def seal(self, group: int, now_us: int) -> None:
        """Put the lines said so far into the outbox as one frame."""
        if self._lines:
            lines, self._lines = self._lines, []
            answers, self._says_records = self._says_records, False
            if self.ended is None:
                self.outbox.push(self.encoding.frame(lines), len(lines), group, now_us, answers)

    # While its rights change.

    def hold_back(self) -> None:
        """Its rights have changed, and what it follows goes by the old ones still: until
        `let_out` nothing leaves, and what strands say is kept for who puts it under the new
        ones."""
        if self._held_back is None:
            self._held_back = {}
            self._held_messages = self._held_bytes = 0

    @property
    def holds_back(self) -> bool:
        """Its rights have changed, and not all that it follows goes by the new ones."""
        return self._held_back is not None

    def held_back(self, name: str) -> Sequence[tuple[Delivery, int]]:
        """What a strand has said since, with the groups of it."""
        return (self._held_back or {}).get(name, ())

    def _hold(self, delivery: Delivery, group: int, now_us: int) -> None:
        assert self._held_back is not None
        self._held_back.setdefault(delivery.name, []).append((delivery, group))
        self._count_held(delivery, 1)
        settings = self.settings
        if (
            self._held_messages > settings.queue_messages_max
            or self._held_bytes > settings.queue_bytes_max
        ):
            self.end(SLOW, now_us)

    def _count_held(self, delivery: Delivery, times: int) -> None:
        self._held_messages += times * delivery.message_count
        self._held_bytes += times * len(delivery.frame)

    def let_out(self, now_us: int) -> None:
        """All that it follows goes by its rights: what was kept, and nobody has taken, leaves."""
        held, self._held_back = self._held_back or {}, None
        for deliveries in held.values():
            for delivery, group in deliveries:
                self._push(delivery, group, now_us)

    # Strands.

    def deliver(self, delivery: Delivery, group: int, now_us: int) -> None:
        """Queue a strand's shared frame."""
        self.seal(group, now_us)
        if self._held_back is not None and self.ended is None:
            self._hold(delivery, group, now_us)
        else:
            self._push(delivery, group, now_us)

    def _push(self, delivery: Delivery, group: int, now_us: int) -> None:
        if self.ended is None:
            try:
                self.outbox.push_delivery(delivery, group, now_us, self.conflates)
            except Exception as error:
                self.fail(error, now_us)

    def take_back_all(self, name: str) -> None:
        """Let nothing leave that was told under this name and has not left, nor again what has."""
        self._forget_held(name)
        self.outbox.take_back_all(name)
        self.recovery.withdraw()

    def leave(self, name: str) -> None:
        """The session has left the strand of a name: nothing is folded into what that said."""
        self._forget_held(name)
        self.outbox.leave(name)

    def _forget_held(self, name: str) -> None:
        if self._held_back is not None:
            for delivery, _ in self._held_back.pop(name, ()):
                self._count_held(delivery, -1)

    def stream(self, frames: Frames, group: int, now_us: int, answers: bool = True) -> None:
        """Queue frames that are made as the socket takes them; `answers`: of rows that were found
        already, whatever the session's rights are then."""
        self.seal(group, now_us)
        if self.ended is None:
            self.outbox.push_frames(frames, group, now_us, answers)

    def end(self, reason: str, now_us: int) -> None:
        """Give the session up: drop what waits and say why as the last line."""
        if self.ended is None:
            self.ended = reason
            self._on_end(self)
            self._lines.clear()
            self.outbox.clear()
            self._held_back = None
            line = self.encoding.reply(protocol_messages.close(reason))
            # Group 0: there is nothing this line would have to wait for.
            self.outbox.push(self.encoding.frame([line]), 1, 0, now_us)

    @property
    def is_barred(self) -> bool:
        """It was given up because its user, or what he may see, is not what it was."""
        return self.ended in (BARRED, OUTDATED)

    def bar(self, names: Iterable[str], now_us: int, why: str = BARRED) -> None:
        """Its user is known no longer, or `why`: drop what waits and what could be asked for again,
        and say that its subscriptions, of these names, have ended."""
        if self.ended is None:
            self.ended = why
            self._on_end(self)
            self._lines.clear()
            self.outbox.clear()
            self._held_back = None
            self.recovery.restart()
            said = [protocol_messages.unsubscribed(name, AUTHORIZATION, None) for name in names]
            lines = [
                *map(self.encoding.reply, said),
                self.encoding.reply(protocol_messages.close(why)),
            ]
            self.outbox.push(self.encoding.frame(lines), len(lines), 0, now_us)

    def fail(self, error: Exception, now_us: int) -> None:
        """What waits cannot be written, which is nobody else's business: give the session up."""
        self.fault = described(error)
        self.end(FAILED, now_us)

    def abandon(self) -> None:
        """Nobody reads any more: let go what waits, and say no more."""
        if self.ended is None:
            self.ended = GONE
            self._lines.clear()
            # A session is part of cycles: what waits would stay until those are looked for.
            self.outbox.clear()

    # Writing.

    def pull(self, released: int, now_us: int, makes: bool = True) -> bytes | None:
        """The next frame for the socket, or None when none may leave; see `Outbox.pull`."""
        if self.holds_back:
            # It may not be allowed any more.
            return None
        try:
            pulled = self.outbox.pull(released, makes)
        except Exception as error:
            self.fail(error, now_us)
            pulled = self.outbox.pull(released, makes)
        if pulled is None:
            return None
        if self.named and pulled.message_count:
            self.recovery.add(pulled, now_us)
        return pulled.frame

    def take_back(self, seen: int | None, skip: Callable[[bytes, int], bytes]) -> bool:
        """Queue again what was sent after line `seen`; False if that is not held any more, or was
        sent by other rights: what of it may be said again is known when they are in force."""
        if seen is None:
            return True
        if self.is_withdrawn(seen):
            return False
        frames = self.recovery.after(seen, skip)
        if frames is None:
            return False
        self.outbox.push_first(frames)
        return True

    def is_withdrawn(self, seen: int | None) -> bool:
        """Whether what was sent after line `seen` was sent by other rights than it has now."""
        if seen is None:
            return False
        return seen < self.recovery.withdrawn or (self.holds_back and seen < self.recovery.sent)

    @property
    def has_answers(self) -> bool:
        """Whether anything waits that no strand has said: rows of an answer, perhaps."""
        return bool(self._lines) or self.outbox.has_answers

    @property
    def says_answers(self) -> bool:
        """Whether records wait that were found already, as rows of an answer are."""
        return self._says_records or self.outbox.says_answers

    @property
    def idle(self) -> bool:
        """Nothing waits to be written, or for its rights."""
        return not self.outbox and not self._lines and not self.holds_back

    @property
    def keeps_up(self) -> bool:
        """What waits is not so much that idle time is spent on conflating it."""
        fraction = self.settings.background_conflation_fraction
        return not self.holds_back and not self.outbox.fills(fraction)

    def has_room(self, message_count: int, size_bytes: int) -> bool:
        """Whether so much beside what waits is within the bounds of its queue, or nothing waits."""
        return self.idle or self.outbox.has_room(message_count, size_bytes)

    # Back-pressure.

    def apply_back_pressure(self, now_us: int) -> bool:
        """Bring the queue under its bounds if it is over them, or give the session up; whether
        anything waits.

        For the edge to call once the socket has taken what it takes. A queue that is being folded
        is judged when that is done, and patience lasts as long as it is not the client who is
        waited for.
        """
        if not self.outbox:
            self._full_since_us = self._folded_to = None
            return False
        self.folds |= self.outbox.is_left_unfolded
        if not self.outbox.full:
            self._full_since_us = None
            return True
        if not self._waits_for_client:
            self._full_since_us = None
        if self.ended is None and self._worth_folding():
            self.conflate(now_us)
        if self.folds or not self.outbox.full:
            return bool(self.outbox)
        if self._full_since_us is None:
            self._full_since_us = now_us
        patient = self.connected and now_us - self._full_since_us <= PATIENCE_US
        if not patient or self._bursts():
            self.end(SLOW, now_us)
        return True

    @property
    def _waits_for_client(self) -> bool:
        """What waits does so because the client does not read. Else it waits for a turn, for the
        disk or to be made, for which no client can answer."""
        owner = self._owner()
        return owner is None or owner.is_stuck

    def conflate(self, now_us: int) -> None:
        """Give up what may be given up, and fold the whole queue if the session allows it: who sees
        that it `folds` has to go on with `fold_some`.

        A queue that is not short is not even looked through here: who fills one fills those of all
        who follow the same and do not read either.
        """
        self.folds = self._begins = self._conflating = True
        if self.outbox.is_folded_at_once:
            self.fold_some(now_us)

    def fold_some(self, now_us: int) -> bool:
        """Fold a little more of the queue; whether there is more of it."""
        try:
            if self._begins:
                self._begin_folding(now_us)
            self.folds = self.outbox.fold_some()
        except Exception as error:
            self.folds = False
            self.fail(error, now_us)
        if self.ended is None and self._conflating and not self.folds:
            self._conflating = False
            self._folded_to = (self.outbox.message_count, self.outbox.bytes)
            self._tell(now_us)
        return self.folds

    @property
    def backlogged(self) -> bool:
        """It owes so much folding that nothing should be added before that is done."""
        return self.folds and self.ended is None and self.outbox.is_backlogged

    def _begin_folding(self, now_us: int) -> None:
        self._begins = False
        given_up = self.outbox.to_give_up()
        topics = [self._give_up(self, membership.name) for membership in given_up]
        if given_up:
            # After their end, which hands out what has gathered: nothing is told beyond a gap.
            lines = self.outbox.drop(given_up)
            self.dropped += lines
            first = tuple(topics[:GIVEN_UP_MAX])
            self.given_up.append(GivenUp(now_us, first, len(topics), lines))
        if self.conflates:
            self.outbox.begin_folding()

    def wants_folding(self) -> bool:
        """Whether idle time is well spent on conflating the queue before it is full."""
        fraction = self.settings.background_conflation_fraction
        return self.conflates and self.outbox.fills(fraction) and self._worth_folding()

    def _worth_folding(self) -> bool:
        if self.folds:
            return False
        if self._folded_to is None:
            return True
        message_count, size = self._folded_to
        return (
            self.outbox.message_count - message_count
            > AGAIN_FRACTION * self.settings.queue_messages_max
            or self.outbox.bytes - size > AGAIN_FRACTION * self.settings.queue_bytes_max
        )

    def _bursts(self) -> bool:
        return self.outbox.bytes > BURST_FACTOR * self.settings.queue_bytes_max

    def _tell(self, now_us: int) -> None:
        """Tell the client what it will not see."""
        told = (self.outbox.folded, self.dropped)
        if told != self._sent:
            self._sent = told
            line = self.encoding.reply(protocol_messages.conflated(*told))
            self.outbox.push_notice(self.encoding.frame([line]), now_us)

    def check(self) -> None:
        """Assert what is always true of what waits for a client and what it was sent."""
        self.outbox.check()
        self.recovery.check()
