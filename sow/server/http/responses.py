"""Shared by all handlers: JSON answers, valid headers, and how an answer may be cached.

`Cache-Control: no-cache` of each answer (RFC 9111 §5.2.2.4) allows storing it and requires
revalidation, since records and permissions change at any time. If `Accept` or `Prefer` selects the
form of an answer, it is in `Vary` (RFC 9110 §12.5.5, RFC 7240 §2), whichever form was selected;
`sow.server.http.compression` and `sow.server.http.middleware` add encoding and origin themselves.
"""

from collections.abc import Mapping
from string import ascii_letters, digits, punctuation
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web

from sow.core.media_types import JSON
from sow.server.http.negotiation import CHOOSERS

LOG_HEADER = "SOW-Log"
"""The id of the log that the answer's bookmarks belong to."""
HEADER_CHARS_MAX = 1000
"""Longest value of a header: clients reject lines of more than about 8,000."""
PLAIN = (ascii_letters + digits + punctuation + " ").replace("%", "")


def json_response(
    document: object, headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """A JSON response."""
    body = json_text(document)
    return web.Response(status=status, body=body, content_type=JSON, headers=headers)


def json_text(document: object) -> bytes:
    """A document as JSON."""
    return orjson.dumps(document, default=_plain)


async def sanitize_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Make every header of an answer valid, whatever it was made of.

    A signal before an answer is sent: some headers contain client input, and a line break in one
    would end the answer, or begin another one.
    """
    if not all(_fits(value) for value in response.headers.values()):
        valid = [(name, header_value(value)) for name, value in response.headers.items()]
        response.headers.clear()
        response.headers.extend(valid)


def header_value(text: str) -> str:
    """A text as a valid header value: percent-encoded if it has anything but printable ASCII, and
    cut if it is long."""
    if _fits(text):
        return text
    # Each character becomes at most twelve, so this much fills the available length.
    plain = quote(text[: HEADER_CHARS_MAX + 1], safe=PLAIN, errors="surrogatepass")
    return plain if len(plain) <= HEADER_CHARS_MAX else plain[: HEADER_CHARS_MAX - 3] + "..."


def _fits(text: str) -> bool:
    return len(text) <= HEADER_CHARS_MAX and text.isascii() and text.isprintable()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(type(value).__name__)


async def mark_kept(request: web.Request, response: web.StreamResponse) -> None:
    """Set the cache headers of an answer; a signal."""
    headers = response.headers
    headers.setdefault(hdrs.CACHE_CONTROL, "no-cache")
    for chooser in request.get(CHOOSERS, ()):
        headers.add(hdrs.VARY, chooser)
    kind = headers.get(hdrs.CONTENT_TYPE, "")
    if kind.startswith("text/") and "charset" not in kind:
        headers[hdrs.CONTENT_TYPE] = f"{kind}; charset=utf-8"
