"""Accounting of WebSocket messages as their bytes arrive: memory and timeouts.

aiohttp assembles messages and returns complete ones; how much it holds of an incomplete one cannot
be queried. So frame headers (RFC 6455 §5.2) are parsed here, a few steps a frame (`FrameScanner`),
and the bytes are charged to the quota of requests (`sow.server.http.body_reading`). That also
rejects what aiohttp accepts and RFC 6455 forbids: client frames without a mask (§5.1), messages
that begin within another one (§5.4), and invalid close codes (§7.4).

Most messages are one short frame. While nothing of a client waits in aiohttp, these are taken here
and handed over as they arrive (`MessageMemory.hand_over`), and aiohttp never sees them: through it
each would wait for another iteration of the loop, and cost as much as the rest of its reading.

A message under way has a deadline that its bytes extend (`sow.server.http.connections`); a
client that sends nothing and has no subscription is closed after `IdleTimeout`. How a client is
closed is up to `sow.server.net.websocket`.
"""

import asyncio
from collections.abc import Callable, Hashable

from sow.core.definitions import Limits
from sow.core.inner_loops import INNER_LOOPS
from sow.server.http.body_reading import PAUSED_CHECK_S, ReadBackpressure
from sow.server.http.connections import MinRateDeadline

FINAL, OPCODE = 0x80, 0x0F
CONTROL = 0x8  # and above: frames that are not part of a message
CLOSE, PING = 0x8, 0x9
"""Opcodes of control frames (RFC 6455 §5.5)."""
MASKED, LENGTH = 0x80, 0x7F
MASK_BYTES = 4
"""Size of the mask before the payload (RFC 6455 §5.3)."""
NO_CODE, NORMAL, PROTOCOL_ERROR = 0, 1000, 1002
"""The code of a close frame without one, as aiohttp reports it, and codes of RFC 6455 §7.4.1."""
CLOSE_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
"""Valid close codes: those of RFC 6455 and of IANA's registry, and those for libraries and
applications (RFC 6455 §7.4.2)."""


class BadFrame(Exception):
    """A frame that RFC 6455 forbids; it begins after `good`, a part of the input."""

    def __init__(self, good: bytes) -> None:
        super().__init__()
        self.good = good


def close_answer(code: int) -> int:
    """The close code that answers `code`: the same one (RFC 6455 §5.5.1), or a protocol error for
    an invalid one."""
    if code == NO_CODE:
        return NORMAL
    return code if code in CLOSE_CODES else PROTOCOL_ERROR


SHORT_AT_ONCE = 1_000
"""Short messages that are taken from one read of a socket: a millisecond, as much as is parsed of
others at once."""


class FrameScanner:
    """The state of one client's frames."""

    __slots__ = (
        "_begun", "_first", "_head", "_in_frame", "_kept", "_left", "closes", "complete",
        "controls", "held", "pings",
    )  # fmt: skip

    def __init__(self) -> None:
        self.complete = 0
        """Complete messages."""
        self.pings = 0
        """Pings that the client has sent."""
        self.controls = 0
        """Control frames."""
        self.held = 0
        """Bytes since the last complete message: the part of the next one."""
        self.closes = False
        """A close frame has come."""
        self._kept = b""
        """The beginning of a short message, or the first byte of a frame, which was not fed."""
        self._begun = False
        self._in_frame = False
        self._first = 0
        self._left = 0
        self._head = b""

    @property
    def is_between(self) -> bool:
        """Nothing of a message was fed that is not complete."""
        return self.held == len(self._kept)

    def take(self, data: bytes, bytes_max: int) -> tuple[list[bytes], bytes]:
        """Take messages of one short frame each, of up to `bytes_max`, off the next bytes of the
        connection, while it `is_between` messages; returns them, and the rest, which is to be fed.
        The beginning of another one is kept for the next call."""
        data = self.untaken() + data
        taken, end, is_cut = INNER_LOOPS.frames(data, bytes_max, SHORT_AT_ONCE)
        self.complete += len(taken)
        rest = data[end:]
        if is_cut:
            self._kept, rest = rest, b""
            self.held = len(self._kept)
        return taken, rest

    def untaken(self) -> bytes:
        """Give back what was kept, to be fed before the next bytes."""
        kept = self._kept
        if kept:
            self._kept = b""
            self.held -= len(kept)
        return kept

    def feed(self, data: bytes) -> bytes:
        """The next bytes of the connection; returns those that are to be parsed. The first byte of
        a frame is kept until the next one shows whether it may come at all. Raises BadFrame, after
        which nothing may be fed."""
        fed = data = self.untaken() + data
        self.held += len(data)
        before = len(self._head)
        if before:
            data, self._head = self._head + data, b""
        at, size = self._left, len(data)
        while at <= size:
            if self._in_frame:
                self._in_frame = False
                self._end_frame(size - at)
            if size - at < 2:
                break
            if not data[at + 1] & MASKED or (self._begun and 0 < data[at] & OPCODE < CONTROL):
                raise BadFrame(fed[: max(0, at - before)])
            length, start = data[at + 1] & LENGTH, at + 2
            if length > 125:
                start += 2 if length == 126 else 8
                if start > size:
                    break
                length = int.from_bytes(data[at + 2 : start], "big")
            self._first, self._in_frame = data[at], True
            at = start + MASK_BYTES + length
        if self._in_frame:
            self._left = at - size
            return fed
        self._left, self._head = 0, data[at:]
        if len(self._head) != 1:
            return fed
        self._kept, self._head = self._head, b""
        return fed[:-1]

    def _end_frame(self, rest: int) -> None:
        """A frame is complete, followed by `rest` bytes."""
        opcode = self._first & OPCODE
        if opcode < CONTROL and self._first & FINAL:
            self.complete += 1
            self._begun = False
            self.held = rest
            return
        self._begun |= opcode < CONTROL
        self.pings += opcode == PING
        self.controls += opcode >= CONTROL
        self.closes |= opcode == CLOSE
        if not self._begun:
            self.held = rest  # a control frame between two messages is answered and gone


CONTROLS_PER_S = 1_000
"""Control frames that a client may send all the time: each costs some ten microseconds, so this is
a hundredth of a core, and a hundred times as many as anybody needs."""
CONTROLS_AT_ONCE = 10_000
"""Control frames that may arrive together, after a pause in which the network or the server held
them up."""


class MessageMemory:
    """The received messages of one WebSocket: a reader of `ReadBackpressure`.

    `client` is charged for them. `is_following` returns whether the client may be silent for as
    long as it likes; `give_up` closes the connection with a reason that the client gets, `finish`
    closes it once everything received is answered.
    """

    def __init__(
        self,
        watches: "MessageMemories",
        transport: asyncio.Transport,
        client: Hashable,
        is_following: Callable[[], bool],
        give_up: Callable[[str], None],
        finish: Callable[[], None],
    ) -> None:
        self.holder = watches.intake.budget.holder(client)
        self._watches = watches
        self._transport = transport
        self._is_following = is_following
        self._give_up = give_up
        self._finish = finish
        self._frames = FrameScanner()
        self._pings = self._controls = 0
        self._controls_room = float(CONTROLS_AT_ONCE)
        self._controls_s = watches.now_s()
        self._read = self._done = 0
        self._active_s = watches.now_s()
        self._is_used = False
        """It followed something at the last look."""
        self._deadline: MinRateDeadline | None = None
        self._message = 0
        self._is_closed = False
        self._executed: asyncio.Future[None] | None = None
        self._may_take: Callable[[], bool] = bool  # never, until `hand_over`
        self._take: Callable[[list[bytes]], object] = len
        self.received = 0
        """How often bytes have arrived."""

    # The interface of `ReadBackpressure`.

    def pause(self) -> None:
        """Pause reading."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        self._transport.resume_reading()

    def give_up(self, reason: str) -> None:
        """Close the connection with a reason for its client."""
        self._give_up(reason)

    # Input.

    def hand_over(
        self, may_take: Callable[[], bool], take: Callable[[list[bytes]], object]
    ) -> None:
        """From now on call `take` with short messages as they arrive, while `may_take`."""
        self._may_take, self._take = may_take, take

    def receive(self, data: bytes, is_clear: bool = True) -> tuple[bytes, int]:
        """Bytes have arrived; returns those that are to be parsed, and how many frames ended in
        them. `is_clear`: no earlier ones wait to be parsed."""
        self.received += 1
        frames, came = self._frames, len(data)
        data = self._take_short(data) if is_clear else data
        before = frames.complete + frames.controls
        if data:
            data = frames.feed(data)
        if frames.controls != self._controls:
            self._count_controls(frames.controls)
        if frames.complete == self._done:
            self._settle(frames.held)
        else:
            # Some of it waits for its execution, which is soon; until then all of it counts.
            self._settle(self.holder.held + came)
        if frames.held:
            now_s = self._watches.now_s()
            if self._deadline is None or self._message != frames.complete:
                self._deadline = MinRateDeadline(now_s, self._watches.idle_s())
                self._message = frames.complete
            self._deadline.on_bytes(now_s, came)
        return data, frames.complete + frames.controls - before

    def _take_short(self, data: bytes) -> bytes:
        """Hand over the short messages at the front, unless earlier ones have not been read yet;
        returns the rest."""
        frames = self._frames
        is_read = self._read == frames.complete and frames.is_between and not frames.closes
        if not (is_read and self._may_take()):
            return data
        taken, rest = frames.take(data, self._watches.frame_bytes_max)
        if taken:
            self._read += len(taken)
            self._take(taken)
        return rest

    def _count_controls(self, controls: int) -> None:
        """Close a client that sends pings as fast as it can, and read no more of it."""
        if self._controls_room < 0:
            return
        now_s = self._watches.now_s()
        earned = (now_s - self._controls_s) * CONTROLS_PER_S
        came, self._controls, self._controls_s = controls - self._controls, controls, now_s
        self._controls_room = min(CONTROLS_AT_ONCE, self._controls_room + earned) - came
        if self._controls_room < 0:
            self.pause()
            self.give_up(
                f"over {CONTROLS_PER_S} pings and pongs a second have come for a while; one in "
                "some seconds is enough to keep a connection"
            )

    def on_read(self) -> None:
        """A message has been read."""
        self._read += 1

    def on_executed(self) -> None:
        """All messages that were read have been executed."""
        self._done = self._read
        self._active_s = self._watches.now_s()
        if self._done == self._frames.complete:
            self._settle(self._frames.held)
            if self._executed is not None and not self._executed.done():
                self._executed.set_result(None)

    async def executed(self) -> None:
        """Return when all received messages have been executed."""
        while not self.is_idle:
            self._executed = asyncio.get_running_loop().create_future()
            await self._executed

    @property
    def is_idle(self) -> bool:
        """Whether all received messages have been executed."""
        return self._done == self._frames.complete

    @property
    def is_read(self) -> bool:
        """Whether the socket is read: earlier messages are executed, and there is room."""
        return self.is_idle and self not in self._watches.intake.waiting

    def on_eof(self) -> None:
        """The client sends no more, and may still read."""
        self._finish()

    def close(self) -> None:
        """The connection is closed and holds nothing any more.

        Complete messages may still be executed after that, beside the incomplete one that nobody
        will finish.
        """
        self._is_closed = True
        self._watches.intake.remove(self)

    def _settle(self, held: int) -> None:
        frames = self._frames
        if not self._is_closed and (held or self.holder.held):
            message = frames.complete if frames.held else None
            self._watches.settle(self, held, message)

    # Time.

    def due_s(self) -> float | None:
        """When the connection is to be closed for being idle, or for an incomplete message."""
        frames = self._frames
        if self._done != frames.complete or self in self._watches.intake.waiting:
            return None
        if frames.held and self._deadline is not None:
            return self._deadline.until_s
        if frames.pings != self._pings:
            self._pings, self._active_s = frames.pings, self._watches.now_s()
        was_used, self._is_used = self._is_used, self._is_following()
        if was_used or self._is_used:
            self._active_s = self._watches.now_s()
        return None if self._is_used else self._active_s + self._watches.idle_s()

    def on_timeout(self) -> None:
        """The deadline has passed."""
        if self._frames.held:
            self.give_up("a message has not come to its end (Limits/IdleTimeout)")
        else:
            self.give_up(
                f"no request and no subscription for {self._watches.idle_s():g} s "
                "(Limits/IdleTimeout); send a heartbeat now and then to stay"
            )


class MessageMemories:
    """The accounting of one server: `intake` is checked as long as readers are paused.

    `limits` returns the current limits.
    """

    def __init__(self, intake: ReadBackpressure, limits: Callable[[], Limits]) -> None:
        self.intake = intake
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._check_timer: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """The current time of the loop, in seconds."""
        return self._loop.time()

    def idle_s(self) -> float:
        """How many seconds a client may be idle."""
        return self._limits().idle_timeout_us / 1e6

    @property
    def frame_bytes_max(self) -> int:
        """The longest message."""
        return self._limits().frame_bytes_max

    def settle(self, watch: MessageMemory, held: int, message: int | None) -> None:
        """A WebSocket holds `held` bytes; others may have to wait for it, or it for others.

        `message` is the number of the message that it is in the middle of, or None.
        """
        now_s = 0.0 if message is None else self.now_s()  # mostly no message is under way
        self.intake.settle(watch, held, message, now_s)
        if self.intake.waiting and self._check_timer is None:
            self._check_timer = self._loop.call_later(PAUSED_CHECK_S, self._check)

    def _check(self) -> None:
        more = self.intake.turn(self.now_s())
        self._check_timer = self._loop.call_later(PAUSED_CHECK_S, self._check) if more else None

    def close(self) -> None:
        """The server stops."""
        if self._check_timer is not None:
            self._check_timer.cancel()
