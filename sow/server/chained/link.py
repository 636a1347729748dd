"""Connections to the upstream server that are kept: a WebSocket, and the session behind it.

When the socket is lost, its session goes on upstream for a while and is resumed: both sides count
lines, so nothing is lost and nothing comes twice. Where that is not possible, since upstream has
started again or has waited too long, the owner is notified and goes on by itself.

A line is read as far as a chained server has to know it, and passed on as it came but for the name
of its subscription, which each server gives itself. Beside it goes the update that it stands for,
so that a slow client's queue folds it by the same rules as upstream's would
(`sow.streaming.outbox`).

A pool has the connections that single sessions use, each as long as it needs one. One that has
nothing under way serves the next session of the same user, so ten thousand clients that come at
once need no more of them than there are snapshots under way. There are so many at most: who needs
one more waits, and is refused after a while.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import aiohttp
import msgspec
import orjson

from sow.errors import SowError, TooLarge, TooManyLogons, UpstreamLost, described
from sow.protocol.replies import SentPlace
from sow.security.authentication.credentials import Credentials
from sow.server.chained.upstream import (
    ANSWER_S_MAX,
    Refusal,
    SideTasks,
    UpstreamServer,
    Who,
    log_failure,
)

KEY = b',"k":"'
CLOSE, END = b'{"c":"close"', b'{"c":"unsubscribed"'
QUOTE, BACKSLASH = b'"\\'


class UpstreamLine(msgspec.Struct):
    """The fields of a line that matter here."""

    c: str = ""
    s: str = ""
    t: str = ""
    k: str = ""
    d: msgspec.Raw = msgspec.Raw(b"")
    bm: str = ""
    ts: str = ""
    delta: bool = False
    reason: str = ""
    cid: str | None = None
    a: str = ""
    status: str = ""
    matches: int | None = None
    advice: tuple[str, ...] = ()
    at: int | None = None


read_line = msgspec.json.Decoder(UpstreamLine).decode


def place_of(bookmark: str) -> int:
    """A bookmark, ``SEQ`` or ``SEQ.N``, as a number that compares with others."""
    if "." not in bookmark:
        return int(bookmark)
    seq, _, time_us = bookmark.partition(".")
    return SentPlace(int(seq), int(time_us))


def is_later(place: int, than: int) -> bool:
    """Whether a line of one place comes after another place of the same subscription. Places in
    what a conflated topic or a view of one has sent are ordered by their times: their number, that
    of the newest change in it, may be smaller than that of a snapshot before."""
    if isinstance(place, SentPlace) and isinstance(than, SentPlace):
        return (place.time_us, int(place)) > (than.time_us, int(than))
    return int(place) > int(than)


def time_of(timestamp: str) -> int:
    """The time of a line in microseconds; 0 where it has none."""
    if not timestamp:
        return 0
    seconds, _, rest = timestamp.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * 1_000_000 + int(rest or 0)


def renamed(line: bytes, old: bytes, new: bytes) -> bytes:
    """A line under another name of its subscription; `old` and `new` are fields, ``"s":"f1"``. The
    field stands before everything that a client has written."""
    return line.replace(old, new, 1)


def without_key(line: bytes) -> bytes:
    """A line without its SowKey, which stands before everything that a client has written but the
    key itself, where quotes are escaped."""
    start = line.find(KEY)
    if not 0 <= start < line.find(b',"d":'):
        return line
    end = start + len(KEY)
    while line[end] != QUOTE:
        end += 2 if line[end] == BACKSLASH else 1
    return line[:start] + line[end + 1 :]


def without_ends(lines: Sequence[bytes]) -> Sequence[bytes]:
    """The lines of a frame; where its last one closes the session, without those that end its
    subscriptions, since the clients are sent these by their own sessions that end."""
    if not lines[-1].startswith(CLOSE):
        return lines
    return [line for line in lines if not line.startswith(END)]


def name_field(name: str) -> bytes:
    """The field of a subscription's name."""
    return b'"s":"%b"' % name.encode()


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


LINKS_MAX = 1_000
"""Each is a socket and a session upstream, some ten kilobytes at both ends: those of eight chained
servers are fewer than the connections that a server has by default."""
WAIT_S = 5.0
"""How long one waits for one: a thousand snapshots of a page take less."""
IDLE_S = 2.0
"""How long one stays open without use: a screen that asks once a second keeps it."""


class LinkPool:
    """Connections to `upstream`, `links_max` of them."""

    def __init__(self, upstream: UpstreamServer, links_max: int = LINKS_MAX) -> None:
        self._upstream = upstream
        self._links_max = links_max
        self._idle: dict[Link, Who] = {}
        self._used: set[Link] = set()
        self._opening = 0
        self._freed = asyncio.Condition()
        self._beside = SideTasks(log_failure)

    def __len__(self) -> int:
        return len(self._idle) + len(self._used) + self._opening

    async def take(self, who: Who, owner: LinkOwner, address: str) -> Link:
        """A connection for an owner whose client is at an address; raises UpstreamLost, TooLarge,
        and the error of a refusal."""
        await self._room(who)
        for link in [one for one, other in self._idle.items() if other == who]:
            del self._idle[link]
            if link.is_open:
                link.serve(owner)
                self._used.add(link)
                return link
            await self._close(link)
        return await self._opened(Link(self._upstream, who, owner, "chained", address))

    async def _room(self, who: Who) -> None:
        """Return when there may be one more, or there is one for these."""
        try:
            async with asyncio.timeout(WAIT_S), self._freed:
                while len(self) >= self._links_max and who not in self._idle.values():
                    if self._idle:
                        link = next(iter(self._idle))
                        del self._idle[link]
                        self._beside.start(link.close())
                    else:
                        await self._freed.wait()
        except TimeoutError:
            raise TooLarge(
                f"this chained server has {self._links_max} connections to its upstream server, "
                "all of them in use; send this again later, or start another chained server"
            ) from None

    async def _opened(self, link: Link) -> Link:
        self._opening += 1
        try:
            await link.open()
            self._used.add(link)
        finally:
            self._opening -= 1
            if link not in self._used:
                self._beside.start(self._notify())
        return link

    async def give_back(self, link: Link, is_clean: bool) -> None:
        """Its owner needs it no more; where nothing can come of that any more, another may."""
        if link not in self._used:
            return
        self._used.discard(link)
        if not (is_clean and link.is_open):
            await self._close(link)
            return
        self._idle[link] = link.who
        link.serve(_Nobody(self, link))
        asyncio.get_running_loop().call_later(IDLE_S, self._let_go, link, link.served)
        await self._notify()

    def forget(self, link: Link | None) -> None:
        """It has ended."""
        if link is not None:
            self._used.discard(link)
            self._idle.pop(link, None)
            self._beside.start(self._notify())

    def _let_go(self, link: Link, served: int) -> None:
        if link in self._idle and link.served == served:
            del self._idle[link]
            self._beside.start(self._close(link))

    async def _close(self, link: Link) -> None:
        await link.close()
        await self._notify()

    async def _notify(self) -> None:
        async with self._freed:
            self._freed.notify_all()

    async def close(self) -> None:
        """End those that nobody uses."""
        idle, self._idle = [*self._idle], {}
        for link in idle:
            await link.close()
        self._beside.cancel()


class _Nobody:
    """The owner of a connection that is not in use."""

    def __init__(self, pool: LinkPool, link: Link) -> None:
        self._pool = pool
        self._link = link

    async def take(self, lines: Sequence[bytes]) -> None:
        """Heartbeats and notices."""

    def on_lost(self) -> None:
        """The next one that is needed is opened."""
        self._pool._let_go(self._link, self._link.served)

    async def on_back(self, resumed: bool) -> None:
        """It is let go."""

    def on_refused(self, _error: SowError) -> None:
        """It has ended."""
        self._pool.forget(self._link)
