"""The upstream server of a chained one: where it is, whether it is there, and how it is called.

It is called at `/readyz` every second. Without an answer in time it is lost, also where the link is
silent: a dead machine closes no connection. Then every connection to it is given up at once, and
those who wait for it are notified. Once it answers again, it is back.

The answer names the servers from there up to the one that has the records. A server that finds
itself among them is part of a circle, in which nobody has any: it does not start.

HTTP requests of clients are forwarded (`Forwarder`). An answer is streamed as it comes, in the form
and the compression that the client has requested. A request that cannot be forwarded was not
carried out; one whose answer breaks off is cut off as well, so that nobody takes a part for the
whole. Commands of WebSockets pass through connections that are kept (`sow.server.chained.link`).
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from sow.core.clock import SECOND_US, monotonic_us
from sow.core.definitions import MessageTypeOptions, message_type_options
from sow.errors import (
    ClientError,
    ConfigError,
    NotEntitled,
    SowError,
    TooManyLogons,
    Unauthenticated,
    UpstreamLost,
    clipped,
    described,
)
from sow.server.http.authn_middleware import AS_HEADER, credentials_user, reauthorize_stream
from sow.server.http.body_reading import beginning, send_continue
from sow.server.http.chunked_response import write_part
from sow.server.http.negotiation import CODING
from sow.server.http.preconditions import BOOKMARK_HEADER
from sow.server.http.request_origin import client_address
from sow.server.http.responses import CHAIN_HEADER, LOG_HEADER
from sow.streaming.sessions import BARRED, OUTDATED

log = logging.getLogger("sow")

LOOK_EVERY_S = 1.0
"""A server answers in a millisecond, so this costs it a thousandth of a core for each chained
one."""
ANSWER_S_MAX = 3.0
"""With the interval, four seconds: clients know of a loss within five. No step of a server
takes a twentieth of that."""
SAID_BYTES_MAX = 1000
"""So much is read of what it says: a line."""
OF_CLIENTS = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT)
"""Headers that only a client gives: what it has not requested is not requested for it."""
LOST = UpstreamLost.reason
UNKNOWN = "it has not answered yet"
SAID_ANYWAY = ("c", "a", "cid", "status", "reason", "detail")
REFUSALS: Mapping[int, Callable[[], SowError]] = {
    401: lambda: Unauthenticated("the upstream server refuses these credentials"),
    403: lambda: NotEntitled(
        "the upstream server refuses this user; to act for another takes <Impersonate/>"
    ),
    429: lambda: TooManyLogons(
        "the upstream server has refused too many logons; try again", wait_us=SECOND_US
    ),
}
"""What it means when a WebSocket is refused with a status."""
OF_USERS = (BARRED, OUTDATED, Unauthenticated.reason)
"""Reasons of upstream that are about who shows the credentials, and what that user may do."""
NOTICES = {True: "upstream back", False: LOST}


class Who(NamedTuple):
    """Who a chained server is to its upstream: the credentials, as a header `Authorization`, and
    the user that their user acts for. Those who are the same may share a connection."""

    authorization: str = ""
    acting: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request, also of the one that opens a WebSocket."""
        shown: dict[str, str] = {}
        if self.authorization:
            shown[hdrs.AUTHORIZATION] = self.authorization
        if self.acting is not None:
            shown[AS_HEADER] = self.acting
        return shown


class Refusal(ClientError):
    """What upstream refuses, in its words."""

    def __init__(self, ack: Mapping[str, object]) -> None:
        super().__init__(str(ack.get("detail", "")), reason=str(ack.get("reason", "refused")))
        self._more = {key: ack[key] for key in ack if key not in SAID_ANYWAY}

    def fields(self) -> dict[str, object]:
        """All else that the ack says, such as the position in a filter."""
        return {**super().fields(), **self._more}


class Circle(ConfigError):
    """The upstream of a server is, in the end, that server."""


class Received:
    """What has come over the connections to the upstream server, and how often one was lost."""

    def __init__(self, now_s: float) -> None:
        self.bytes = self.lines = self.reconnects = self.losses = 0
        self.last_s = now_s
        """When the last line has come, or the beginning."""

    def take(self, lines: int, size_bytes: int, now_s: float) -> None:
        """A frame has come."""
        self.lines += lines
        self.bytes += size_bytes
        self.last_s = now_s

    def reconnected(self) -> None:
        """A connection was made again."""
        self.reconnects += 1

    def lost(self) -> None:
        """The server itself was lost."""
        self.losses += 1


class SideTasks:
    """What goes on beside the commands, and nobody waits for. `failed` is called with an error that
    ends one of these tasks, else somebody would wait in vain for what it does."""

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        self._failed = failed
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside all else."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._failed(error)

    def cancel(self) -> None:
        """End them."""
        for task in [*self._running]:
            task.cancel()


def log_failure(error: Exception) -> None:
    """Report an error of this server that concerns no single client."""
    log.error("a chained server failed in what it does for its upstream: %s", described(error))


class UpstreamServer:
    """The upstream at `url`. `node` is the id of this server; with `token` it logs on by itself,
    and acts for its users, else it shows what they show. `encryption` is the TLS context
    for https://, True for the machine's certificates. `sleep` waits for so many seconds, `now_s`
    passes steadily."""

    def __init__(
        self,
        url: str,
        token: str,
        node: str,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        encryption: ssl.SSLContext | bool = True,
        now_s: Callable[[], float] = lambda: monotonic_us() / SECOND_US,
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        self.node = node
        self.http: aiohttp.ClientSession
        self.log_id = ""
        self.bookmark = ""
        """The newest one that it has named."""
        self.now_s = now_s
        self._answered_s = now_s()
        self.received = Received(self._answered_s)
        self._encryption = encryption
        self.why = ""
        """Why it is lost; empty while nobody knows."""
        self.there = asyncio.Event()
        self._above: Sequence[str] = ()
        self._listeners: list[Callable[[bool], None]] = []
        self._sleep = sleep
        self._asking: asyncio.Task[None] | None = None

    @property
    def chain(self) -> list[str]:
        """The ids of the servers from this one up, as far as they are known."""
        return [self.node, *self._above]

    @property
    def is_lost(self) -> bool:
        """It was called, and has not answered as it should."""
        return bool(self.why)

    @property
    def is_there(self) -> bool:
        """It has answered the last request."""
        return self.there.is_set()

    def silent_s(self) -> float:
        """For how long it has not answered; 0 while it answers."""
        return self.now_s() - self._answered_s if self.is_lost else 0.0

    def on_change(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` when it is lost (False) and when it is back."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[bool], None]) -> None:
        """Call it no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def lost(self, more: str = "") -> UpstreamLost:
        """The error of who needs it while it is not there."""
        return UpstreamLost(
            f"the upstream server {self.url} is lost: {more or self.why or UNKNOWN}"
        )

    def check(self) -> None:
        """Raise UpstreamLost unless it is there."""
        if not self.is_there:
            raise self.lost()

    async def reach(self) -> None:
        """Ask it from now on, and return once it is there; raises Circle."""
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._encryption),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            skip_auto_headers=OF_CLIENTS,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        said = ""
        while not await self._look():
            if self.why != said:
                # Once: it may be a long wait.
                said = self.why
                log.warning("waiting for the upstream server %s: %s", self.url, said)
            await self._sleep(LOOK_EVERY_S)
        self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self.http.close()

    async def _ask(self) -> None:
        while True:
            await self._sleep(LOOK_EVERY_S)
            with contextlib.suppress(Circle):
                await self._look()

    async def _look(self) -> bool:
        """Ask it once; returns whether it is there. Raises Circle."""
        why = "it does not answer"
        try:
            async with (
                asyncio.timeout(ANSWER_S_MAX),
                self.http.get(f"{self.url}/readyz", allow_redirects=False) as answer,
            ):
                said = await beginning(answer, SAID_BYTES_MAX)
                text = said.decode(errors="replace").strip()
                above = answer.headers.get(CHAIN_HEADER, "")
                log_id = answer.headers.get(LOG_HEADER, "")
                bookmark = answer.headers.get(BOOKMARK_HEADER, "")
                if not above:
                    why = "what answers there is no SOW server, or one of an earlier version"
                elif not log_id or text.startswith(LOST):
                    why = clipped(text) or "it is not ready"
                else:
                    why = ""
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            above, why = "", failure_of(error) if str(error) else why
        if above:
            self._above = above.split(",")
        if self.node in self._above:
            why = "it is this server itself, or has it as its own upstream: they form a circle"
            self._set(why)
            raise Circle(f"--upstream {self.url}: {why}; give the server that has the records")
        if not why:
            self.log_id, self.bookmark = log_id, bookmark
            self._answered_s = self.now_s()
        self._set(why)
        return not why

    def _set(self, why: str) -> None:
        changes, self.why = self.is_there is bool(why), why
        if not changes:
            return
        if why:
            self.received.lost()
            self.there.clear()
        else:
            self.there.set()
        for listener in [*self._listeners]:
            listener(not why)

    # Calls.

    def who(self, user: str | None, authorization: str, acting: str | None) -> Who:
        """Who a client is to it: by this server's token the `user` that this server knows, else
        who has the credentials that the client has shown, in a header or in its logon."""
        if not self.token:
            return Who(authorization, acting)
        return Who(f"Bearer {self.token}", user or None)

    def reason_here(self, reason: str) -> str:
        """Why a session here ends when upstream has ended its own for a reason."""
        if reason == OUTDATED or reason not in OF_USERS:
            return reason
        return LOST if self.token else BARRED

    async def websocket(self, who: Who, address: str) -> aiohttp.ClientWebSocketResponse:
        """A new WebSocket for a client at an address; raises UpstreamLost, and the error of a
        refusal."""
        self.check()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self.http.ws_connect(
                    f"{self.url}/v1/ws",
                    headers=_headers(who, address),
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=ANSWER_S_MAX),
                )
        except aiohttp.WSServerHandshakeError as error:
            if (refusal := REFUSALS.get(error.status)) is not None:
                raise refusal() from None
            raise self.lost(f"it answers {error.status}") from None
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise self.lost(str(error) or "it does not answer") from None

    def address(self, path: str) -> URL:
        """The address of a path, which is encoded."""
        return URL(self.url + path, encoded=True)

    async def unfold(self, session: str, who: Who, address: str) -> None:
        """Have nothing folded in the queue of a session; raises UpstreamLost."""
        body = {"conflated": False}
        path = self.address(f"/v1/sessions/{session}")
        try:
            async with (
                asyncio.timeout(ANSWER_S_MAX),
                self.http.post(path, json=body, headers=_headers(who, address)) as answer,
            ):
                if answer.status != 200:
                    raise self.lost(f"it answers {answer.status}")
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise self.lost(str(error)) from None

    async def describe(self, topic: str, who: Who, address: str) -> dict[str, object] | None:
        """What it says of a topic; None where it does not say."""
        path = f"/v1/topics/{URL.build(path=topic).raw_path.replace('/', '%2F')}"
        found = await self._found(path, who, address)
        return found if isinstance(found, dict) else None

    async def message_types(self, who: Who, address: str) -> dict[str, MessageTypeOptions]:
        """The message types of its configuration."""
        found = await self._found("/v1/message-types", who, address)
        kinds = map(message_type_options, found if isinstance(found, list) else ())
        return {one.name: one for one in kinds}

    async def _found(self, path: str, who: Who, address: str) -> object:
        self.check()
        try:
            async with (
                asyncio.timeout(ANSWER_S_MAX),
                self.http.get(self.address(path), headers=_headers(who, address)) as answer,
            ):
                return await answer.json() if answer.status == 200 else None
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            raise self.lost(str(error)) from None


def failure_of(error: Exception) -> str:
    """Why a call has failed, as a user can do something about it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        refused = error.certificate_error
        said = getattr(refused, "verify_message", "") or str(refused)
        return f"its certificate is not trusted ({said}); give its authority's: --ca FILE"
    return str(error) or type(error).__name__


def _headers(who: Who, address: str) -> dict[str, str]:
    """The headers of a request for a client at an address: who has guessed a password is said, as
    by any proxy, so that others do not wait for it."""
    headers = who.headers
    if address:
        headers[hdrs.X_FORWARDED_FOR] = address
    return headers


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
