"""Packing: what is got is packed as its client asks, whichever handler has made it.

It is done as an answer is about to leave, by a signal of aiohttp's. A short answer is packed there;
one that is streamed is given an encoder, through which `sow.server.http.chunked_response` has its
pieces go. The tag of a packed answer is weak, since it names a state and not these bytes, and a
cache is told that the answer depends on `Accept-Encoding`.

Only answers to GET and HEAD are packed, and no server-sent events: an event would wait in the
encoder for the next one.
"""

import asyncio
import weakref

from aiohttp import hdrs, web

from sow.core.media_types import EVENT_STREAM
from sow.server.http.content_codings import CODING, IDENTITY, Encoder

PACKED_FROM_BYTES = 1024
"""What is shorter fits into one packet with its head, as it is."""
ENCODERS_MAX = 100
"""Answers that are packed at once: each takes up to a megabyte for it until its client has read all
of it. Any more leave as they are."""
PACKER = web.RequestKey("packer", Encoder)
"""What the pieces of a streamed answer go through."""


class Compression:
    """Packs the answers of one server."""

    def __init__(self) -> None:
        self._at_work: weakref.WeakSet[Encoder] = weakref.WeakSet()

    async def pack(self, request: web.Request, response: web.StreamResponse) -> None:
        """Pack an answer whose head is about to leave, if that is asked for; a signal."""
        coding = request.get(CODING)
        if (
            coding is None
            or response.content_type == EVENT_STREAM
            or response.status not in (200, 206, 304)
        ):
            return
        response.headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
        if coding == IDENTITY:
            return
        if response.status == 304:
            _name_as(request, response)
        elif len(self._at_work) < ENCODERS_MAX:
            await self._pack(request, response, coding)

    async def _pack(self, request: web.Request, response: web.StreamResponse, coding: str) -> None:
        body = response.body if isinstance(response, web.Response) else None
        if isinstance(body, bytes) and len(body) < PACKED_FROM_BYTES:
            return
        encoder = Encoder(coding)
        self._at_work.add(encoder)
        if not isinstance(response, web.Response):
            request[PACKER] = encoder
        elif isinstance(body, bytes):
            packed = await _packed(body, encoder)
            if len(packed) >= len(body):
                return
            response.body = packed
            response.headers[hdrs.CONTENT_LENGTH] = str(len(packed))  # it has been set before
        response.headers[hdrs.CONTENT_ENCODING] = coding
        etag = response.headers.get(hdrs.ETAG)
        if etag is not None:
            response.headers[hdrs.ETAG] = _weak(etag)


async def _packed(body: bytes, encoder: Encoder) -> bytes:
    """An answer that is made already, packed in steps."""
    packed = []
    for part in encoder.parts(body):
        packed.append(part)
        if len(packed) > 1:
            await asyncio.sleep(0)  # others have their turn between two parts
    return b"".join([*packed, encoder.end()])


def _name_as(request: web.Request, response: web.StreamResponse) -> None:
    """Have a 304 name what the client has as the client does, for the caches on the way."""
    etag = response.headers.get(hdrs.ETAG, "")
    if etag and _weak(etag) in ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())):
        response.headers[hdrs.ETAG] = _weak(etag)


def _weak(etag: str) -> str:
    return etag if etag.startswith("W/") else f"W/{etag}"
