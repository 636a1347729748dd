"""Compresses answers as their clients accept it, whichever handler produced them.

This happens in a signal before an answer is sent. A short answer is compressed there; a streamed
one gets an encoder, which `sow.server.http.chunked_response` applies to its pieces. The tag of a
compressed answer is weak, since it identifies a state and not these bytes, and `Vary` has
`Accept-Encoding`.

Only answers to GET and HEAD are compressed, and no server-sent events: an event would wait in the
encoder for the next one.
"""

import asyncio
import weakref

from aiohttp import hdrs, web

from sow.core.media_types import EVENT_STREAM
from sow.server.http.content_codings import CODING, IDENTITY, Encoder

PACKED_FROM_BYTES = 1024
"""Shorter answers fit into one packet with their head as they are."""
ENCODERS_MAX = 100
"""Answers that are compressed at the same time: each takes up to a megabyte until its client has
read all of it. Others are sent uncompressed."""
PACKER = web.RequestKey("packer", Encoder)
"""The encoder of a streamed answer."""


class Compression:
    """Compresses the answers of one server."""

    def __init__(self) -> None:
        self._at_work: weakref.WeakSet[Encoder] = weakref.WeakSet()

    async def pack(self, request: web.Request, response: web.StreamResponse) -> None:
        """Compress an answer, if its request accepts that; a signal."""
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
            response.headers[hdrs.CONTENT_LENGTH] = str(len(packed))  # it was set before
        response.headers[hdrs.CONTENT_ENCODING] = coding
        etag = response.headers.get(hdrs.ETAG)
        if etag is not None:
            response.headers[hdrs.ETAG] = _weak(etag)


async def _packed(body: bytes, encoder: Encoder) -> bytes:
    """Compress a complete answer in steps."""
    packed = []
    for part in encoder.parts(body):
        packed.append(part)
        if len(packed) > 1:
            await asyncio.sleep(0)  # other work runs between two parts
    return b"".join([*packed, encoder.end()])


def _name_as(request: web.Request, response: web.StreamResponse) -> None:
    """Use in a 304 the form of the tag that the client sent, for the caches in between."""
    etag = response.headers.get(hdrs.ETAG, "")
    if etag and _weak(etag) in ", ".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())):
        response.headers[hdrs.ETAG] = _weak(etag)


def _weak(etag: str) -> str:
    return etag if etag.startswith("W/") else f"W/{etag}"
