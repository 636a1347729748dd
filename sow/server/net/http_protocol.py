"""aiohttp's side of one connection: HTTP in its last words, and WebSockets overheard.

What is no HTTP is refused with a problem document like everything else. Once a connection has
become a WebSocket, aiohttp has its bytes read by a parser that it sets here: what came together
with the request first, then everything else. That is the place to overhear them, since below it
nobody can tell where the request ends.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakMethod

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sow.errors import ClientError, SowError, clipped
from sow.server.http.problems import problem
from sow.server.net.ws_frame_scanner import BadFrame

CLIENT_FAULTS = (HttpProcessingError, web.RequestPayloadError, ConnectionError, TimeoutError)

Receive = Callable[[bytes], int]
"""Hears bytes that have come, and says how many frames ended in them."""

PIECE_BYTES = 8 * 1024
"""What is read at once where frames are many: a thousand of them, in two milliseconds."""
FRAMES_AT_ONCE = 300
"""Frames of one client that are read at once; of more a piece, before others have a turn: a read of
the socket may bring 40,000 pings."""


NO_FRAME = b"\xff" * 10
"""What aiohttp's reader takes for a mistake of the client, also after the first byte of a frame:
reserved bits, or a length of 2**64 bytes. No frame has more bytes before its mask."""


class ClientFaults(logging.Filter):
    """Keeps what a client did wrong out of the log of what went wrong here."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for connections that broke and requests that were no HTTP."""
        fault = record.exc_info[1] if record.exc_info else None
        return not isinstance(fault, CLIENT_FAULTS)


http_log = logging.getLogger("sow.http")
http_log.addFilter(ClientFaults())
# It warns of whoever asks for a subprotocol, with all that was asked for.
logging.getLogger("aiohttp.websocket").setLevel(logging.ERROR)


class TappedParser:
    """A parser of aiohttp's, whose bytes all `listeners` hear as they come. It reads them at once
    where there are few frames in them, and else a piece in each round of the loop. Where a listener
    refuses a frame (`BadFrame`), it reads what came before, and then a mistake."""

    __slots__ = ("_has_ended", "_is_refused", "_listeners", "_parser", "_rest")

    def __init__(self, parser: Any, listeners: Sequence[Receive]) -> None:
        self._parser = parser
        self._listeners = listeners
        self._rest = b""
        self._has_ended = False
        self._is_refused = False

    def feed_data(self, data: bytes) -> Any:
        """The next bytes; returns what the parser makes of those that it reads now."""
        if self._is_refused:
            return True, b""  # nobody reads what comes after a mistake
        try:
            frames = max([receive(data) for receive in self._listeners], default=0)
        except BadFrame as refused:
            # How many frames came before is not known.
            self._is_refused, frames = True, FRAMES_AT_ONCE + 1
            data = data[: refused.good] + NO_FRAME
        if self._rest:
            self._rest += data
            return False, b""
        return self._read(data, PIECE_BYTES if frames > FRAMES_AT_ONCE else len(data))

    def _read(self, data: bytes, size_bytes: int) -> Any:
        made = self._parser.feed_data(data[:size_bytes])
        # After a mistake nobody reads what is left.
        self._rest = b"" if made[0] else data[size_bytes:]
        if self._rest:
            asyncio.get_running_loop().call_soon(self._go_on)
        elif self._has_ended:
            self._parser.feed_eof()
        return made

    def _go_on(self) -> None:
        self._read(self._rest, PIECE_BYTES)

    def feed_eof(self) -> None:
        """There will be no more: that is said when all that came before has been read."""
        if self._rest:
            self._has_ended = True
        else:
            self._parser.feed_eof()


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Calls a method as long as its object lives, and does not keep it alive: aiohttp's WebSocket
    knows its connection, which would know it for ever, in a circle."""
    found = WeakMethod(method)

    def call() -> None:
        if (method := found()) is not None:
            method()

    return call


class HttpProtocol(web.RequestHandler):
    """What speaks HTTP on one connection, and WebSocket after that."""

    __slots__ = ("_listeners",)

    def __init__(self, manager: web.Server, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._listeners: list[Receive] = []

    def overhear(self, receive: Receive) -> None:
        """Give every byte that comes after the request of a WebSocket to `receive`, too."""
        self._listeners.append(receive)

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """What comes from here on is no HTTP; aiohttp calls this, and `parser` reads it."""
        heard = None if data_received_cb is None else _weakly(data_received_cb)
        super().set_parser(TappedParser(parser, self._listeners), heard)  # type: ignore[arg-type]

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket has gone, and nobody listens any more."""
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

        Its sentence repeats little of what was sent, which stands in `message`. Raises `exc` if an
        answer has begun already.
        """
        super().handle_error(request, status, exc, message)  # logs; raises if it is too late
        error: SowError = SowError("the server failed on this request; its log says why")
        if status < 500:
            # What stands in the lines after the first is what was sent.
            said = (message or "").split("\n")[0].rstrip(": ")
            error = ClientError(f"the request is not HTTP: {clipped(said)}")
        response = problem(error)
        response.force_close()
        return response
