"""Answers of all handlers: JSON, valid headers, how an answer may be cached, and errors.

`Cache-Control: no-cache` of each answer (RFC 9111 §5.2.2.4) allows storing it and requires
revalidation, since records and permissions change at any time. If `Accept` or `Prefer` selects the
form of an answer, it is in `Vary` (RFC 9110 §12.5.5, RFC 7240 §2), whichever form was selected;
`sow.server.http.negotiation` and `sow.server.http.request_origin` add encoding and origin
themselves. A table has the name of the file that a browser saves it in (RFC 6266). An error is an
RFC 9457 problem document, and never a traceback.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping
from string import ascii_letters, digits, punctuation
from urllib.parse import quote

import orjson
from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.typedefs import Handler

from sow.core.clock import SECOND_US
from sow.core.containers import kept
from sow.core.media_types import JSON, PROBLEM
from sow.errors import Busy, ClientError, NotPrimary, SowError, TooLarge, TooManyLogons
from sow.server.http.negotiation import CHOOSERS, FORMAT_ENDINGS
from sow.server.http.preconditions import RangeNotSatisfiable

LOG_HEADER = "SOW-Log"
"""The id of the log that the answer's bookmarks belong to."""
PRIMARY_HEADER = "SOW-Primary"
"""The address of the server that takes what a follower refuses."""
CHAIN_HEADER = "SOW-Chain"
"""The servers from the one that answers up to the one that has the records, by random ids: one that
finds itself among those of its upstream is in a circle."""
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
    # Together first: nearly always all of them are short and plain.
    if not _fits("".join(response.headers.values())):
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


FILE_NAME_CHARS_MAX = 60
"""Longest name of a file without its ending: percent-encoded it fits into a header."""
FILE_NAMES_KEPT = 256
"""Names that are kept: those of one topic in its formats, of some dozens of topics."""
NOT_IN_FILE_NAMES = re.compile(r'[\x00-\x20\x7f-\xa0/\\:*?"<>|%;]+')
"""What a file system, a shell or a header would take for more than a part of a name."""


def file_name(name: str, kind: str) -> dict[str, str]:
    """The header with the file name of an answer in the format `kind`, if files have it."""
    disposition = _disposition(name, kind)
    return {hdrs.CONTENT_DISPOSITION: disposition} if disposition else {}


@kept(FILE_NAMES_KEPT)
def _disposition(name: str, kind: str) -> str:
    ending = next((ending for ending, of in FORMAT_ENDINGS.items() if of == kind), None)
    if ending is None:
        return ""
    name = NOT_IN_FILE_NAMES.sub("_", name)[:FILE_NAME_CHARS_MAX].strip("._") or "records"
    plain = name.encode("ascii", "replace").decode().replace("?", "_")
    parts = ["inline" if kind == JSON else "attachment", f'filename="{plain}.{ending}"']
    if plain != name:
        parts.append(f"filename*=UTF-8''{quote(name, safe='', errors='replace')}.{ending}")
    return "; ".join(parts)


log = logging.getLogger("sow")

REFUSED: web.AppKey["Counter[str]"] = web.AppKey("refused", Counter)
"""Refused requests by the reason of their error: a few dozen reasons."""

CHALLENGES = [
    (hdrs.WWW_AUTHENTICATE, 'Bearer realm="sow"'),
    (hdrs.WWW_AUTHENTICATE, 'Basic realm="sow", charset="UTF-8"'),
]
"""How to authenticate (RFC 6750 §3, RFC 7617 §2.1)."""
PROBLEM_TYPE = "urn:sow:problem:"
"""The prefix of the permanent identifier of a kind of problem (RFC 9457 §3.1.1). It is not a URL,
since no page of ours would exist as long."""


class NoSuchAddress(ClientError):
    """An address that the server does not have."""

    reason = "not found"
    status = 404


class MethodNotAllowed(ClientError):
    """A method that an address does not support."""

    reason = "method not allowed"
    status = 405


HTTP_ERRORS: Mapping[int, ClientError] = {
    404: NoSuchAddress("no such address; GET /openapi.json lists all"),
    405: MethodNotAllowed("this address does not take that method"),
    413: TooLarge("the body is over the limit (Limits/FrameSize)"),
}
"""The errors for statuses that aiohttp raises; for other statuses aiohttp's own message is used, as
a bad request."""


def problem(error: SowError) -> web.Response:
    """The response that reports an error, with the error's status."""
    status = error.status
    document = {
        "type": PROBLEM_TYPE + error.reason.replace(" ", "-"),
        "title": error.reason,
        "status": status,
        "reason": error.reason,
        "detail": error.detail,
        **error.fields(),
    }
    response = web.Response(status=status, body=orjson.dumps(document), content_type=PROBLEM)
    if status == 401:
        response.headers.extend(CHALLENGES)
    if isinstance(error, TooManyLogons):
        response.headers["Retry-After"] = str(-(-error.wait_us // SECOND_US))
    if isinstance(error, NotPrimary):
        response.headers[PRIMARY_HEADER] = error.primary
    if isinstance(error, RangeNotSatisfiable):
        response.headers[hdrs.CONTENT_RANGE] = f"bytes */{error.size}"
    if isinstance(error, Busy):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).removeprefix("400, message: ")


def raw_answer(error: SowError) -> bytes:
    """A problem as bytes, for requests that were never parsed."""
    response = problem(error)
    body = response.body
    assert isinstance(body, bytes)
    head = [f"HTTP/1.1 {response.status} {response.reason}", "Connection: close"]
    head += [f"{name}: {value}" for name, value in response.headers.items()]
    head += [f"Content-Length: {len(body)}"] if "Content-Length" not in response.headers else []
    return "\r\n".join([*head, "", ""]).encode("ascii") + body


def _count(request: web.Request, reason: str) -> None:
    refused = request.app.get(REFUSED)
    if refused is not None:
        refused[reason] += 1


@web.middleware
async def report(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions of a handler into problem documents. Where the answer has begun, one would
    become a part of it: it breaks off."""
    try:
        return await handler(request)
    except Exception as error:
        response = _problem_of(request, error)
    if request.writer.output_size and not response.prepared and request.transport is not None:
        request.transport.abort()
    return response


def _problem_of(request: web.Request, error: Exception) -> web.StreamResponse:
    """The problem document of what a handler raised; raises what is no problem, a redirection."""
    match error:
        case SowError():
            _count(request, type(error).reason)
            return problem(error)
        case web.RequestPayloadError():
            return problem(ClientError(f"the body cannot be read: {_one_line(error)}"))
        case web.HTTPException():
            if error.status < 400:
                raise error
            response = problem(HTTP_ERRORS.get(error.status) or ClientError(error.reason))
            if allow := error.headers.get("Allow"):
                response.headers["Allow"] = allow
            return response
        case ConnectionError() | TimeoutError():
            # The client has disconnected; nobody reads this answer.
            return problem(ClientError("the connection was lost before the request was complete"))
        case BadHttpMessage():
            return problem(ClientError(f"the request is not HTTP: {error.message.splitlines()[0]}"))
    log.exception("%s %s failed", request.method, request.path)
    _count(request, SowError.reason)
    return problem(SowError("the server failed on this request; its log says why"))
