"""What requests hold while they are read, and how their bodies are read.

A body is read piece by piece, inflated in small steps, and counted as it grows: one that is too
large, or for which there is no room beside the others, is refused before it is all there. What a
request holds is given back when it has been answered, whatever became of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from aiohttp import hdrs, web

from sow.core.definitions import Limits
from sow.core.origin_parsing import is_loopback
from sow.core.quota import Quota, QuotaHolder
from sow.errors import Busy, ClientError, TooLarge
from sow.server.http.decompression import inflater
from sow.server.http.expectations import go_on
from sow.server.http.middleware import client_address
from sow.server.http.min_rate_timeout import BYTES_PER_S_MIN, MinRateDeadline
from sow.server.http.read_backpressure import FREE_BYTES

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LONG_BYTES = 1024 * 1024
"""A body so long is put together beside the loop, which it would keep for a millisecond or more;
Python lets go of its lock for it."""

HELD = web.RequestKey("held", QuotaHolder)


class TooSlow(ClientError):
    """A body that does not come, or so slowly that it would never end."""

    reason = "too slow"
    status = 408


class Requests:
    """The memory of the requests of one server; `limits` says how they stand now."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self.budget = Quota(lambda: limits().request_bytes_max)
        self.answers = Quota(lambda: limits().request_bytes_max)
        """What answers hold that are made and not written (`sow.server.http.chunked_response`): as
        much, so that who does not read keeps nobody from publishing."""

    @web.middleware
    async def hold(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request hold memory until it has been answered."""
        try:
            return await handler(request)
        finally:
            if HELD in request:
                request[HELD].release()

    async def read(self, request: web.Request) -> bytes:
        """The body, as it was before it was compressed.

        A client that waits for a word before it sends it is told to. Raises TooLarge, Busy,
        TooSlow, ClientError.
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
    """The body of a request, read under the limits of its server; see `Requests.read`."""
    return await request.app[REQUESTS].read(request)


async def _plain(request: web.Request, limits: Limits) -> AsyncIterator[bytes]:
    """The pieces of a body, inflated."""
    inflate = inflater(request.headers.get(hdrs.CONTENT_ENCODING, ""))
    await go_on(request)
    received = 0
    async for data in _received(request, limits.idle_timeout_us / 1e6):
        if inflate is None:
            yield data
            continue
        received += len(data)
        if received > limits.frame_bytes_max:
            raise _too_large(limits)  # what stands for nothing need not end
        for piece in inflate.feed(data):
            if piece:
                yield piece
            await asyncio.sleep(0)  # others get their turn between two steps
    if inflate is not None:
        for piece in inflate.finish():
            yield piece


async def _received(request: web.Request, idle_s: float) -> AsyncIterator[bytes]:
    """The pieces of a body as they come."""
    clock = asyncio.get_running_loop().time
    patience = MinRateDeadline(clock(), idle_s)
    content = request.content
    while not content.at_eof():
        try:
            async with asyncio.timeout_at(patience.until_s):
                data = await content.readany()
        except TimeoutError:
            raise TooSlow(
                f"the body has not come: nothing for {idle_s:g} s (Limits/IdleTimeout), or less "
                f"than {BYTES_PER_S_MIN} bytes a second for longer"
            ) from None
        patience.hear(clock(), len(data))
        if data:
            yield data


def client_key(request: web.Request) -> Hashable:
    """Whom a request counts for: an address, or, of programs on this machine, a connection."""
    address = client_address(request)
    return request.protocol if not address or is_loopback(address) else address
