"""Reading of requests: the memory, decompression and `Expect` of bodies, and back-pressure.

A body is read in pieces, decompressed in small steps, and accounted as it grows: one that is too
large, or for which there is no room, is refused before all of it has arrived. A few kilobytes may
expand to gigabytes, so each step produces at most `STEP_BYTES`, which are counted before the next.
A request's memory is released when it has been answered, whatever the outcome.

A client with `Expect: 100-continue` sends its body after `100 Continue` (RFC 9110 §10.1.1). aiohttp
writes that before routing. Here it is written when the body is about to be read: whatever is
refused earlier (address, method, user, size, content type) is refused without the body. After such
an answer the connection is closed, since it is not known whether the next bytes are the body.

`ReadBackpressure` decides which WebSockets are read while request memory is scarce. What a
connection has received and the server has not executed yet is accounted in the quota of requests.
When that is used up, connections are paused, so that their clients have to wait (back-pressure, no
error). They never deadlock: the connection that has been in the middle of a message longest is
favoured and read on, room or not, since only a complete message can be executed and released. A
favoured one that makes no progress is closed with a reason.

    settle   after each read: account it, and pause the connection where there is no room
    turn     every `PAUSED_CHECK_S` while some are paused: resume, favour, give up

It is pure: time is a parameter, and readers implement pausing and resuming.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from itertools import islice
from typing import Any, Protocol

from aiohttp import ClientResponse, HttpVersion11, hdrs, web
from aiohttp.http_parser import RawRequestMessage
from aiohttp.typedefs import Handler
from multidict import CIMultiDict, CIMultiDictProxy

from sow.core.addresses import is_loopback
from sow.core.definitions import Limits
from sow.core.quota import Quota, QuotaHolder
from sow.errors import Busy, ClientError, TooLarge, clipped
from sow.server.http.connections import BYTES_PER_S_MIN, MinRateDeadline
from sow.server.http.negotiation import UnsupportedMediaType
from sow.server.http.request_origin import client_address

PAUSED_CHECK_S = 0.05
"""Interval of checks: nobody notices a pause so short, and a check is cheap even with thousands of
paused connections."""
STALLED_S = 2.0
"""How long a favoured client may be silent while others wait for it: a lost packet is sent again
within a second, so after two nothing is on its way."""
READ_BYTES = 256 * 1024
"""What asyncio reads at once, so what a reader may add before it can be paused."""
FREE_BYTES = 4096
"""A client that holds no more than this is never paused, so that small messages pass beside large
ones: a page each, which for the largest number of connections is a third of the default quota."""
FRAME_HEADER_BYTES = 14
"""A frame of the largest size has a header beside, for which its client is not paused."""
STALLED = "others wait for room while this client is in the middle of a message and sends nothing"
CROWDED = "no room is left for this message"
NAMED = " (Limits/RequestMemory); send it again"


class PausableReader(Protocol):
    """A connection that can be paused."""

    @property
    def holder(self) -> QuotaHolder:
        """Its share of the quota."""

    def pause(self) -> None:
        """Pause reading."""

    def resume(self) -> None:
        """Resume reading."""

    def give_up(self, reason: str) -> None:
        """Close it with a reason."""


class ReadBackpressure:
    """The WebSockets of one server that share a quota."""

    def __init__(self, budget: Quota) -> None:
        self.budget = budget
        self.waiting: dict[PausableReader, None] = {}
        """Paused readers."""
        self._under_way: dict[PausableReader, int] = {}
        """Readers in the middle of a message, with its number, the longest first."""
        self._favoured: dict[PausableReader, MinRateDeadline] = {}

    def settle(self, reader: PausableReader, held: int, message: int | None, now_s: float) -> None:
        """A reader holds `held` bytes now, and is in the middle of its message number `message`, or
        of none; `now_s` is a monotonic time."""
        came = held - reader.holder.held
        reader.holder.set(held)
        if self._under_way.get(reader) != message:
            self._under_way.pop(reader, None)
            self._favoured.pop(reader, None)
            if message is not None:
                self._under_way[reader] = message
        if came <= 0 or message is None or held <= FREE_BYTES:
            return  # complete messages are executed and released anyway
        if reader in self._favoured:
            self._favoured[reader].on_bytes(now_s, came)
        elif reader.holder.lack(-FRAME_HEADER_BYTES) is not None:
            reader.pause()
            self.waiting.setdefault(reader)
            if self.budget.is_crowded:
                self._give_up(reader, CROWDED)

    def turn(self, now_s: float) -> bool:
        """Resume readers, and give up stalled ones; returns whether any are paused."""
        room = self.budget.room
        for reader in list(self.waiting):
            if room > 0 and reader.holder.lack(-FRAME_HEADER_BYTES) is None:
                room -= READ_BYTES
                self._resume(reader)
        favoured = dict.fromkeys(self._chosen()) if self.waiting else {}
        self._favoured = {
            reader: self._favoured.get(reader) or MinRateDeadline(now_s, STALLED_S)
            for reader in favoured
        }
        for reader, deadline in list(self._favoured.items()):
            if now_s >= deadline.until_s:
                self._give_up(reader, STALLED)
            elif reader in self.waiting:
                self._resume(reader)
        return bool(self.waiting)

    def _chosen(self) -> list[PausableReader]:
        """The favoured readers in the middle of a message: the first of all where the quota is used
        up; else the first of each client that is over its own share."""
        if self.budget.room <= 0:
            return list(islice(self._under_way, 1))
        chosen: list[PausableReader] = []
        clients: set[Hashable] = {reader.holder.client for reader in self.waiting}
        for reader in self._under_way:
            client = reader.holder.client
            if client in clients and self.budget.is_over_share(client):
                clients.remove(client)
                chosen.append(reader)
        return chosen

    def _resume(self, reader: PausableReader) -> None:
        del self.waiting[reader]
        reader.resume()

    def _give_up(self, reader: PausableReader, why: str) -> None:
        self.remove(reader)
        reader.give_up(why + NAMED)

    def remove(self, reader: PausableReader) -> None:
        """A reader is closed and holds nothing any more."""
        reader.holder.release()
        self.waiting.pop(reader, None)
        self._under_way.pop(reader, None)
        self._favoured.pop(reader, None)


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
            if request.body_exists and HELD in request:
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


STEP_BYTES = 256 * 1024
"""Decompressed in about a millisecond; smaller steps cost more than they save."""
GZIP_BITS, ZLIB_BITS, RAW_BITS = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
FEED_BYTES = 16 * 1024
"""Input per step: the rest behind a member of a gzip file is copied for each member, and one can
have 20 bytes."""
MEMBERS_MAX = 10_000
"""Members of one body: 64 MiB in blocks of 64 KiB, as some programs write, are 1,000. Each costs
some microseconds, whatever it contains."""
DEFLATED = 8
"""The method in the first byte of zlib's header; some clients send `deflate` without that
header."""


class Inflater:
    """One body in one content encoding: ``gzip`` or ``deflate``."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body, in steps that may produce nothing; raises
        ClientError."""
        for start in range(0, len(data), FEED_BYTES):
            yield from self._feed(data[start : start + FEED_BYTES])

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                self._stream = self._next(data)
            try:
                made = self._stream.decompress(data, STEP_BYTES)
            except zlib.error as error:
                raise self._broken(str(error)) from None
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                # A gzip file may have several members.
                data, self._stream = self._stream.unused_data, None
            yield made

    def _next(self, data: bytes) -> "zlib._Decompress":
        """The decompressor of the member that begins here."""
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise self._broken(f"it has more than {MEMBERS_MAX} members; compress it as one")
        return zlib.decompressobj(self._bits(data))

    def _bits(self, data: bytes) -> int:
        if self._encoding == "gzip":
            return GZIP_BITS
        return ZLIB_BITS if data[0] & 0xF == DEFLATED else RAW_BITS

    def finish(self) -> Iterator[bytes]:
        """The body has ended; raises ClientError if it is incomplete."""
        if self._stream is None:
            return
        if rest := self._stream.flush(STEP_BYTES):
            yield rest
        if not self._stream.eof:
            raise self._broken("it ends too early")

    def _broken(self, why: str) -> ClientError:
        return ClientError(f"the body cannot be read: it is not {self._encoding}: {why}")


def inflater(encoding: str) -> Inflater | None:
    """The decompressor for a Content-Encoding; None if there is none. Raises
    UnsupportedMediaType."""
    name = encoding.strip().lower().removeprefix("x-")
    if name in ("", "identity"):
        return None
    if name in ("gzip", "deflate"):
        return Inflater(name)
    raise UnsupportedMediaType(
        f"content encoding {clipped(encoding)} is not understood; send gzip, deflate or none"
    )


CONTINUE = "100-continue"
EXPECTED = web.RequestKey("expected", str)
"""The expectation of a request, until it is met."""

MakeRequest = Callable[..., Any]


class ExpectationFailed(ClientError):
    """An expectation that the server does not support."""

    reason = "expectation failed"
    status = 417


def with_deferred_expectations(make: MakeRequest) -> MakeRequest:
    """Wraps the request factory `make`, hiding expectations from aiohttp."""

    def made(message: RawRequestMessage, *more: Any) -> Any:
        expected = message.headers.get(hdrs.EXPECT)
        # An HTTP/1.0 request may come from a proxy that does not know expectations.
        if not expected or message.version < HttpVersion11:
            return make(message, *more)
        headers = CIMultiDict(message.headers)
        del headers[hdrs.EXPECT]
        request = make(message._replace(headers=CIMultiDictProxy(headers)), *more)
        request[EXPECTED] = expected
        return request

    return made


@web.middleware
async def check_expectation(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Raise ExpectationFailed for any other expectation."""
    expected = request.get(EXPECTED)
    if expected is not None and expected.strip().lower() != CONTINUE:
        raise ExpectationFailed(
            f"Expect: {clipped(expected)} is not known; write {CONTINUE}, or leave it out"
        )
    return await handler(request)


async def send_continue(request: web.Request) -> None:
    """The body is about to be read: let a waiting client send it."""
    if request.pop(EXPECTED, None) is not None:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # nothing of the answer is written yet


async def beginning(answer: ClientResponse, bytes_max: int) -> bytes:
    """The beginning of an answer, which anybody may have sent, without an end as well."""
    found = b""
    while len(found) < bytes_max and (piece := await answer.content.readany()):
        found += piece
    return found[:bytes_max]


async def end_unmet(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the answer if the body may or may not follow; a signal."""
    if request.body_exists and EXPECTED in request:
        response.headers[hdrs.CONNECTION] = "close"  # it was set before
        response.force_close()
