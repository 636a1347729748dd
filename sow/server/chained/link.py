"""A connection to the upstream server that is kept: a WebSocket, and the session behind it.

When the socket is lost, its session goes on upstream for a while and is resumed: both sides count
lines, so nothing is lost and nothing comes twice. Where that is not possible, since upstream has
started again or has waited too long, the owner is notified and goes on by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import aiohttp
import orjson

from sow.errors import SowError, TooManyLogons, UpstreamLost, described
from sow.security.authentication.credentials import Credentials
from sow.server.chained.lines import without_ends
from sow.server.chained.upstream import (
    ANSWER_S_MAX,
    Refusal,
    UpstreamServer,
    Who,
    log_failure,
)

log = logging.getLogger("sow")

LINK_LOOK_S = 0.01
"""Interval of looks whether a connection is resumed, which takes some milliseconds."""
LINK_PAUSE_S = 0.2
"""Delay before a connection is tried again that was refused in the moment of its server's start."""
SHOWN = ("user", "password", "token")


class LinkOwner(Protocol):
    """Whose connection it is."""

    async def take(self, lines: Sequence[bytes]) -> None:
        """Lines have arrived: all are taken, even where this is cancelled."""
        ...

    def on_lost(self) -> None:
        """The socket is lost; it is tried again."""
        ...

    async def on_back(self, resumed: bool) -> None:
        """There is a socket again; `resumed`: with the same session, which goes on."""
        ...

    def on_refused(self, error: SowError) -> None:
        """Upstream does not accept these credentials any more; the connection has ended."""
        ...


class Link:
    """A connection for `owner`, as `who`, for a client at an `address`; `client` is the name that
    it has upstream. With `exact` nothing is folded upstream when this server is slow: each line is
    of one change, and its bookmark is of that change."""

    def __init__(
        self,
        upstream: UpstreamServer,
        who: Who,
        owner: LinkOwner,
        client: str,
        address: str,
        exact: bool = False,
    ) -> None:
        self._upstream = upstream
        self.who = who
        self._owner = owner
        self._client = client
        self._address = address
        self._owns_name = False
        """It numbers messages of its name: by the time of another session that may be another
        publisher's."""
        self._exact = exact
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._session = ""
        self._seen = 0
        self._running: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[bool]] = set()
        self._logon_cid = f"{upstream.node} logon"  # no client may begin a cid like this
        self._again_acked: asyncio.Future[dict[str, Any]] | None = None
        """The ack of another logon, which is on its way."""
        self.served = 0
        """How many owners it has had beside the first."""
        self.log_id = ""
        """The log of its session."""

    async def open(self) -> None:
        """Connect and log on; raises UpstreamLost, and the error of a refused logon."""
        await self._connect()
        self._upstream.on_change(self._on_change)
        self._running = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_open(self) -> bool:
        """It has a socket."""
        return self._socket is not None

    async def renew(self, who: Who) -> None:
        """Go on as `who`, who shows other credentials of the same user; raises UpstreamLost, and
        upstream's refusal."""
        credentials = Credentials.of_header(who.authorization)
        shown = {name: value for name in SHOWN if (value := getattr(credentials, name))}
        if who.acting is not None:
            shown["as"] = who.acting
        await self._log_on_again(self._client, shown)
        self.who = who

    async def own_name(self, client: str) -> int:
        """Own the name `client` upstream, to number messages; returns its highest number. Raises
        UpstreamLost, and upstream's refusal."""
        ack = await self._log_on_again(client, {"sequence": True})
        self._client, self._owns_name = client, True
        return int(ack["sequence"])

    async def _log_on_again(self, client: str, more: Mapping[str, object]) -> dict[str, Any]:
        """Log on in the session that there is: what it follows goes on. Returns the ack."""
        logon = {"c": "logon", "cid": self._logon_cid, "client": client, **more}
        acked = self._again_acked = asyncio.get_running_loop().create_future()
        await self.send(orjson.dumps(logon))
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                ack = await acked
        except TimeoutError:
            raise self._upstream.lost("it does not answer") from None
        if ack.get("status") == "failure":
            raise Refusal(ack)
        return dict(ack)

    def _without_logon(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Lines without the ack of another logon, after which they are counted from 0."""
        found = []
        for at, line in enumerate(lines, 1):
            ack = orjson.loads(line) if line.startswith(b'{"c":"ack"') else {}
            if ack.get("cid") != self._logon_cid:
                found.append(line)
                continue
            if ack.get("status") != "failure":
                self._seen = len(lines) - at
            acked, self._again_acked = self._again_acked, None
            if acked is not None and not acked.done():
                acked.set_result(ack)
        return found

    def serve(self, owner: LinkOwner) -> None:
        """Be another owner's from now on."""
        self._owner = owner
        self.served += 1

    async def ready(self) -> None:
        """Return once it has a socket, mostly at once; raises UpstreamLost."""
        while self._socket is None:
            self._upstream.check()
            await asyncio.sleep(LINK_LOOK_S)

    async def send(self, frame: bytes) -> None:
        """Send a frame; raises UpstreamLost."""
        if self._socket is None:
            raise self._upstream.lost()
        try:
            await self._socket.send_bytes(frame)
        except (OSError, aiohttp.ClientError) as error:
            raise self._upstream.lost(str(error)) from None

    async def close(self) -> None:
        """End it, and its session upstream."""
        self._upstream.forget(self._on_change)
        for task in (self._running, self._reading):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._shut()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _on_change(self, is_there: bool) -> None:
        if not is_there and self._reading is not None:
            self._reading.cancel()

    async def _connect(self) -> bool:
        """Log on, to the same session if it is there still; returns whether it is."""
        fields: dict[str, object] = {"c": "logon", "cid": "logon", "client": self._client}
        if self._session:
            fields |= {"session": self._session, "seen": self._seen}
        socket = await self._upstream.websocket(self.who, self._address)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await socket.send_bytes(orjson.dumps(fields))
                ack = await self._ack(socket)
            if ack.get("status") == "failure":
                raise Refusal(ack)
            session, log_id = str(ack["session"]), str(ack["log"])
            if self._owns_name and not ack.get("resumed"):
                raise Refusal({"reason": UpstreamLost.reason, "detail": ack.get("reason", "")})
            if self._exact and not ack.get("resumed"):
                await self._upstream.unfold(ack["id"], self.who, self._address)
        except BaseException as error:
            self._end(socket)
            if isinstance(error, OSError | aiohttp.ClientError | TimeoutError):
                raise self._upstream.lost(str(error) or "it does not answer") from None
            if isinstance(error, ValueError | LookupError | TypeError | AttributeError):
                raise self._upstream.lost("it does not answer a logon as a server does") from None
            raise
        resumed = bool(ack.get("resumed"))
        if not resumed:
            self._seen = 0
        self._session, self.log_id = session, log_id
        self._socket = socket
        return resumed

    async def _ack(self, socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
        """The ack of the logon; before it a chained server may say that its upstream is lost."""
        while True:
            answer = await socket.receive()
            if answer.type is not aiohttp.WSMsgType.BINARY:
                raise self._upstream.lost("it has closed the connection")
            for text in answer.data.split(b"\n"):
                line: dict[str, Any] = orjson.loads(text)
                if line["c"] == "close":
                    # It has been replaced, say: its owner is notified as it would be later.
                    await self._owner.take((text,))
                elif line["c"] != "notice":
                    return line

    async def _run(self) -> None:
        """Keep the connection; where this server fails on that, it has ended for its owner."""
        try:
            await self._keep()
        except Exception as error:
            log_failure(error)
            self._shut()
            self._upstream.forget(self._on_change)
            self._owner.on_refused(self._upstream.lost("this server failed; its log says why"))

    async def _keep(self) -> None:
        """Read, and connect again after each loss."""
        while True:
            self._reading = asyncio.get_running_loop().create_task(self._read())
            await asyncio.wait((self._reading,))
            error = None if self._reading.cancelled() else self._reading.exception()
            if isinstance(error, Exception):
                log.error(
                    "a line of %s cannot be handled: %s", self._upstream.url, described(error)
                )
            self._shut()
            self._owner.on_lost()
            try:
                resumed = await self._again()
            except SowError as error:
                self._upstream.forget(self._on_change)
                self._owner.on_refused(error)
                return
            # Nothing is read meanwhile, so what the owner sends now goes before all else.
            with contextlib.suppress(UpstreamLost):
                await self._owner.on_back(resumed)

    async def _read(self) -> None:
        assert self._socket is not None
        received, now_s = self._upstream.received, self._upstream.now_s
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                lines = message.data.split(b"\n")
                self._seen += len(lines)
                received.take(len(lines), len(message.data), now_s())
                if self._again_acked is not None:
                    lines = self._without_logon(lines)
                if lines:
                    await self._owner.take(without_ends(lines))

    async def _again(self) -> bool:
        while True:
            await self._upstream.there.wait()
            try:
                resumed = await self._connect()
                self._upstream.received.reconnected()
                return resumed
            except (UpstreamLost, TooManyLogons):
                await asyncio.sleep(LINK_PAUSE_S)

    def _shut(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            self._end(socket)

    def _end(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        closing = asyncio.get_running_loop().create_task(socket.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
