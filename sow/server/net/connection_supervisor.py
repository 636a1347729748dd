"""A connection from being accepted to its end: for how long it is kept, how much of it is read.

aiohttp speaks HTTP and WebSocket; between it and the socket stands a `SupervisedProtocol`, through
which all that asyncio says of the socket passes. It closes connections that are silent for too
long, or in the middle of a header (`sow.server.http.idle_timeout`;
`sow.server.net.ws_memory_accounting` for WebSockets), and knows whether the socket takes more
(`sow.server.net.transport_writable`). A client that closes its sending side after its requests is
answered before the connection is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import StreamReader, web

from sow.core.definitions import Limits
from sow.errors import Busy
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.idle_timeout import IdleTimer
from sow.server.http.middleware import client_address
from sow.server.http.problems import raw_answer
from sow.server.http.read_backpressure import ReadBackpressure
from sow.server.http.request_memory import TooSlow, client_key
from sow.server.net.http_protocol import HttpProtocol
from sow.server.net.transport_writable import TransportWritable
from sow.server.net.ws_memory_accounting import MessageMemories, MessageMemory

LINGER_S = 0.1
"""How long after the last answer a connection is closed whose client sends no more: a request that
came together with it has begun by then."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """All connections of one server. `make` gives what speaks HTTP on one of them.

    `crowd` counts them, `intake` says which WebSockets are read, `limits` how the limits stand now.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        crowd: ConnectionLimiter,
        intake: ReadBackpressure,
        limits: Callable[[], Limits],
    ) -> None:
        self._make = make
        self.crowd = crowd
        self.limits = limits
        self.watches = MessageMemories(intake, limits)

    def watched(self, address: str) -> "SupervisedProtocol":
        """The protocol of a connection that was let in."""
        return SupervisedProtocol(self, self._make(), address)

    def close(self) -> None:
        """The server stops."""
        self.watches.close()


class SupervisedProtocol(asyncio.Protocol):
    """One connection of `all_of_them`, between its transport and aiohttp's protocol (`inner`).

    `address` is that of its peer.
    """

    def __init__(self, all_of_them: Connections, inner: asyncio.Protocol, address: str) -> None:
        self._all = all_of_them
        self._inner = inner
        self.address = address
        self.flow = TransportWritable()
        """Whether the socket takes more."""
        self.transport: asyncio.Transport
        """The socket, once it is open."""
        self._loop = asyncio.get_running_loop()
        self._silence = IdleTimer(self._loop.time())
        self._messages: MessageMemory | None = None
        self._unsent = 0
        self._content: StreamReader | None = None
        self._is_half_closed = self._ends_with_client = self._is_encrypted = False
        self._timer: asyncio.TimerHandle
        self._socket_transport: asyncio.BaseTransport

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # That of a socket reads and writes, of whichever loop it is.
        self.transport = cast(asyncio.Transport, transport)
        # Asked now: one that is closed says nothing of itself any more.
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._socket_transport = _below_tls(transport)
        self._timer = self._loop.call_later(0, self._look)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if not self._silence.requests:
            self._silence.hear(self._loop.time())
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client will send no more: true if it is answered before the connection closes."""
        self._inner.eof_received()
        if self._messages is not None:
            self._messages.hear_end()
        if self._is_encrypted:
            return False  # TLS has no half: who ends his side has ended the connection
        if self._messages is not None:
            return True
        ends = self._ends_with_client or self._lacks_body
        if ends or not self._silence.asks:
            return False
        self._is_half_closed = True
        self._close_soon()
        return True

    def _close_soon(self) -> None:
        """Close when all is answered that was asked; what was sent last may be about to begin."""
        self._loop.call_later(LINGER_S, self._close_answered)

    def _close_answered(self) -> None:
        if not self._silence.requests or self._lacks_body:
            self.transport.close()

    @property
    def _lacks_body(self) -> bool:
        """A request is carried out whose body has not come."""
        return self._content is not None and not self._content.is_eof()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self.flow.pause()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """It takes more again."""
        self._inner.resume_writing()
        self.flow.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket has gone."""
        self._timer.cancel()
        self._all.crowd.leave(self.address)
        if self._messages is not None:
            self._messages.leave()
        self._inner.connection_lost(error)
        _break_circle(self._socket_transport)

    # What requests tell.

    def begin(self, content: StreamReader | None = None) -> None:
        """A request is carried out, whose body is `content`."""
        self._content = content
        self._silence.begin()

    def end(self) -> None:
        """It was carried out."""
        self._silence.end(self._loop.time())
        self._content = None
        if self._is_half_closed:
            self._close_soon()

    def end_with_client(self) -> None:
        """Its answer has no end: who sends no more is taken to have gone."""
        self._ends_with_client = True

    def follow_messages(
        self,
        request: web.Request,
        is_following: Callable[[], bool],
        give_up: Callable[[str], None],
        finish: Callable[[], None],
    ) -> MessageMemory:
        """From now on the connection is that of the WebSocket which `request` asks for.

        `is_following`, `give_up` and `finish` are those of `MessageMemory`.
        """
        watch = MessageMemory(
            self._all.watches, self.transport, client_key(request), is_following, give_up, finish
        )
        assert isinstance(request.protocol, HttpProtocol)
        request.protocol.overhear(watch.receive)
        self._messages = watch
        if self._is_half_closed:
            watch.hear_end()  # it has sent all that it will together with its request
        return watch

    # Time.

    def _look(self) -> None:
        now_s, limits = self._loop.time(), self._all.limits()
        # As often as headers may take, none is noticed late: what begins now is due after that.
        next_s = now_s + min(limits.header_timeout_us, limits.idle_timeout_us) / 1e6
        due_s = self._silence.due_s(limits)
        if self._messages is not None:
            due_s = self._messages.due_s()
        if due_s is not None and due_s <= now_s:
            if not self._close(now_s, limits):
                return
            due_s = None
        self._timer = self._loop.call_at(min(next_s, due_s or next_s), self._look)

    def _close(self, now_s: float, limits: Limits) -> bool:
        """It is enough; False if it is over with the connection."""
        if self._messages is not None:
            self._messages.end_silence()
            return True  # the client is told why, and then the connection closes
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            # Still reading the last answer.
            self._unsent = unsent
            self._silence.rest(now_s)
            return True
        if unsent:
            self.transport.abort()
            return False
        if self._silence.header_since_s is not None:
            timeout_s = limits.header_timeout_us / 1e6
            said = f"the header did not end within {timeout_s:g} s (Limits/HeaderTimeout)"
            self.transport.write(raw_answer(TooSlow(said)))
        self.transport.close()
        return False


def supervised(request: web.Request) -> SupervisedProtocol:
    """The connection of a request; raises ConnectionResetError if it has gone."""
    if request.transport is None:
        raise ConnectionResetError("the client has gone")
    protocol = request.transport.get_protocol()
    assert isinstance(protocol, SupervisedProtocol)
    return protocol


class Counted:
    """Counts requests as they are carried out."""

    def __init__(self, crowd: ConnectionLimiter) -> None:
        self._crowd = crowd

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note when a request begins and ends, and for whom a proxy asks; raises Busy."""
        connection = supervised(request)
        peer, client = connection.address, client_address(request)
        connection.begin(request.content)
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


def _below_tls(transport: asyncio.BaseTransport) -> asyncio.BaseTransport:
    """What has the socket: where it is encrypted, asyncio's transport stands upon another one."""
    return getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)


def _break_circle(transport: asyncio.BaseTransport) -> None:
    """Let go of the method of its own that a transport of asyncio holds, to read with, when it has
    gone: otherwise it stays, and a kilobyte with it, until the collector finds it, which does not
    look through what has been there for long (`sow.server.loop.gc_pacing`). Others hold none."""
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)
