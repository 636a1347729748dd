"""HTTP requests of a chained server's clients, forwarded to the upstream server.

An answer is streamed as it comes, in the form and the compression that the client has requested. A
request that cannot be forwarded was not carried out; one whose answer breaks off is cut off as
well, so that nobody takes a part for the whole.
"""

import asyncio
from collections.abc import Iterable

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict

from sow.errors import SowError
from sow.server.chained.upstream import UpstreamServer
from sow.server.http.authn_middleware import AS_HEADER, credentials_user, reauthorize_stream
from sow.server.http.body_reading import send_continue
from sow.server.http.chunked_response import write_part
from sow.server.http.negotiation import CODING
from sow.server.http.request_origin import client_address

NOT_FORWARDED = frozenset(
    name.lower()
    for name in (
        hdrs.HOST, hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.TRANSFER_ENCODING, hdrs.TE, hdrs.TRAILER,
        hdrs.UPGRADE, hdrs.PROXY_AUTHORIZATION, hdrs.EXPECT, hdrs.ORIGIN, hdrs.COOKIE,
        hdrs.AUTHORIZATION, hdrs.CONTENT_LENGTH, hdrs.X_FORWARDED_FOR, "Sec-Fetch-Site",
        "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User", AS_HEADER,
    )
)  # fmt: skip
"""Headers that are about the connection, the page that sends the request, or the user, who is said
again."""
NOT_RETURNED = frozenset(
    name.lower()
    for name in (hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.TRANSFER_ENCODING, hdrs.DATE, hdrs.SERVER)
)


class Forwarder:
    """Forwards requests to `upstream`."""

    def __init__(self, upstream: UpstreamServer) -> None:
        self._upstream = upstream
        self._running: set[asyncio.Timeout] = set()
        upstream.on_change(self._on_change)

    def _on_change(self, is_there: bool) -> None:
        if not is_there:
            for one in self._running:
                if not one.expired():  # else it is ending since an earlier loss
                    one.reschedule(0)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """The upstream's answer to a request; raises UpstreamLost."""
        self._upstream.check()
        await send_continue(request)
        request.pop(CODING, None)  # upstream packs its answers
        answer: web.StreamResponse | None = None
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._running.add(limit)
                async with self._upstream.http.request(
                    request.method,
                    self._upstream.address(_path(request)),
                    headers=self._headers(request),
                    data=request.content if request.body_exists else None,
                    allow_redirects=False,
                ) as found:
                    answer = _begun(found)
                    await answer.prepare(request)
                    async for piece in found.content.iter_any():
                        await reauthorize_stream(request)
                        await write_part(answer, memoryview(piece))
                    await answer.write_eof()
                    return answer
        except (OSError, aiohttp.ClientError, TimeoutError, SowError) as error:
            if answer is None:
                raise self._upstream.lost(str(error)) from None
            if request.transport is not None:
                request.transport.abort()
            return answer
        finally:
            self._running.discard(limit)

    def _headers(self, request: web.Request) -> CIMultiDict[str]:
        user = credentials_user(request)
        of_connection = _listed(request.headers.getall(hdrs.CONNECTION, ()))
        headers = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in NOT_FORWARDED and name.lower() not in of_connection
        )
        if request.body_exists and request.content_length is not None:
            headers[hdrs.CONTENT_LENGTH] = str(request.content_length)
        headers[hdrs.X_FORWARDED_FOR] = client_address(request)
        shown = request.headers.get(hdrs.AUTHORIZATION, "")
        who = self._upstream.who(user, shown, request.headers.get(AS_HEADER))
        headers.extend(who.headers)
        return headers


def _path(request: web.Request) -> str:
    """The path and the query of a request, whose target may be a whole address: that is this
    server's, and is not to become a part of upstream's."""
    target = request.raw_path
    return target if target.startswith("/") else request.rel_url.raw_path_qs


def _listed(values: Iterable[str]) -> set[str]:
    """The members of a header that is a list, in lower case."""
    return {one.strip().lower() for value in values for one in value.split(",")}


def _begun(found: aiohttp.ClientResponse) -> web.StreamResponse:
    answer = web.StreamResponse(status=found.status, reason=found.reason)
    for name, value in found.headers.items():
        if name.lower() not in NOT_RETURNED:
            answer.headers.add(name, value)
    return answer
