"""aiohttp's protocol of one connection, with problem documents and a tap on WebSocket bytes.

What is not HTTP gets a problem document like every other error. Once a connection is a WebSocket,
aiohttp reads its bytes with a parser that it sets here: first what arrived together with the
request, then everything else. That is the place to tap them, since below it nobody knows where the
request ends.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakMethod

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sow.errors import ClientError, SowError, clipped
from sow.server.http.responses import problem
from sow.server.net.ws_memory_accounting import BadFrame

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
