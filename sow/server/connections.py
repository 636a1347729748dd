"""A connection from being accepted to its end: for how long it is kept, how much of it is read.

aiohttp speaks HTTP and WebSocket; between it and the socket stands a `Watched`, which sees every
byte that comes. It closes connections that are silent for too long, or in the middle of a header
(`sow.server.patience` for what is in the middle of a body or message), and stops reading where
there is no room (`sow.server.intake`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from sow.budget import Holder
from sow.definitions import Limits
from sow.errors import Busy, SowError
from sow.server.crowd import Crowd
from sow.server.gate import client_address
from sow.server.intake import TURN_S, Intake
from sow.server.patience import Patience
from sow.server.problems import problem
from sow.server.requests import TooSlow, client_key
from sow.server.websocket_frames import WebSocketFrames

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Silence:
    """For how long a connection has asked for nothing. Pure."""

    __slots__ = ("_idle_since_s", "header_since_s", "requests")

    def __init__(self, now_s: float) -> None:
        self.requests = 0
        """Requests under way."""
        self.header_since_s: float | None = None
        """Since when a header is under way."""
        self._idle_since_s = now_s

    def hear(self, now_s: float) -> None:
        """Bytes have come."""
        if not self.requests and self.header_since_s is None:
            self.header_since_s = now_s

    def begin(self) -> None:
        """A request has come."""
        self.requests += 1
        self.header_since_s = None

    def end(self, now_s: float) -> None:
        """A request has been carried out."""
        self.requests -= 1
        self.rest(now_s)

    def rest(self, now_s: float) -> None:
        """Time begins anew."""
        self._idle_since_s = now_s

    def due_s(self, limits: Limits) -> float | None:
        """When it is enough; None while something is asked for."""
        if self.requests:
            return None
        if self.header_since_s is not None:
            return self.header_since_s + limits.header_timeout_us / 1e6
        return self._idle_since_s + limits.idle_timeout_us / 1e6


class Connections:
    """All connections of one server. `make` gives what speaks HTTP on one of them."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        crowd: Crowd,
        intake: Intake,
        limits: Callable[[], Limits],
    ) -> None:
        self._make = make
        self.crowd = crowd
        self.intake = intake
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self._turning: asyncio.TimerHandle | None = None

    def watched(self, address: str) -> "Watched":
        """The protocol of a connection that was let in."""
        return Watched(self, self._make(), address)

    def settle(self, reader: "MessageWatch", held: int, message: int | None) -> None:
        """A WebSocket holds so much; others may have to wait for it, or it for others."""
        self.intake.settle(reader, held, message, self.loop.time())
        if self.intake.waiting and self._turning is None:
            self._turning = self.loop.call_later(TURN_S, self._turn)

    def _turn(self) -> None:
        more = self.intake.turn(self.loop.time())
        self._turning = self.loop.call_later(TURN_S, self._turn) if more else None

    def close(self) -> None:
        """The server stops."""
        if self._turning is not None:
            self._turning.cancel()


class Watched(asyncio.Protocol):
    """One connection, between its transport and aiohttp's protocol."""

    def __init__(self, all_of_them: Connections, inner: asyncio.Protocol, address: str) -> None:
        self._all = all_of_them
        self._inner = inner
        self.address = address
        self._loop = all_of_them.loop
        self._silence = Silence(self._loop.time())
        self._messages: MessageWatch | None = None
        self._unsent = 0
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._timer = self._loop.call_later(0, self._look)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._messages is not None:
            self._messages.receive(data)
        elif not self._silence.requests:
            self._silence.hear(self._loop.time())
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client will send no more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It takes more again."""
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket has gone."""
        self._timer.cancel()
        self._all.crowd.leave(self.address)
        if self._messages is not None:
            self._all.intake.leave(self._messages)
        self._inner.connection_lost(error)

    # What requests tell.

    def begin(self) -> None:
        """A request is carried out."""
        self._silence.begin()

    def end(self) -> None:
        """It was carried out."""
        self._silence.end(self._loop.time())

    def follow_messages(
        self,
        request: web.Request,
    ) -> "MessageWatch":
        """From now on the connection is a WebSocket's."""
        holder = self._all.intake.budget.holder(client_key(request))
        self._messages = MessageWatch(self._all, self._transport, holder)
        # What came together with the request is not for HTTP any more, and aiohttp has kept it.
        self._messages.receive(getattr(request.protocol, "_message_tail", b""))
        return self._messages

    # Time.

    def _look(self) -> None:
        now_s, limits = self._loop.time(), self._all.limits()
        # As often as headers may take, none is noticed late: what begins now is due after that.
        next_s = now_s + min(limits.header_timeout_us, limits.idle_timeout_us) / 1e6
        due_s = self._silence.due_s(limits)
        if self._messages is not None:
            due_s = self._messages.due_s(limits.idle_timeout_us / 1e6)
        if due_s is not None and due_s <= now_s:
            if not self._close(now_s, limits):
                return
            due_s = None
        self._timer = self._loop.call_at(min(next_s, due_s or next_s), self._look)

    def _close(self, now_s: float, limits: Limits) -> bool:
        """It is enough; False if it is over with the connection."""
        if self._messages is not None:
            self._messages.end_silence(limits.idle_timeout_us / 1e6)
            return True  # the client is told why, and then the connection closes
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            # Still reading the last answer.
            self._unsent = unsent
            self._silence.rest(now_s)
            return True
        if unsent:
            self._transport.abort()
            return False
        if self._silence.header_since_s is not None:
            timeout_s = limits.header_timeout_us / 1e6
            said = f"the header did not end within {timeout_s:g} s (Limits/HeaderTimeout)"
            self._transport.write(raw_answer(TooSlow(said)))
        self._transport.close()
        return False


class MessageWatch:
    """The messages of one WebSocket, as far as they came: a reader of `Intake`."""

    def __init__(
        self, all_of_them: Connections, transport: asyncio.Transport, holder: Holder
    ) -> None:
        self.holder = holder
        self.is_following: Callable[[], bool] = lambda: True
        """Whether it may be silent."""
        self.give_up: Callable[[str], None] = lambda _reason: transport.abort()
        """Closes it with a reason."""
        self.pause = transport.pause_reading
        self.resume = transport.resume_reading
        self._all = all_of_them
        self._loop = all_of_them.loop
        self._frames = WebSocketFrames()
        self._pings = 0
        self._taken = self._done = 0
        self._heard_s = self._loop.time()
        self._patience: Patience | None = None
        self._message = 0

    def receive(self, data: bytes) -> None:
        """Bytes have come."""
        frames = self._frames
        frames.feed(data)
        if frames.complete == self._done:
            self._settle(frames.held)
        else:
            # Some of it waits for being carried out, which is soon; so long all of it counts.
            self._settle(self.holder.held + len(data))
        if frames.held:
            now_s = self._loop.time()
            if self._patience is None or self._message != frames.complete:
                idle_s = self._all.limits().idle_timeout_us / 1e6
                self._patience, self._message = Patience(now_s, idle_s), frames.complete
            self._patience.hear(now_s, len(data))

    def take(self) -> None:
        """One more message has been read."""
        self._taken += 1

    def carried_out(self) -> None:
        """All messages that were read have been carried out."""
        self._done = self._taken
        self._heard_s = self._loop.time()
        if self._done == self._frames.complete:
            self._settle(self._frames.held)

    def _settle(self, held: int) -> None:
        frames = self._frames
        if held or self.holder.held:
            self._all.settle(self, held, frames.complete if frames.held else None)

    def due_s(self, idle_s: float) -> float | None:
        """When it is enough: of a silence, or of a message that does not come to its end."""
        frames = self._frames
        if self._done != frames.complete or self in self._all.intake.waiting:
            return None
        if frames.held and self._patience is not None:
            return self._patience.until_s
        if frames.pings != self._pings:
            self._pings, self._heard_s = frames.pings, self._loop.time()
        return None if self.is_following() else self._heard_s + idle_s

    def end_silence(self, idle_s: float) -> None:
        """It was enough."""
        if self._frames.held:
            self.give_up("a message has not come to its end (Limits/IdleTimeout)")
        else:
            self.give_up(
                f"nothing was asked and nothing followed for {idle_s:g} s (Limits/IdleTimeout); "
                "send a heartbeat now and then to stay"
            )


def raw_answer(error: SowError) -> bytes:
    """A problem as bytes, for those whose request was never read."""
    response = problem(error)
    body = response.body
    assert isinstance(body, bytes)
    head = [f"HTTP/1.1 {response.status} {response.reason}", "Connection: close"]
    head += [f"{name}: {value}" for name, value in response.headers.items()]
    head += [f"Content-Length: {len(body)}"] if "Content-Length" not in response.headers else []
    return "\r\n".join([*head, "", ""]).encode("ascii") + body


def watched(request: web.Request) -> Watched:
    """The connection of a request; raises ConnectionResetError if it has gone."""
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    protocol = request.transport.get_protocol()
    assert isinstance(protocol, Watched)
    return protocol


class Counted:
    """Counts requests as they are carried out."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note when a request begins and ends, and for whom a proxy asks; raises Busy."""
        connection = watched(request)
        peer, client = connection.address, client_address(request)
        connection.begin()
        try:
            if client == peer:
                return await handler(request)
            if (why := self._crowd.come(client)) is not None:
                raise Busy(why)
            try:
                return await handler(request)
            finally:
                self._crowd.go(client)
        finally:
            connection.end()
