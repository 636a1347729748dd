"""Content negotiation: the format of an answer, whether the client has it, how a body is encoded.

`Accept` with its quality values (RFC 9110 §12.5.1), `If-None-Match` (§13.1.2) and the `charset` of
a body's content type (§8.3), for any resource.
"""

import codecs
import re
import zlib
from collections.abc import Mapping, Sequence

from aiohttp import hdrs, web

from sow.core.cache import kept
from sow.core.media_types import ARROW, CSV, JSON, NDJSON, PREFER_COLUMNS
from sow.errors import BadMessage, ClientError, clipped

PREFER = "Prefer"
HEADERS_KEPT_MAX = 64
"""Headers whose meaning is kept: a client sends the same ones with each request, and a header has
at most 8 KB."""
QUALITY = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")
ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')
FORMAT_NAMES = {"json": JSON, "ndjson": NDJSON, "csv": CSV, "arrow": ARROW}
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
    """The requested format: by the parameter `format`, or else by `Accept`."""
    name = requested.get("format")
    return accepted(request, formats) if name is None else named_format(name, formats)


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
