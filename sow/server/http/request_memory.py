"""Memory accounting of requests, and reading of their bodies.

A body is read in pieces, decompressed in small steps, and accounted as it grows: one that is too
large, or for which there is no room, is refused before all of it has arrived. A request's memory is
released when it has been answered, whatever the outcome.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from aiohttp import hdrs, web

from sow.core.definitions import Limits
from sow.core.origin_parsing import is_loopback
from sow.core.quota import Quota, QuotaHolder
from sow.errors import Busy, ClientError, TooLarge
from sow.server.http.decompression import inflater
from sow.server.http.expectations import send_continue
from sow.server.http.middleware import client_address
from sow.server.http.read_backpressure import FREE_BYTES
from sow.server.http.timeouts import BYTES_PER_S_MIN, MinRateDeadline

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONG_BYTES = 1024 * 1024
"""A body longer than this is joined in a thread: it would block the loop for a millisecond or more,
and Python releases its lock for it."""

HELD = web.RequestKey("held", QuotaHolder)


class TooSlow(ClientError):
    """A body that does not arrive, or too slowly ever to end."""

    reason = "too slow"
    status = 408


class Requests:
    """The memory of one server's requests; `limits` returns the current limits."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self.budget = Quota(lambda: limits().request_bytes_max)
        self.answers = Quota(lambda: limits().request_bytes_max)
        """What unsent answers hold (`sow.server.http.chunked_response`): as much again, so that
        clients that do not read cannot block publishers."""

    @web.middleware
    async def hold(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Release a request's memory once it has been answered."""
        try:
            return await handler(request)
        finally:
            if HELD in request:
                request[HELD].release()

    async def read(self, request: web.Request) -> bytes:
        """The decompressed body.

        Sends `100 Continue` to a client that waits for it. Raises TooLarge, Busy, TooSlow,
        ClientError.
        """
        limits = self._limits()
        if (request.content_length or 0) > limits.frame_bytes_max:
            raise _too_large(limits)
        holder = request[HELD] = self.budget.holder(client_key(request))
        pieces: list[bytes] = []
        async for piece in _plain(request, limits):
            if holder.held + len(piece) > limits.frame_bytes_max:
                raise _too_large(limits)
            held = holder.held + len(piece)
            if held > FREE_BYTES and (lack := holder.lack(len(piece))) is not None:
                raise Busy(
                    f"{lack}, while requests are read (Limits/RequestMemory): send this again in a "
                    "moment, or less at once"
                )
            holder.add(len(piece))
            pieces.append(piece)
        if holder.held < LONG_BYTES:
            return b"".join(pieces)
        return await asyncio.to_thread(b"".join, pieces)


def _too_large(limits: Limits) -> TooLarge:
    return TooLarge(
        f"the body is over the limit of {limits.frame_bytes_max} bytes (Limits/FrameSize)"
    )


REQUESTS = web.AppKey("requests", Requests)


async def read_body(request: web.Request) -> bytes:
    """The body of a request, read within the limits of its server; see `Requests.read`."""
    return await request.app[REQUESTS].read(request)


async def _plain(request: web.Request, limits: Limits) -> AsyncIterator[bytes]:
    """The decompressed pieces of a body."""
    inflate = inflater(request.headers.get(hdrs.CONTENT_ENCODING, ""))
    await send_continue(request)
    received = 0
    async for data in _received(request, limits.idle_timeout_us / 1e6):
        if inflate is None:
            yield data
            continue
        received += len(data)
        if received > limits.frame_bytes_max:
            raise _too_large(limits)  # compressed bytes that expand to nothing need not end
        for piece in inflate.feed(data):
            if piece:
                yield piece
            await asyncio.sleep(0)  # other work runs between two steps
    if inflate is not None:
        for piece in inflate.finish():
            yield piece


async def _received(request: web.Request, idle_s: float) -> AsyncIterator[bytes]:
    """The pieces of a body as they arrive."""
    clock = asyncio.get_running_loop().time
    deadline = MinRateDeadline(clock(), idle_s)
    content = request.content
    while not content.at_eof():
        try:
            async with asyncio.timeout_at(deadline.until_s):
                data = await content.readany()
        except TimeoutError:
            raise TooSlow(
                f"the body has not come: nothing for {idle_s:g} s (Limits/IdleTimeout), or less "
                f"than {BYTES_PER_S_MIN} bytes a second for longer"
            ) from None
        deadline.on_bytes(clock(), len(data))
        if data:
            yield data


def client_key(request: web.Request) -> Hashable:
    """The client that a request's memory counts for: an address or, for programs on this machine, a
    connection."""
    address = client_address(request)
    return request.protocol if not address or is_loopback(address) else address
