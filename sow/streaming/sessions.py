"""Sessions: the connected clients, and what is sent to each of them.

A session takes lines and hands out frames. Lines sent one after the other leave in one frame; both
wait in the session's outbox (`sow.streaming.outbox.outbox`) until a socket takes them. When the
outbox is over its bounds, `apply_back_pressure` acts in this order: subscriptions that may be given
up end, the queue is conflated, and a session that still does not keep up is closed with a reason.

A session outlives its socket: dropped, it goes on collecting until somebody takes it up again or
its time is over (`sow.sessions.commands.session_manager`). No I/O here: an edge calls `pull` when
its socket can take more, and `apply_back_pressure` after it has.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol
from weakref import ref

from sow.core.cooperative import Task
from sow.core.definitions import SessionSettings
from sow.core.quota import client_of
from sow.errors import described
from sow.protocol import replies
from sow.protocol.replies import Encoding, Frames, Reply
from sow.security.authorization import EVERYTHING, Permissions
from sow.streaming.outbox import Delivery, HeldBack
from sow.streaming.outbox.outbox import NOT_YET, NotYet, Outbox, Pulled
from sow.streaming.outbox.overflow import ConflationBudget, Overflow
from sow.streaming.recovery_buffer import RecoveryBuffer
from sow.streaming.session_memory import (
    UNCOUNTED_BYTES,
    UNCOUNTED_MESSAGES,
    WAITING_BYTES,
    SessionMemory,
)

SLOW = "slow client: the session's queue is full"
BACK_PRESSURE = "BACK_PRESSURE"
AUTHORIZATION = "AUTHORIZATION"
BARRED = "its user is known no longer; log on again"
OUTDATED = "the rights of its user have changed while records waited for it; log on again"
GONE = "the client has gone"
SESSION_FAILED = "the server failed on what waits for this session; its log says why"
GIVEN_UP_AT_ONCE = 50
"""Subscriptions that are given up in one step, each some hundred microseconds."""


class Owner(Protocol):
    """The writer of a session's frames: a socket."""

    @property
    def is_stuck(self) -> bool:
        """It takes nothing until its client has read something."""
        ...

    def lose(self) -> None:
        """Another owner has resumed the session."""
        ...


def no_owner(_now_us: int = 0) -> None:
    """The owner of a session without a socket, and its writing."""


class Session:
    """One client. `ended` is the reason once the server has closed it.

    `id` is its public name. `name` is a secret between server and client: with it a client can
    resume the session, so it is sent in the ack of a logon and nowhere else. Everything up to the
    group `released()` is durable. `give_up` ends the subscription of a name, because the session
    does not keep up with a topic whose policy allows that, and returns its topic; `on_end` is
    called when the server closes the session, while what waits is still there. `connected` is False
    without a socket. `successor` is the session that a logon has resumed in this one's place.
    `rights` are what its user may do. `conflation_budget` is shared by all sessions. `write` is
    called with the time when something is there to be sent.
    """

    __slots__ = (
        "_begins", "_conflating", "_give_up", "_has_record_lines", "_held_back",
        "_on_end", "_owner", "_sent", "_times_resumed", "address", "client", "conflates",
        "connected", "connected_us", "encoding", "ended", "fault", "folds", "id", "is_paced",
        "lines", "memory", "name", "named", "outbox", "overflow", "recovery", "rights",
        "settings", "shown", "successor", "write",
    )  # fmt: skip

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
        """The address of its client."""
        self.connected_us = connected_us
        self.connected = True
        self.conflates = settings.conflates
        self.outbox = Outbox(settings, released, conflation_budget)
        self.overflow = Overflow(self.outbox.queue, settings)
        self.recovery = RecoveryBuffer(settings)
        self.memory = SessionMemory(self, self.outbox.queue, self.recovery)
        self.ended: str | None = None
        self.rights: Permissions = EVERYTHING
        """The permissions of its client: set by `entitle` before anything is done for it."""
        self.shown: object = None  # its client's credentials, to be verified again
        self.fault = ""  # the bug that ended it, for the log
        self.successor: Session | None = None
        self.named = False  # the client knows its name, and so can resume it
        self._give_up = give_up
        self._on_end = on_end
        self._owner: Callable[[], Owner | None] = no_owner
        self.write: Callable[[int], object] = no_owner  # to the socket, or judges what waits
        self.is_paced = False  # see `pace`
        self.lines: list[bytes] = []  # for the next frame
        self._has_record_lines = False  # some of these have records of answers
        self._held_back: HeldBack | None = None
        self.folds = False  # what waits is being folded, a step at a time
        self._begins: Task[None] | None = None  # what precedes folding
        self._conflating = False  # all of it is folded, not only what is on queueing
        self._sent = (0, 0)

    @property
    def account(self) -> Hashable:
        """The client that its memory counts for."""
        return client_of(self.rights.owner, self.address, self.id)

    # Ownership.

    def log_on(self, client: str | None) -> None:
        """Set the name that its client has given itself."""
        self.client = client

    def entitle(self, rights: Permissions, shown: object = None) -> None:
        """Set what its client may do from now on."""
        self.rights, self.shown = rights, shown

    def belong_to(self, owner: Owner) -> None:
        """From now on `owner` writes its frames, as long as that socket exists."""
        self._owner = ref(owner)

    def pace(self, is_paced: bool) -> None:
        """Set whether some of its subscriptions go on when all has been taken."""
        self.is_paced = is_paced

    def attach(self, write: Callable[[int], object]) -> None:
        """Have `write` called from now on: a session is on one socket at a time."""
        self.write = write

    def detach(self) -> None:
        """The socket is closed."""
        self.write = no_owner

    def belongs_to(self, owner: Owner) -> bool:
        """Whether `owner` still owns it."""
        return self._owner() is owner

    def disconnect(self) -> None:
        """Its socket has gone; it goes on collecting."""
        self.connected = False
        self.outbox.queue.keep_lean(True)

    def resume(self, client: str | None, address: str) -> None:
        """Its client has reconnected, perhaps under another name: the former owner loses the
        session. `address` is where the client is now."""
        owner, self._owner = self._owner(), no_owner
        if owner is not None:
            owner.lose()
        self.connected, self.client = True, client or self.client
        self.outbox.queue.keep_lean(False)
        self.address = address

    def give_way_to(self, successor: "Session") -> None:
        """Its client has resumed another session in its place."""
        self.successor = successor

    def allow_folding(self, allowed: bool) -> None:
        """From now on what waits may be folded, or nothing is."""
        self.conflates = allowed
        if not allowed:
            self.outbox.stop_folding()

    # Sending.

    def send(self, reply: Reply) -> None:
        """Add a line; it leaves with the lines sent before and after it."""
        if self.ended is None:
            self.lines.append(self.encoding.reply(reply))

    def send_lines(self, lines: list[bytes]) -> None:
        """Add lines in the session's encoding."""
        if self.ended is None:
            self.lines.extend(lines)

    def send_records(self, lines: list[bytes]) -> None:
        """Add lines of records, which its permissions have to allow until they leave."""
        self._has_record_lines |= bool(lines)
        self.send_lines(lines)

    def send_name(self, reply: Reply, group: int, now_us: int) -> None:
        """Send the ack that names the session, alone: lines are counted after it."""
        self.seal(group, now_us)
        if self.ended is None:
            frame = self.encoding.frame([self.encoding.reply(reply)])
            self.outbox.push_frames(self.recovery.named_by(frame), group, now_us)
            self.named = True

    def send_resumed(self, reply: Reply, now_us: int) -> None:
        """Send, before all that waits, that the session was resumed; this line is not counted."""
        frame = self.encoding.frame([self.encoding.reply(reply)])
        self.outbox.push_frames_first(self.recovery.resumed_by(frame), now_us)

    def send_unsubscribed(
        self, name: str, reason: str, now_us: int, detail: str | None = None
    ) -> None:
        """Send at once that the server has ended a subscription, and why."""
        self._push_last([replies.unsubscribed(name, reason, detail)], now_us)

    def seal(self, group: int, now_us: int) -> None:
        """Put the pending lines into the outbox as one frame."""
        if self.lines:
            lines, self.lines = self.lines, []
            answers, self._has_record_lines = self._has_record_lines, False
            if self.ended is None:
                self.outbox.push(self.encoding.frame(lines), len(lines), group, now_us, answers)

    # While its permissions change.

    def hold_back(self) -> None:
        """Its permissions have changed, and its subscriptions still apply the old ones: until
        `let_out` nothing leaves, and deliveries of channels are kept to be filtered by the new
        ones."""
        if self._held_back is None:
            self._held_back = HeldBack()
            self.memory.take(self._held_back)

    @property
    def holds_back(self) -> bool:
        """Its permissions have changed, and not all its subscriptions apply the new ones."""
        return self._held_back is not None

    def held_back(self, name: str) -> Sequence[tuple[Delivery, int]]:
        """Deliveries of a channel since then, with their groups."""
        return () if self._held_back is None else self._held_back.of(name)

    def let_out(self, now_us: int) -> None:
        """All its subscriptions apply its permissions: send what was kept and not removed."""
        # Lines that were added since come after it.
        lines, self.lines = self.lines, []
        for delivery, group in self._release_held():
            self.deliver(delivery, group, now_us)
        if self.ended is None:
            self.lines = lines

    def _release_held(self) -> Sequence[tuple[Delivery, int]]:
        held, self._held_back = self._held_back, None
        if held is None:
            return ()
        self.memory.give_back(held)
        return held.taken()

    # Channels.

    def deliver(self, delivery: Delivery, group: int, now_us: int) -> None:
        """Queue a channel's delivery."""
        if self.lines:
            self.seal(group, now_us)
        if self.ended is not None:
            return
        try:
            if self._held_back is not None:
                self._held_back.add(delivery, group)
                if self._held_back.exceeds(self.settings):
                    self.end(SLOW, now_us)
            else:
                self.outbox.push_delivery(delivery, group, now_us, self.conflates)
        except Exception as error:
            self.fail(error, now_us)

    def take_back_all(self, name: str) -> None:
        """Drop what waits under this name, and resend nothing that was sent before."""
        self._forget_held(name)
        self.outbox.take_back_all(name)
        self.recovery.withdraw()

    def leave(self, name: str) -> None:
        """The session has left the channel of a name: nothing is folded into its output."""
        self._forget_held(name)
        self.outbox.leave(name)

    def _forget_held(self, name: str) -> None:
        if self._held_back is not None:
            self._held_back.forget(name)

    def stream(self, frames: Frames, group: int, now_us: int, answers: bool = True) -> None:
        """Queue frames that are made as the socket takes them; `answers`: of rows that were found
        already, whatever the session's permissions are then."""
        self.seal(group, now_us)
        if self.ended is None:
            self.outbox.push_frames(frames, group, now_us, answers)

    def end(self, reason: str, now_us: int) -> None:
        """Close the session: drop what waits, and send the reason as the last line."""
        if self.ended is None:
            self._drop_all(reason)
            self._push_last([replies.close(reason)], now_us)

    def _drop_all(self, reason: str) -> None:
        self.ended = reason
        self._on_end(self)
        self.lines.clear()
        self.outbox.clear()
        self._release_held()

    def _push_last(self, last: Iterable[Reply], now_us: int) -> None:
        lines = [*map(self.encoding.reply, last)]
        # Group 0: these lines wait for nothing.
        self.outbox.push(self.encoding.frame(lines), len(lines), 0, now_us)

    @property
    def is_barred(self) -> bool:
        """It was closed because its user, or what the user may see, has changed."""
        return self.ended in (BARRED, OUTDATED)

    def bar(self, names: Iterable[str], now_us: int, why: str = BARRED) -> None:
        """Its user is no longer known, or `why`: drop what waits and what could be resent, and send
        that its subscriptions of these names have ended."""
        if self.ended is None:
            self._drop_all(why)
            self.recovery.restart()
            last = [replies.unsubscribed(name, AUTHORIZATION) for name in names]
            self._push_last([*last, replies.close(why)], now_us)

    def fail(self, error: Exception, now_us: int) -> None:
        """An error of this server, such as what cannot be written, concerns no other session: close
        this one."""
        self.fault = described(error)
        self.end(SESSION_FAILED, now_us)

    def abandon(self) -> None:
        """No client reads any more: drop what waits, and send nothing."""
        self._begins = None
        if self.ended is None:
            self.ended = GONE
            self.lines.clear()
            # A session is part of cycles: what waits would stay until those are collected.
            self.outbox.clear()
        if not self.connected:
            self.detach()

    # Writing.

    def pull(self, released: int, now_us: int, makes: bool = True) -> bytes | NotYet | None:
        """The next frame for the socket, or None when none may leave; see `Outbox.pull`."""
        if self._held_back is not None:
            # It may not be allowed any more.
            return None
        try:
            pulled = self.outbox.pull(released, makes)
        except Exception as error:
            self.fail(error, now_us)
            pulled = self.outbox.pull(released, makes)
        if pulled is None or pulled is NOT_YET:
            return pulled
        if self.named and pulled.message_count:
            self.recovery.add(Pulled.of(pulled), now_us)
        return pulled.frame

    def pull_alone(self, released: int, now_us: int) -> bytes | None:
        """The same where one shared or opaque frame is all that waits; None: `pull`."""
        if self._held_back is not None:
            return None
        pulled = self.outbox.pull_alone(released)
        if pulled is None:
            return None
        if self.named and pulled.message_count:
            self.recovery.add(Pulled.of(pulled), now_us)
        return pulled.frame

    def take_back(self, seen: int | None, skip: Callable[[bytes, int], bytes]) -> bool:
        """Queue again what was sent after line `seen`; False if it is gone, or was sent under other
        permissions: what of it may be resent is known when the new ones apply."""
        if seen is None:
            return True
        frames = None if self.is_withdrawn(seen) else self.recovery.after(seen, skip)
        if frames is not None:
            self.outbox.push_first(frames)
        return frames is not None

    def is_withdrawn(self, seen: int | None) -> bool:
        """Whether what was sent after line `seen` was sent under other permissions than now."""
        changed = self.recovery.sent if self.holds_back else self.recovery.withdrawn
        return seen is not None and seen < changed

    @property
    def has_answers(self) -> bool:
        """Whether anything waits that is not from a channel: rows of an answer, perhaps."""
        return bool(self.lines) or self.outbox.has_answers

    @property
    def has_found_records(self) -> bool:
        """Whether records of answers wait, which were read already."""
        return self._has_record_lines or self.outbox.has_found_records

    @property
    def idle(self) -> bool:
        """Nothing waits to be written, or for its permissions."""
        return not self.outbox and not self.lines and not self.holds_back

    @property
    def keeps_up(self) -> bool:
        """What waits is too little to spend idle time on conflating it."""
        fraction = self.settings.background_conflation_fraction
        return not self.holds_back and not self.outbox.fills(fraction)

    def has_room(self, message_count: int, size_bytes: int) -> bool:
        """Whether so much more fits into the bounds of its queue, or nothing waits."""
        return self.idle or self.outbox.has_room(message_count, size_bytes)

    # Back-pressure.

    def apply_back_pressure(self, now_us: int) -> bool:
        """Bring the queue under its bounds if it is over them, or close the session; whether
        anything waits.

        Called by the connection once the socket has taken what it can. A queue that is being folded
        is judged when that is done, and time counts only while the client is what it waits for.
        """
        if not self.outbox:
            if self.overflow.is_noted:
                self.overflow.end()
            return False
        self.folds |= self.outbox.is_left_unfolded
        if self.outbox.queue.count is None and self.ended is None and self._is_left_waiting:
            self.memory.count_queue()
        if not self.outbox.full:
            if self.overflow.is_noted:
                self.overflow.pause()
            return True
        waits_for_client = self._waits_for_client
        if not waits_for_client:
            self.overflow.pause()
        if self.ended is None and not self.folds and self.overflow.is_worth_folding:
            self.conflate(now_us)
        if self.folds or not self.outbox.full:
            return bool(self.outbox)
        is_too_late = waits_for_client and self.overflow.lasts_too_long(now_us)
        if is_too_late or not self.connected or self.overflow.is_excessive:
            self._give_up_on_client(now_us)
        return True

    def _give_up_on_client(self, now_us: int) -> None:
        """Close the session, unless folding what has come since it was folded helps again."""
        if self.ended is None and self.overflow.folding_helps:
            self.conflate(now_us)
        if not self.outbox.full:
            self.overflow.pause()
        elif not self.folds:
            self.end(SLOW, now_us)

    @property
    def _is_left_waiting(self) -> bool:
        """So much waits for a client that it has to be counted."""
        size = self.outbox.size_bytes
        if size > WAITING_BYTES or not self.connected:
            return True
        is_short = size <= UNCOUNTED_BYTES and self.outbox.message_count <= UNCOUNTED_MESSAGES
        return not is_short and self._waits_for_client

    @property
    def _waits_for_client(self) -> bool:
        """It waits because the client does not read. Else it waits for a turn, for the disk or to
        be made, which is not the client's fault."""
        owner = self._owner()
        return owner is None or owner.is_stuck

    def conflate(self, now_us: int) -> None:
        """Give up what may be given up, and fold the whole queue if the session allows it: the
        caller continues with `fold_some` while it `folds`. A queue that is not short is not even
        walked through here: a publisher that fills one fills those of all slow subscribers."""
        self.folds = self._conflating = True
        self._begins = self._begins or self._begin_folding(now_us)
        if self.outbox.is_folded_at_once:
            self.fold_some(now_us)

    def fold_some(self, now_us: int) -> bool:
        """Fold a little more of the queue; whether there is more of it."""
        try:
            for _ in self._begins or ():
                return True
            self._begins = None
            self.folds = self.outbox.fold_some()
        except Exception as error:
            self.folds = False
            self.fail(error, now_us)
        if self.ended is None and self._conflating and not self.folds:
            self._conflating = False
            self.overflow.note_folded(self.outbox.full)
            self._send_notice(now_us)
        return self.folds

    @property
    def backlogged(self) -> bool:
        """It has so much to fold that nothing should be added before that is done."""
        return self.folds and self.ended is None and self.outbox.is_backlogged

    def _begin_folding(self, now_us: int) -> Task[None]:
        yield from self.give_up(now_us)
        if self.conflates:
            self.outbox.begin_folding()

    def give_up(self, now_us: int) -> Task[None]:
        """Give up, in steps, what subscriptions may be given up, and drop what waits of them."""
        given_up, topics = self.outbox.to_give_up(), list[str]()
        for at, membership in enumerate(given_up, 1):
            topics.append(self._give_up(self, membership.name))
            if at % GIVEN_UP_AT_ONCE == 0:
                yield
        if given_up and self.ended is None:
            # After all have ended, which delivers pending lines: nothing is sent beyond a gap.
            lines = self.outbox.drop(given_up)
            self.overflow.note_given_up(now_us, [*filter(None, topics)], lines)

    def wants_folding(self) -> bool:
        """Whether idle time is well spent on conflating the queue before it is full."""
        fraction = self.settings.background_conflation_fraction
        fills = self.conflates and not self.folds and self.outbox.fills(fraction)
        return fills and self.overflow.is_worth_folding

    def _send_notice(self, now_us: int) -> None:
        """Notify the client of how much it will not get."""
        counts = (self.outbox.folded, self.overflow.dropped)
        if counts != self._sent:
            self._sent = counts
            line = self.encoding.reply(replies.conflated(*counts))
            self.outbox.push_notice(self.encoding.frame([line]), now_us)

    def check(self) -> None:
        """Assert what is always true of what waits and what was sent."""
        self.outbox.check()
        self.recovery.check()
