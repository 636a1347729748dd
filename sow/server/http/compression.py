"""Compression of answers, as their clients accept it, whichever handler produced them.

`Accept-Encoding` with its quality values (RFC 9110 §12.5.3) selects zstd, gzip or no compression. A
compressed answer costs more than making it, so only clients that name a coding get one. An element
of the header that cannot be parsed is ignored: proxies and libraries add such elements, and nobody
would read a refusal.

Answers are compressed in a signal before they are sent. A short answer is compressed there; a
streamed one gets an encoder, which `sow.server.http.chunked_response` applies to its pieces. The
tag of a compressed answer is weak, since it identifies a state and not these bytes, and `Vary` has
`Accept-Encoding`. Only answers to GET and HEAD are compressed, and no server-sent events: an event
would wait in the encoder for the next one.
"""

import asyncio
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from aiohttp import hdrs, web

from sow.core.cache import kept
from sow.core.media_types import EVENT_STREAM
from sow.errors import clipped
from sow.server.http.negotiation import HEADERS_KEPT_MAX, QUALITY, NotAcceptable

ZSTD = "zstd"
GZIP = "gzip"
IDENTITY = "identity"
CODINGS = (ZSTD, GZIP) if pa.Codec.is_available(ZSTD) else (GZIP,)
"""Supported codings, in order of preference: zstd compresses better, in half the time."""
CODING = web.RequestKey("coding", str)
"""The content coding of the answer to a request."""
ALIASES = {"x-gzip": GZIP}
CODED_BYTES = 64 * 1024
"""Bytes compressed in one step: under half a millisecond."""
GZIP_LEVEL = 1
"""The fastest; the next levels take a third more time for a twentieth less."""
GZIP_WRAPPED = 16 + zlib.MAX_WBITS
"""zlib's code for its largest window with gzip's header and checksum."""
ELEMENT = re.compile(r"([!#$%&'*+.^_`|~\w-]+)(?:[ \t]*;[ \t]*[qQ]=([^ \t;]*))?", re.ASCII)


def coding_of(request: web.Request) -> str:
    """The coding that the client prefers, `identity` for no compression: a named coding goes before
    one that only a wildcard allows. Raises NotAcceptable if none is acceptable."""
    return _preferred(", ".join(request.headers.getall(hdrs.ACCEPT_ENCODING, ())))


@kept(HEADERS_KEPT_MAX)
def _preferred(text: str) -> str:
    """The same for the text of the header."""
    named = _named(text)
    wildcard = named.get("*")
    found = [(named[one], -place, one) for place, one in enumerate(CODINGS) if one in named]
    best, _, coding = max(found, default=(0.0, 0, IDENTITY))
    # If it is not mentioned, identity is acceptable, after the others.
    plain = named.get(IDENTITY, wildcard)
    if best > 0 and (IDENTITY not in named or best >= named[IDENTITY]):
        return coding
    if plain is None or plain > 0:
        return IDENTITY
    if wildcard:
        allowed = [one for one in CODINGS if one not in named]
        if allowed:
            return allowed[0]
    offered = ", ".join((*CODINGS, IDENTITY))
    raise NotAcceptable(f"nothing in Accept-Encoding: {clipped(text)} is made; accept {offered}")


def _named(text: str) -> Mapping[str, float]:
    """Codings and their qualities; the first occurrence of a coding counts."""
    named: dict[str, float] = {}
    for part in text.split(","):
        element = ELEMENT.fullmatch(part.strip(" \t"))
        if element is None:
            continue
        quality = element[2] or "1" if element[2] != "" else ""
        if QUALITY.fullmatch(quality):
            name = element[1].lower()
            named.setdefault(ALIASES.get(name, name), float(quality))
    return named


class Encoder:
    """Compresses one answer with `coding`: its parts, in order, and then its end."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._packer = _Zstd() if coding == ZSTD else _Gzip()

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """A compressed piece, a short step for each part; the encoder may hold some of it back."""
        for start in range(0, len(piece), CODED_BYTES):
            yield self._packer.compress(memoryview(piece)[start : start + CODED_BYTES])

    def end(self) -> bytes:
        """The rest of the compressed bytes."""
        return self._packer.flush()

    def pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """A complete answer, compressed as its pieces are produced."""
        for piece in pieces:
            yield from self.parts(piece)
        yield self.end()


class _Gzip:
    def __init__(self) -> None:
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WRAPPED)
        self.compress, self.flush = packer.compress, packer.flush


class _Zstd:
    """Arrow's compressor, which writes into a file-like object; its level is zstd's fastest."""

    def __init__(self) -> None:
        self._made: list[bytes] = []
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_Written(self._made), "w"), ZSTD)

    def compress(self, part: memoryview) -> bytes:
        self._stream.write(part)
        return self._take()

    def flush(self) -> bytes:
        self._stream.close()
        return self._take()

    def _take(self) -> bytes:
        made = b"".join(self._made)
        self._made.clear()
        return made


class _Written:
    """The file-like object that Arrow writes into."""

    closed = False

    def __init__(self, into: list[bytes]) -> None:
        self._into = into

    def write(self, part: bytes) -> int:
        self._into.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """Nothing to close."""


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
