"""Errors over HTTP: RFC 9457 problem documents, and never a traceback."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage

from sow.core.clock import SECOND_US
from sow.core.media_types import PROBLEM
from sow.errors import Busy, ClientError, SowError, TooLarge, TooManyLogons
from sow.server.http.preconditions import RangeNotSatisfiable

log = logging.getLogger("sow")

REFUSED: web.AppKey["Counter[str]"] = web.AppKey("refused", Counter)
"""Refused requests by the reason of their error: a few dozen reasons."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

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
    """Turn exceptions of a handler into problem documents."""
    try:
        return await handler(request)
    except SowError as error:
        _count(request, type(error).reason)
        return problem(error)
    except web.RequestPayloadError as error:
        return problem(ClientError(f"the body cannot be read: {_one_line(error)}"))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        response = problem(HTTP_ERRORS.get(error.status) or ClientError(error.reason))
        if allow := error.headers.get("Allow"):
            response.headers["Allow"] = allow
        return response
    except (ConnectionError, TimeoutError):
        # The client has disconnected; nobody reads this answer.
        return problem(ClientError("the connection was lost before the request was complete"))
    except BadHttpMessage as error:
        return problem(ClientError(f"the request is not HTTP: {error.message.splitlines()[0]}"))
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        _count(request, SowError.reason)
        return problem(SowError("the server failed on this request; its log says why"))
