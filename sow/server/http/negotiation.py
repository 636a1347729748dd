"""Content negotiation: the format of an answer and its compression, and how a body is encoded.

`Accept` with its quality values (RFC 9110 §12.5.1), `If-None-Match` (§13.1.2) and the `charset` of
a body's content type (§8.3) are read here, for any resource. An address may end in the name of a
format, which `Accept` does not change then.

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
import codecs
import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from aiohttp import hdrs, web

from sow.core.containers import kept
from sow.core.media_types import (
    ARROW,
    ARROW_FILE,
    CSV,
    EVENT_STREAM,
    JSON,
    NDJSON,
    PARQUET,
    PREFER_COLUMNS,
)
from sow.errors import BadMessage, ClientError, clipped

PREFER = "Prefer"
HEADERS_KEPT_MAX = 64
"""Headers whose meaning is kept: a client sends the same ones with each request, and a header has
at most 8 KB."""
QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")
ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')
FORMAT_ENDINGS = {
    "json": JSON,
    "ndjson": NDJSON,
    "csv": CSV,
    "arrow": ARROW_FILE,
    "arrows": ARROW,
    "parquet": PARQUET,
}
"""What an address may end in after a dot (the part `FORMAT_ENDING` of a path), as a file does."""
FORMAT_ENDING = "ending"
FORMAT_NAMES = {**FORMAT_ENDINGS, "arrow": ARROW}
"""Values of the parameter `format`, for clients that cannot set a header."""
CHARSETS = (
    "utf-8",
    "ascii",
    "iso8859-1",
    "iso8859-15",
    "cp1252",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
)
"""Charsets that a body may be declared in, by Python's names; all are converted to UTF-8."""


CHOOSERS = web.RequestKey("choosers", dict[str, None])
"""The headers of a request that select the format of its answer."""


class NotAcceptable(ClientError):
    """No format that the client accepts can be produced."""

    reason = "not acceptable"
    status = 406


class NoSuchFormat(ClientError):
    """An address that ends in the name of no format."""

    reason = "not found"
    status = 404


class UnsupportedMediaType(ClientError):
    """A body that cannot be read as the type it is declared to be."""

    reason = "unsupported media type"
    status = 415


def accepted(request: web.Request, formats: Sequence[str]) -> str:
    """The format that the client prefers, of `formats`, which are in our order of preference.

    A format's quality is that of the most specific range that matches it. Of formats of equal
    quality a named one goes before one that only a wildcard allows. Raises NotAcceptable,
    ClientError.
    """
    _choose_by(request, hdrs.ACCEPT)
    text = ", ".join(request.headers.getall("Accept", ())) or "*/*"
    return _preferred(text, tuple(formats))


@kept(HEADERS_KEPT_MAX)
def _preferred(text: str, formats: tuple[str, ...]) -> str:
    """The same for the text of the header."""
    ranges = _ranges(text)
    liked = [(*_preference(kind, ranges), -place, kind) for place, kind in enumerate(formats)]
    best = max(liked)
    if best[0] > 0:
        return best[-1]
    offered = ", ".join(formats)
    raise NotAcceptable(f"nothing in Accept: {clipped(text)} can be made; accept {offered}")


def form_of(request: web.Request, requested: Mapping[str, str], formats: Sequence[str]) -> str:
    """The requested format: by the end of the address, by the parameter `format`, or by
    `Accept`."""
    if FORMAT_ENDING in requested:
        kind = format_of_ending(requested[FORMAT_ENDING])
    else:
        name = requested.get("format")
        kind = accepted(request, formats) if name is None else named_format(name, formats)
    if kind == PARQUET:
        # It is compressed itself; so it keeps its length, its ranges and its strong tag.
        request[CODING] = IDENTITY
    return kind


def format_of_ending(ending: str) -> str:
    """The format that an address ends in; raises NoSuchFormat."""
    if ending in FORMAT_ENDINGS:
        return FORMAT_ENDINGS[ending]
    raise NoSuchFormat(
        f"no address ends in .{clipped(ending)}; write one of .{', .'.join(FORMAT_ENDINGS)}"
    )


def wants_columns(request: web.Request) -> bool:
    """Whether the client prefers a JSON answer with its columns (RFC 7240)."""
    _choose_by(request, PREFER)
    wanted = ", ".join(request.headers.getall(PREFER, ())).lower().split(",")
    return PREFER_COLUMNS in [one.strip() for one in wanted]


def _choose_by(request: web.Request, header: str) -> None:
    request[CHOOSERS] = {**request.get(CHOOSERS, {}), header: None}


def named_format(name: str, formats: Sequence[str]) -> str:
    """The format that the parameter `format` names, of `formats`; raises ClientError."""
    names = {short: kind for short, kind in FORMAT_NAMES.items() if kind in formats}
    if name in names:
        return names[name]
    raise ClientError(f"format={clipped(name)} is not known here; write one of {', '.join(names)}")


def _ranges(text: str) -> list[tuple[str, float]]:
    """Media ranges and their qualities, in the order of the header."""
    ranges: list[tuple[str, float]] = []
    for part in text.split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if not kind:
            continue
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "q":
                if not QUALITY.fullmatch(value.strip()):
                    raise ClientError(
                        f"Accept: {clipped(part.strip())}: q is a number from 0 to 1 with at most "
                        "three digits after the point"
                    )
                quality = float(value)
        ranges.append((kind.lower(), quality))
    return ranges or [("*/*", 1.0)]


def _preference(kind: str, ranges: Sequence[tuple[str, float]]) -> tuple[float, int, int]:
    """The preference for a format: its quality, how specifically it is named, and how early."""
    main = kind.partition("/")[0]
    for closeness, name in ((2, kind), (1, f"{main}/*"), (0, "*/*")):
        for place, (found, quality) in enumerate(ranges):
            if found == name:
                # With wildcards our order counts.
                return quality, closeness, -place if closeness == 2 else 0
    return 0.0, 0, 0


def entity_tag(form: bytes, *numbers: int) -> str:
    """The entity tag of a representation of a record: its checksum, and the numbers of its state.
    The numbers alone are not enough: another format has the same, and so has another record in
    another log."""
    return f'"{".".join(map(str, (*numbers, f"{zlib.crc32(form):x}")))}"'


def is_known(request: web.Request, etag: str) -> bool:
    """Whether If-None-Match matches `etag`: in a list, weak or strong, or `*`."""
    text = ", ".join(request.headers.getall("If-None-Match", ()))
    return text.strip() == "*" or etag in ENTITY_TAG.findall(text)


def charset_of(request: web.Request) -> str | None:
    """The charset that a body is declared in, by Python's name, None if it is not declared; raises
    UnsupportedMediaType for an unsupported one."""
    declared = request.charset
    if declared is None:
        return None
    try:
        charset = codecs.lookup(declared).name
    except LookupError:
        charset = ""
    if charset not in CHARSETS:
        raise UnsupportedMediaType(
            f"charset {clipped(declared)} is not understood; send UTF-8, or one of "
            f"{', '.join(CHARSETS[1:])}"
        )
    return charset


def as_utf8(request: web.Request, body: bytes) -> bytes:
    """A text body in UTF-8, decoded from its declared charset, without a byte order mark (RFC 8259,
    8.1).

    Raises UnsupportedMediaType for an unsupported charset, BadMessage for a body that is not in it.
    """
    charset = charset_of(request)
    if charset in (None, "utf-8"):
        return body.removeprefix(codecs.BOM_UTF8)  # the reader of the messages validates them
    try:
        return body.decode(charset).encode().removeprefix(codecs.BOM_UTF8)
    except UnicodeDecodeError as error:
        raise BadMessage(f"byte {error.start} of the body is not {charset}") from None


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
    return _preferred_coding(", ".join(request.headers.getall(hdrs.ACCEPT_ENCODING, ())))


@kept(HEADERS_KEPT_MAX)
def _preferred_coding(text: str) -> str:
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
        self._made = Written()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._made, "w"), ZSTD)

    def compress(self, part: memoryview) -> bytes:
        self._stream.write(part)
        return self._made.taken()

    def flush(self) -> bytes:
        self._stream.close()
        return self._made.taken()


class Written:
    """The file-like object that Arrow writes into; what is written is taken piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, part: bytes) -> int:
        """Keep a part until it is taken."""
        self._parts.append(bytes(part))
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        """The size of all that was written, taken or not."""
        return self._size

    def taken(self) -> bytes:
        """What was written since this was called last."""
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken

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
