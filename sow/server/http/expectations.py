"""`Expect: 100-continue`: whether a client may send its body (RFC 9110 §10.1.1).

A client with `Expect: 100-continue` sends its body after `100 Continue`. aiohttp writes that before
routing. Here it is written when the body is about to be read: whatever is refused earlier (address,
method, user, size, content type) is refused without the body. After such an answer the connection
is closed, since it is not known whether the next bytes are the body.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from sow.errors import ClientError, clipped

CONTINUE = "100-continue"
EXPECTED = web.RequestKey("expected", str)
"""The expectation of a request, until it is met."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MakeRequest = Callable[..., Any]


class ExpectationFailed(ClientError):
    """An expectation that the server does not support."""

    reason = "expectation failed"
    status = 417


def with_deferred_expectations(make: MakeRequest) -> MakeRequest:
    """Wraps the request factory `make`, hiding expectations from aiohttp."""

    def made(message: RawRequestMessage, *more: Any) -> Any:
        expected = message.headers.get(hdrs.EXPECT)
        # An HTTP/1.0 request may come from a proxy that does not know expectations.
        if not expected or message.version < HttpVersion11:
            return make(message, *more)
        headers = CIMultiDict(message.headers)
        del headers[hdrs.EXPECT]
        request = make(message._replace(headers=CIMultiDictProxy(headers)), *more)
        request[EXPECTED] = expected
        return request

    return made


@web.middleware
async def check_expectation(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Raise ExpectationFailed for any other expectation."""
    expected = request.get(EXPECTED)
    if expected is not None and expected.strip().lower() != CONTINUE:
        raise ExpectationFailed(
            f"Expect: {clipped(expected)} is not known; write {CONTINUE}, or leave it out"
        )
    return await handler(request)


async def send_continue(request: web.Request) -> None:
    """The body is about to be read: let a waiting client send it."""
    if request.pop(EXPECTED, None) is not None:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # nothing of the answer is written yet


async def end_unmet(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after the answer if the body may or may not follow; a signal."""
    if EXPECTED in request and request.body_exists:
        response.headers[hdrs.CONNECTION] = "close"  # it was set before
        response.force_close()
