"""What every door makes alike: answers in JSON, and headers that can be sent."""

from collections.abc import Mapping
from string import ascii_letters, digits, punctuation
from urllib.parse import quote

import orjson
from aiohttp import web

from sow.core.media_types import JSON

LOG_HEADER = "SOW-Log"
"""Says the name of the log, of which the answer's bookmarks are."""
HEADER_CHARS_MAX = 1000
"""Of a header's value: clients refuse a line of more than about 8,000."""
PLAIN = (ascii_letters + digits + punctuation + " ").replace("%", "")


def json_response(
    document: object, headers: Mapping[str, str] | None = None, status: int = 200
) -> web.Response:
    """A document as the answer."""
    body = json_text(document)
    return web.Response(status=status, body=body, content_type=JSON, headers=headers)


def json_text(document: object) -> bytes:
    """A document as it stands in an answer."""
    return orjson.dumps(document, default=_plain)


async def mend_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Make every header of an answer one that can be sent, whatever it was made of.

    A signal, asked when an answer is about to leave: some headers say what a client wrote, and a
    line break in one would end the answer, or begin another one.
    """
    if not all(_fits(value) for value in response.headers.values()):
        mended = [(name, header_value(value)) for name, value in response.headers.items()]
        response.headers.clear()
        response.headers.extend(mended)


def header_value(text: str) -> str:
    """A text as it can stand in a header: percent-encoded where it has anything but printable
    ASCII, and cut when it is long."""
    if _fits(text):
        return text
    # Each character becomes at most twelve, so this much is enough to fill what there is room for.
    plain = quote(text[: HEADER_CHARS_MAX + 1], safe=PLAIN, errors="surrogatepass")
    return plain if len(plain) <= HEADER_CHARS_MAX else plain[: HEADER_CHARS_MAX - 3] + "..."


def _fits(text: str) -> bool:
    return len(text) <= HEADER_CHARS_MAX and text.isascii() and text.isprintable()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(type(value).__name__)
