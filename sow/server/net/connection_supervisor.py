"""A connection from accept to close: how long it is kept, and whether it is read.

aiohttp implements HTTP and WebSocket; a `SupervisedProtocol` stands between it and the socket and
sees all callbacks of asyncio. It closes connections that are idle for too long, or in the middle of
a header (`sow.server.http.connection_limits`; `sow.server.net.ws_memory_accounting` for
WebSockets), and tracks whether the socket accepts more (`TransportWritable`). A client that closes
its sending side after its requests gets its answers before the connection is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from aiohttp import StreamReader, web

from sow.core.definitions import Limits
from sow.errors import Busy
from sow.server.http.body_reading import TooSlow, client_key
from sow.server.http.connection_limits import ConnectionLimiter, IdleTimer
from sow.server.http.read_backpressure import ReadBackpressure
from sow.server.http.request_origin import client_address
from sow.server.http.responses import raw_answer
from sow.server.net.http_protocol import HttpProtocol
from sow.server.net.ws_memory_accounting import MessageMemories, MessageMemory

Resumed = Callable[[], None]


class TransportWritable:
    """The writing side of one connection."""

    __slots__ = ("_waiting", "paused")

    def __init__(self) -> None:
        self.paused = False
        """The buffer is full: more would only make it longer."""
        self._waiting: dict[Resumed, None] = {}

    def pause(self) -> None:
        """The buffer is full."""
        self.paused = True

    def resume(self) -> None:
        """The buffer has drained: all waiting callbacks are called, in order."""
        self.paused = False
        waiting, self._waiting = self._waiting, {}
        for resumed in waiting:
            resumed()

    def wait(self, resumed: Resumed) -> None:
        """Call `resumed` once, when the buffer has drained; never, if the socket is closed
        before."""
        self._waiting.setdefault(resumed)

    def forget(self, resumed: Resumed) -> None:
        """Cancel `wait(resumed)`."""
        self._waiting.pop(resumed, None)


LINGER_S = 0.1
"""Delay of closing after the last answer to a client that sends no more, and of looking again while
a request that arrived together with it waits for its turn."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """All connections of one server. `make` creates the HTTP protocol of a connection.

    `crowd` counts them, `intake` pauses WebSockets, `limits` returns the current limits.
    """

    def __init__(
        self,
        make: Callable[[], HttpProtocol],
        crowd: ConnectionLimiter,
        intake: ReadBackpressure,
        limits: Callable[[], Limits],
    ) -> None:
        self._make = make
        self.crowd = crowd
        self.limits = limits
        self.watches = MessageMemories(intake, limits)

    def supervise(self, address: str) -> "SupervisedProtocol":
        """The protocol of an accepted connection."""
        return SupervisedProtocol(self, self._make(), address)

    def close(self) -> None:
        """The server stops."""
        self.watches.close()


class SupervisedProtocol(asyncio.Protocol):
    """One connection of `connections`, between its transport and aiohttp's protocol (`inner`).

    `address` is the peer's.
    """

    def __init__(self, connections: Connections, inner: HttpProtocol, address: str) -> None:
        self._connections = connections
        self._inner = inner
        self.address = address
        self.flow = TransportWritable()
        """Whether the socket accepts more."""
        self.transport: asyncio.Transport
        """The transport, once it is open."""
        self._loop = asyncio.get_running_loop()
        self._idle_timer = IdleTimer(self._loop.time())
        self._messages: MessageMemory | None = None
        self._unsent = 0
        self._content: StreamReader | None = None
        self._is_half_closed = self._ends_with_client = self._is_encrypted = False
        self._timer: asyncio.TimerHandle
        self._socket_transport: asyncio.BaseTransport

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        # Transports of sockets read and write, in every loop.
        self.transport = cast(asyncio.Transport, transport)
        # Queried now: a closed transport reports nothing.
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._socket_transport = _below_tls(transport)
        self._check()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if not self._idle_timer.requests:
            self._idle_timer.on_bytes(self._loop.time())
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more; returns true if it gets answers before the connection is
        closed."""
        self._inner.eof_received()
        if self._messages is not None:
            self._messages.on_eof()
        if self._is_encrypted:
            return False  # TLS has no half-closed state
        if self._messages is not None:
            return True
        ends = self._ends_with_client or self._lacks_body
        if ends or not self._inner.has_requests:
            return False
        self._is_half_closed = True
        self._close_soon()
        return True

    def _close_soon(self) -> None:
        self._loop.call_later(LINGER_S, self._close_answered)

    def _close_answered(self) -> None:
        """Close after the last answer. `end` calls this again after a request that is under way."""
        if self._lacks_body or not self._inner.has_requests:
            self.transport.close()
        elif not self._idle_timer.requests and not self.transport.is_closing():
            self._close_soon()

    @property
    def _lacks_body(self) -> bool:
        """A request is under way whose body is incomplete."""
        return self._content is not None and not self._content.is_eof()

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self.flow.pause()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The transport accepts more again."""
        self._inner.resume_writing()
        self.flow.resume()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._timer.cancel()
        self._connections.crowd.release_connection(self.address)
        if self._messages is not None:
            self._messages.close()
        self._inner.connection_lost(error)
        _break_circle(self._socket_transport)

    # What requests report.

    def begin(self, content: StreamReader | None = None) -> None:
        """A request begins, with the body `content`."""
        self._content = content
        self._idle_timer.begin()

    def end(self) -> None:
        """It has ended."""
        self._idle_timer.end(self._loop.time())
        self._content, self._ends_with_client = None, False
        if self._is_half_closed:
            self._close_soon()

    def end_with_client(self) -> None:
        """Its answer has no end, or takes long: a client that sends no more is considered
        disconnected."""
        self._ends_with_client = True

    def follow_messages(
        self,
        request: web.Request,
        is_following: Callable[[], bool],
        give_up: Callable[[str], None],
        finish: Callable[[], None],
    ) -> MessageMemory:
        """Track the messages of the WebSocket that `request` opens.

        `is_following`, `give_up` and `finish` are those of `MessageMemory`.
        """
        watch = MessageMemory(
            self._connections.watches,
            self.transport,
            client_key(request),
            is_following,
            give_up,
            finish,
        )
        assert isinstance(request.protocol, HttpProtocol)
        request.protocol.tap(watch.receive)
        self._messages = watch
        if self._is_half_closed:
            watch.on_eof()  # the client has sent everything together with its request
        return watch

    # Time.

    def _check(self) -> None:
        now_s, limits = self._loop.time(), self._connections.limits()
        # Check as often as a header may take, so none is noticed late.
        next_s = now_s + min(limits.header_timeout_us, limits.idle_timeout_us) / 1e6
        due_s = self._idle_timer.due_s(limits)
        if self._messages is not None:
            due_s = self._messages.due_s()
        if due_s is not None and due_s <= now_s:
            if not self._close(now_s, limits):
                return
            due_s = None
        self._timer = self._loop.call_at(min(next_s, due_s or next_s), self._check)

    def _close(self, now_s: float, limits: Limits) -> bool:
        """Close the connection after a timeout; returns False if the connection is over."""
        if self._messages is not None:
            self._messages.on_timeout()
            return True  # the client gets the reason, and then the connection is closed
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            # The client is still reading the last answer.
            self._unsent = unsent
            self._idle_timer.restart(now_s)
            return True
        if unsent:
            self.transport.abort()
            return False
        if self._idle_timer.header_since_s is not None:
            timeout_s = limits.header_timeout_us / 1e6
            detail = f"the header did not end within {timeout_s:g} s (Limits/HeaderTimeout)"
            self.transport.write(raw_answer(TooSlow(detail)))
        self.transport.close()
        return False


def end_with_client(request: web.Request) -> None:
    """Cancel a request that takes long when its client sends no more."""
    protocol = request.transport and request.transport.get_protocol()
    if isinstance(protocol, SupervisedProtocol):
        protocol.end_with_client()


def supervised(request: web.Request) -> SupervisedProtocol:
    """The connection of a request; raises ConnectionResetError if it is closed."""
    # An encrypted connection that is lost has no protocol, and aiohttp hears of it a turn later.
    protocol = request.transport and request.transport.get_protocol()
    if protocol is None:
        raise ConnectionResetError("the client has disconnected")
    assert isinstance(protocol, SupervisedProtocol)
    return protocol


class RequestCounter:
    """Middleware that counts requests."""

    def __init__(self, crowd: ConnectionLimiter) -> None:
        self._crowd = crowd

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Report when a request begins and ends, and count proxied clients; raises Busy."""
        connection = supervised(request)
        peer, client = connection.address, client_address(request)
        connection.begin(request.content)
        try:
            if client == peer:
                return await handler(request)
            if (why := self._crowd.acquire(client)) is not None:
                raise Busy(why)
            try:
                return await handler(request)
            finally:
                self._crowd.release(client)
        finally:
            connection.end()


def _below_tls(transport: asyncio.BaseTransport) -> asyncio.BaseTransport:
    """The transport of the socket: asyncio's TLS transport wraps another one."""
    return getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)


def _break_circle(transport: asyncio.BaseTransport) -> None:
    """Remove the bound method for reading that asyncio's closed transport keeps: it would keep the
    transport, a kilobyte, until a run of the collector, which does not look at old objects
    (`sow.server.loop.gc_pacing`). Other transports have none."""
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)
