"""Expectations: whether a client that waits for a word may send its body (RFC 9110 §10.1.1).

A client that says `Expect: 100-continue` sends its body after `100 Continue`. aiohttp writes that
before it looks for the address. Here it is written when the body is about to be read: whatever is
refused by then (an address, a method, a user, a size, a form) is refused without the body. After
such an answer the connection ends, since nobody knows whether what comes next is the body.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

from sow.errors import ClientError, clipped

CONTINUE = "100-continue"
EXPECTED = web.RequestKey("expected", str)
"""What a request expects, until that is met."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MakeRequest = Callable[..., Any]


class ExpectationFailed(ClientError):
    """A request that expects what the server does not know."""

    reason = "expectation failed"
    status = 417


def held_back(make: MakeRequest) -> MakeRequest:
    """What makes requests as `make` does, of whose expectations aiohttp sees nothing."""

    def made(message: RawRequestMessage, *more: Any) -> Any:
        expected = message.headers.get(hdrs.EXPECT)
        # One of an older version may have been passed on by a proxy that knows of none.
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
    """Raise ExpectationFailed for a request that expects anything else."""
    expected = request.get(EXPECTED)
    if expected is not None and expected.strip().lower() != CONTINUE:
        raise ExpectationFailed(
            f"Expect: {clipped(expected)} is not known; write {CONTINUE}, or leave it out"
        )
    return await handler(request)


async def go_on(request: web.Request) -> None:
    """The body is about to be read: have it sent by a client that waits for a word."""
    if request.pop(EXPECTED, None) is not None:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # of the answer nothing is written yet


async def end_unmet(request: web.Request, response: web.StreamResponse) -> None:
    """Let an answer be the last one where a body may come or not; a signal."""
    if EXPECTED in request and request.body_exists:
        response.headers[hdrs.CONNECTION] = "close"  # it has been set before
        response.force_close()
