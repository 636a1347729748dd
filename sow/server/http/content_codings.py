"""Content codings: compressed answers for clients that accept them.

`Accept-Encoding` with its quality values (RFC 9110 §12.5.3) selects zstd, gzip or no compression. A
compressed answer costs more than making it, so only clients that name a coding get one. An element
of the header that cannot be parsed is ignored: proxies and libraries add such elements, and nobody
would read a refusal.
"""

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from aiohttp import hdrs, web

from sow.errors import clipped
from sow.server.http.negotiation import QUALITY, NotAcceptable

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
    text = ", ".join(request.headers.getall(hdrs.ACCEPT_ENCODING, ()))
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
