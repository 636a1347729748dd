"""Content codings: answers that are packed on their way, for who asks for that.

`Accept-Encoding` with its quality values (RFC 9110 §12.5.3) chooses between zstd, gzip and the
answer as it is. A packed answer costs the server more than making it, so nobody gets one who does
not name a coding. An element of the header that cannot be read asks for nothing, and is passed
over: proxies and libraries write it, and nobody would see what a refusal says.

Nothing here knows what is packed, or for how many (`sow.server.http.compression`).
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
"""What is made, in the order in which we like them: zstd packs closer, in half the time."""
CODING = web.RequestKey("coding", str)
"""The coding that a request for something was let in with."""
ALIASES = {"x-gzip": GZIP}
CODED_BYTES = 64 * 1024
"""So much is packed in one go: under half a millisecond."""
GZIP_LEVEL = 1
"""The fastest; the next ones take a third more time for a twentieth less."""
GZIP_WRAPPED = 16 + zlib.MAX_WBITS
"""What zlib calls its largest window with gzip's head and checksum."""
ELEMENT = re.compile(r"([!#$%&'*+.^_`|~\w-]+)(?:[ \t]*;[ \t]*[qQ]=([^ \t;]*))?", re.ASCII)


def coding_of(request: web.Request) -> str:
    """The coding that the client likes best, `identity` for the answer as it is: what is named goes
    before what only a wildcard allows. Raises NotAcceptable where none will do."""
    text = ", ".join(request.headers.getall(hdrs.ACCEPT_ENCODING, ()))
    named = _named(text)
    wildcard = named.get("*")
    found = [(named[one], -place, one) for place, one in enumerate(CODINGS) if one in named]
    best, _, coding = max(found, default=(0.0, 0, IDENTITY))
    # Where nothing is said of it, it will do, if nothing better is made.
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
    """Codings and their qualities; of one that is named twice the first counts."""
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
    """Packs one answer in `coding`: parts of it, in order, and then its end."""

    def __init__(self, coding: str) -> None:
        self.coding = coding
        self._packer = _Zstd() if coding == ZSTD else _Gzip()

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """A piece packed, a short step for each part; some of it may come with later pieces."""
        for start in range(0, len(piece), CODED_BYTES):
            yield self._packer.compress(memoryview(piece)[start : start + CODED_BYTES])

    def end(self) -> bytes:
        """What is left."""
        return self._packer.flush()

    def pieces(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """A whole answer packed, of pieces that are made as they are needed."""
        for piece in pieces:
            yield from self.parts(piece)
        yield self.end()


class _Gzip:
    def __init__(self) -> None:
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WRAPPED)
        self.compress, self.flush = packer.compress, packer.flush


class _Zstd:
    """Arrow's packer, which writes into what it takes for a file; its level is zstd's fastest."""

    def __init__(self) -> None:
        self._made: list[bytes] = []
        self._stream = pa.CompressedOutputStream(pa.PythonFile(_Written(self._made), "w"), ZSTD)

    def compress(self, part: memoryview) -> bytes:
        self._stream.write(part)
        return self._taken()

    def flush(self) -> bytes:
        self._stream.close()
        return self._taken()

    def _taken(self) -> bytes:
        made = b"".join(self._made)
        self._made.clear()
        return made


class _Written:
    """A file that Arrow writes into."""

    closed = False

    def __init__(self, into: list[bytes]) -> None:
        self._into = into

    def write(self, part: bytes) -> int:
        self._into.append(bytes(part))
        return len(part)

    def flush(self) -> None:
        """There is nothing behind it."""

    def close(self) -> None:
        """Nor to give back."""
