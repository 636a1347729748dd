"""The messages of WebSockets as their bytes come: how much is held, and how long is waited.

aiohttp hands a message out when it is whole; what it holds of one that is not is counted here
(`sow.server.net.ws_frame_scanner`) and entered in the budget of requests
(`sow.server.http.read_backpressure`). Who is in the middle of a message is waited for as long as
bytes earn (`sow.server.http.min_rate_timeout`), who says nothing and follows nothing for
`IdleTimeout`. What is said to whoever is given up, and how, is the business of those who carry the
messages out (`sow.server.net.websocket`).
"""

import asyncio
from collections.abc import Callable, Hashable

from sow.core.definitions import Limits
from sow.server.http.min_rate_timeout import MinRateDeadline
from sow.server.http.read_backpressure import INTAKE_TURN_S, ReadBackpressure
from sow.server.net.ws_frame_scanner import FrameScanner

CONTROLS_PER_S = 1_000
"""Pings and pongs that a client may send all the time: each costs some ten microseconds, so this is
a hundredth of a core, and a hundred times as many as anybody needs."""
CONTROLS_AT_ONCE = 10_000
"""So many may come together, after a pause in which the network or the server held them up."""


class MessageMemory:
    """The messages of one WebSocket, as far as they came: a reader of `ReadBackpressure`.

    `client` is whom they count for. `is_following` says whether the client may be silent for as
    long as it likes; `give_up` closes the connection with a reason that the client is told,
    `finish` once what has come is answered.
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
        self._taken = self._done = 0
        self._heard_s = watches.now_s()
        self._patience: MinRateDeadline | None = None
        self._message = 0
        self._has_left = False
        self.received = 0
        """How often bytes have come."""

    # What `ReadBackpressure` asks of a reader.

    def pause(self) -> None:
        """Read no more of it for now."""
        self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._transport.resume_reading()

    def give_up(self, reason: str) -> None:
        """Close the connection, and tell its client why."""
        self._give_up(reason)

    # What comes, and what becomes of it.

    def receive(self, data: bytes) -> int:
        """Bytes have come; returns how many frames have ended in them."""
        self.received += 1
        frames = self._frames
        before = frames.complete + frames.controls
        frames.feed(data)
        if frames.controls != self._controls:
            self._count_controls(frames.controls)
        if frames.complete == self._done:
            self._settle(frames.held)
        else:
            # Some of it waits for being carried out, which is soon; so long all of it counts.
            self._settle(self.holder.held + len(data))
        if frames.held:
            now_s = self._watches.now_s()
            if self._patience is None or self._message != frames.complete:
                self._patience = MinRateDeadline(now_s, self._watches.idle_s())
                self._message = frames.complete
            self._patience.hear(now_s, len(data))
        return frames.complete + frames.controls - before

    def _count_controls(self, controls: int) -> None:
        """Give up a client that sends pings as fast as it can, and read no more of it."""
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

    def take(self) -> None:
        """One more message has been read."""
        self._taken += 1

    def carried_out(self) -> None:
        """All messages that were read have been carried out."""
        self._done = self._taken
        self._heard_s = self._watches.now_s()
        if self._done == self._frames.complete:
            self._settle(self._frames.held)

    @property
    def is_idle(self) -> bool:
        """All messages that have come have been carried out."""
        return self._done == self._frames.complete

    @property
    def listens(self) -> bool:
        """Whether what comes is read: what came before is carried out, and there is room."""
        return self.is_idle and self not in self._watches.intake.waiting

    def hear_end(self) -> None:
        """The client will send no more, and may still read."""
        self._finish()

    def leave(self) -> None:
        """The connection has gone, and holds nothing any more.

        What it has brought whole may be carried out after that, beside the half of a message that
        nobody will end.
        """
        self._has_left = True
        self._watches.intake.leave(self)

    def _settle(self, held: int) -> None:
        frames = self._frames
        if not self._has_left and (held or self.holder.held):
            message = frames.complete if frames.held else None
            self._watches.settle(self, held, message)

    # Time.

    def due_s(self) -> float | None:
        """When it is enough: of a silence, or of a message that does not come to its end."""
        frames = self._frames
        if self._done != frames.complete or self in self._watches.intake.waiting:
            return None
        if frames.held and self._patience is not None:
            return self._patience.until_s
        if frames.pings != self._pings:
            self._pings, self._heard_s = frames.pings, self._watches.now_s()
        return None if self._is_following() else self._heard_s + self._watches.idle_s()

    def end_silence(self) -> None:
        """It was enough."""
        if self._frames.held:
            self.give_up("a message has not come to its end (Limits/IdleTimeout)")
        else:
            self.give_up(
                f"nothing was asked and nothing followed for {self._watches.idle_s():g} s "
                "(Limits/IdleTimeout); send a heartbeat now and then to stay"
            )


class MessageMemories:
    """Those of one server: its `intake`, which gets its turns as long as somebody waits.

    `limits` says how they stand now.
    """

    def __init__(self, intake: ReadBackpressure, limits: Callable[[], Limits]) -> None:
        self.intake = intake
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._turning: asyncio.TimerHandle | None = None

    def now_s(self) -> float:
        """The present moment, in seconds of the loop's own count."""
        return self._loop.time()

    def idle_s(self) -> float:
        """For how many seconds a client may be silent."""
        return self._limits().idle_timeout_us / 1e6

    def settle(self, watch: MessageMemory, held: int, message: int | None) -> None:
        """A WebSocket holds `held` bytes; others may have to wait for it, or it for others.

        `message` is the number of the message that it is in the middle of, or None.
        """
        self.intake.settle(watch, held, message, self.now_s())
        if self.intake.waiting and self._turning is None:
            self._turning = self._loop.call_later(INTAKE_TURN_S, self._turn)

    def _turn(self) -> None:
        more = self.intake.turn(self.now_s())
        self._turning = self._loop.call_later(INTAKE_TURN_S, self._turn) if more else None

    def close(self) -> None:
        """The server stops."""
        if self._turning is not None:
            self._turning.cancel()
