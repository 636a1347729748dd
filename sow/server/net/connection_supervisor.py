"""A connection from accept to close: how long it is kept, and whether it is read.

aiohttp implements HTTP and WebSocket; a `SupervisedProtocol` stands between it and the socket and
sees all callbacks of asyncio. It closes connections that are idle for too long, or in the middle of
a header (`sow.server.http.connections`; `sow.server.net.ws_memory_accounting` for
WebSockets), and tracks whether the socket accepts more (`TransportWritable`). A client that closes
its sending side after its requests gets its answers before the connection is closed.

`HttpProtocol` is aiohttp's protocol of one connection. What is not HTTP gets a problem document
like every other error. Once a connection is a WebSocket, aiohttp reads its bytes with a parser that
it sets here: first what arrived together with the request, then everything else. That is the place
to tap them, since below it nobody knows where the request ends.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from weakref import WeakMethod

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from sow.core.definitions import Limits
from sow.errors import Busy, ClientError, SowError, clipped
from sow.server.http.body_reading import ReadBackpressure, TooSlow, client_key
from sow.server.http.connections import ConnectionLimiter, IdleTimer
from sow.server.http.request_origin import client_address
from sow.server.http.responses import problem, raw_answer
from sow.server.net.ws_memory_accounting import BadFrame, MessageMemories, MessageMemory

CLIENT_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError, TimeoutError)

Receive = Callable[[bytes, bool], tuple[bytes, int]]
"""Gets received bytes, and whether all earlier ones are parsed; returns those that are to be
parsed, and how many frames ended in them."""

FRAMES_AT_ONCE = 300
"""Frames of one client that are parsed at once; more are parsed in pieces of about so many, with
other work in between: a read of the socket may bring 40,000 pings."""
PIECE_BYTES = 8 * 1024
"""A piece is as long at least: a thousand of the shortest frames, in two milliseconds."""


NO_FRAME = b"\xff" * 2
"""Bytes that aiohttp's parser rejects where a frame begins: reserved bits."""


class ClientFaults(logging.Filter):
    """Keeps errors of clients out of the log of server errors."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for broken connections and requests that are not HTTP."""
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, CLIENT_FAULTS)


http_log = logging.getLogger("sow.http")
http_log.addFilter(ClientFaults())
# It warns of unsupported subprotocols, with all that the client sent.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


class TappedParser:
    """A parser of aiohttp whose input all `listeners` get as it arrives, each what the one before
    it has left. It is parsed at once if it has few frames, else a piece in each iteration of the
    loop. If a listener rejects a frame (`BadFrame`), the parser gets what came before, and then
    invalid bytes; after an error nobody gets anything."""

    __slots__ = ("_has_ended", "_is_refused", "_listeners", "_parser", "_piece_bytes", "_rest")

    def __init__(self, parser: Any, listeners: Sequence[Receive]) -> None:
        self._parser = parser
        self._listeners = listeners
        self._rest = b""
        self._piece_bytes = 0
        self._has_ended = False
        self._is_refused = False

    def feed_data(self, data: bytes) -> Any:
        """The next bytes; returns the parser's result for those that are parsed now."""
        if self._is_refused:
            return True, b""  # nothing is parsed after an error
        frames, is_refused = 0, False
        try:
            for receive in self._listeners:
                data, frames = receive(data, not self._rest)
        except BadFrame as refused:
            data, is_refused = refused.good + NO_FRAME, True
            frames = len(data)  # it is not known, and no frame is shorter than a byte
        piece_bytes = max(PIECE_BYTES, len(data) * FRAMES_AT_ONCE // (frames or 1))
        made: Any = False, b""
        if self._rest:
            self._rest += data
            self._piece_bytes = min(self._piece_bytes, piece_bytes)
        elif data:
            self._piece_bytes = piece_bytes
            made = self._read(data)
        self._is_refused |= is_refused
        return made

    def _read(self, data: bytes) -> Any:
        made = self._parser.feed_data(data[: self._piece_bytes])
        self._is_refused |= made[0]
        # After an error the rest is dropped.
        self._rest = b"" if made[0] else data[self._piece_bytes :]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif self._has_ended:
            self._parser.feed_eof()
        return made

    def _go_on(self) -> None:
        self._read(self._rest)

    def feed_eof(self) -> None:
        """End of input: passed on when everything before has been parsed."""
        if self._rest:
            self._has_ended = True
        else:
            self._parser.feed_eof()


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Calls a method through a weak reference: aiohttp's WebSocket refers to its connection, which
    would refer back to it, a cycle."""
    found = WeakMethod(method)

    def call() -> None:
        if (method := found()) is not None:
            method()

    return call


class HttpProtocol(web.RequestHandler):
    """The protocol of one connection: HTTP, and WebSocket after that."""

    __slots__ = ("_listeners",)

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._listeners: list[Receive] = []

    @property
    def has_requests(self) -> bool:
        """Whether a request has arrived whose answer has not ended. aiohttp takes requests from
        its queue one by one, and waits when the queue is empty."""
        return self._waiter is None or bool(self._messages)

    @property
    def has_queued(self) -> bool:
        """Whether a request has arrived that aiohttp has not taken from its queue."""
        return bool(self._messages)

    def tap(self, receive: Receive) -> None:
        """Pass every byte after the request of a WebSocket to `receive` first."""
        self._listeners.append(receive)

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """The following bytes are not HTTP; aiohttp calls this, and `parser` parses them."""
        on_data = None if data_received_cb is None else _weakly(data_received_cb)
        super().set_parser(TappedParser(parser, self._listeners), on_data)  # type: ignore[arg-type]

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is closed."""
        super().connection_lost(exc)
        self._listeners.clear()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The last answer of a connection, with this HTTP `status`; aiohttp calls it.

        It repeats little of the client's bytes, which `message` has. Raises `exc` if an answer has
        begun already.
        """
        super().handle_error(request, status, exc, message)  # logs; raises if it is too late
        error: SowError = SowError("the server failed on this request; its log says why")
        if status < 500:
            # The lines after the first are what was sent.
            reason = (message or "").split("\n")[0].rstrip(": ")
            error = ClientError(f"the request is not HTTP: {clipped(reason)}")
        response = problem(error)
        response.force_close()
        return response


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
        if self._idle_timer.requests:
            self._inner.data_received(data)
            return
        now_s = self._loop.time()
        self._idle_timer.on_bytes(now_s)
        self._inner.data_received(data)
        # What a busy server begins late has arrived in time.
        if self._inner.has_queued:
            self._idle_timer.on_header(now_s)

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
    (`sow.server.loop.background_work`). Other transports have none."""
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)
