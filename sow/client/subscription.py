"""A subscription: a connection of its own from which typed messages are read.

One connection each, so that a slow reader holds up, and is bounded by, nothing but itself: while
messages are not read the socket fills, and the server treats the session as the slow one it is.

A connection that breaks is made again. Both sides count lines, so the server goes on with the very
next one. If it does not have the session any more, the subscription begins anew and says so with a
message ``gap``, before what makes up for the gap. A session whose server had not agreed yet when
its connection broke is not taken up: what was asked for may never have arrived.

Bookmarks are sent with the name of the log that gave them, so the server that is there then refuses
those of another log, and never goes on from a number that means something else to it.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from sow.client.errors import ClosedByServer, Disconnected, Unreachable
from sow.client.messages import Line, Message
from sow.client.retry import Retry
from sow.client.socket import Socket
from sow.errors import AnotherLog, ClientError, SowError
from sow.history.bookmarks import going_on, is_range, with_log

ACK = "ack"
NOT_LOGGED = (AnotherLog.reason, "invalid bookmark", "invalid topic")
"""Why a subscription that began at `now` may not be able to go on from a bookmark."""


class Connect(Protocol):
    """Opens a socket, for a session that is taken up or a new one."""

    async def __call__(self, session: str | None = None, seen: int | None = None) -> Socket:
        """A socket that is logged on; raises Unreachable."""
        ...


class Subscription:
    """Messages of one topic, in order; an async iterator, and a context manager that ends it.

    It opens when first read or entered, and raises then what the server refuses it with.
    """

    def __init__(
        self,
        connect: Connect,
        command: str,
        fields: Mapping[str, object],
        retry: Retry,
        closed: Callable[["Subscription"], None] = lambda _closed: None,
    ) -> None:
        """`closed` is told when it has been closed."""
        self._connect = connect
        self._command = command
        self._fields = fields
        self._retry = retry
        self._closed = closed
        self._socket: Socket | None = None
        self._session = ""
        self._log_id = ""
        self._seen = 0
        self._cid = ""
        self._ready: deque[Message] = deque()
        self._gap: Message | None = None
        """To be told when the server agrees to go on with what there was."""
        self._ended = False
        self._is_read = False
        self._is_closed = False
        """Its owner has closed it."""
        self.name = ""
        """What the server calls the subscription, once it is open."""
        self.bookmark = ""
        """That of the newest update that has arrived, with the name of its log."""
        self.resumed = 0
        """How often the session was taken up after its connection had broken, without a gap."""
        self.gaps = 0
        """How often it could not be, and the subscription began anew."""

    async def open(self) -> None:
        """Subscribe, unless that was done; raises what the server refuses it with (BadFilter,
        UnknownTopic, ClientError), Unreachable and Disconnected."""
        if self._socket is None and not self._ended:
            socket = await self._connect()
            if self._fields.get("bm") is not None:
                # A number means this log from now on, whichever server is there later.
                bookmark = with_log(str(self._fields["bm"]), socket.log_id)
                self._fields = {**self._fields, "bm": bookmark}
            await self._begin(socket, self._fields)

    async def _begin(self, socket: Socket, fields: Mapping[str, object]) -> None:
        """Subscribe on a new session."""
        self._socket, self._session, self._seen = socket, socket.session, 0
        self._log_id = socket.log_id
        await self._ask(socket, fields)

    async def _ask(self, socket: Socket, fields: Mapping[str, object]) -> None:
        self.name = ""
        # The end of a range is told by the ack that all of it has been told.
        acks = "processed,completed" if is_range(str(fields.get("bm") or "")) else None
        self._cid = await socket.command(self._command, **fields, a=acks)
        while not self.name:
            for line in await self._receive(socket):
                self._take(line)

    def _accept(self, ack: Line) -> None:
        if ack.failed:
            raise ack.error()
        self.name = ack.s
        if self._gap is not None:
            self._ready.append(self._gap)
            self._gap = None
            self.gaps += 1

    async def _receive(self, socket: Socket) -> Sequence[Line]:
        lines = await socket.receive()
        self._seen += len(lines)
        return lines

    def _take(self, line: Line) -> None:
        """Keep a line for whoever reads; acks and bare heartbeats say nothing to them."""
        if line.c == ACK and line.cid == self._cid and not self.name:
            # Here, not where it was sent from: that may have been given up waiting for.
            self._accept(line)
        if line.c == ACK and line.cid == self._cid and line.a == "completed":
            self._ended = True
        if line.c == ACK or (line.c == "heartbeat" and not line.conflated and not line.dropped):
            return
        if line.c in ("p", "group_end") and line.bm is not None:
            self.bookmark = with_log(line.bm, self._log_id)
        self._ended = self._ended or line.c == "unsubscribed"
        self._ready.append(line)

    async def batch(self, timeout_s: float | None = None) -> Sequence[Message]:
        """Every message that has arrived, at least one, waiting for it if need be; none when the
        subscription has ended.

        Raises TimeoutError when none comes within `timeout_s` seconds (None: as long as it takes),
        as often as one likes: what comes later is given later. Raises Disconnected when the
        connection broke and could not be made again in the time of `Retry`, ClosedByServer when the
        server has given the session up, ClientError while another reads, and what `open` raises.
        """
        if self._is_read:
            raise ClientError(
                "this subscription is being read already; read it in one place and hand the "
                "messages on, or open one for each reader"
            )
        self._is_read = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_ready()
        finally:
            self._is_read = False
        found = list(self._ready)
        self._ready.clear()
        return found

    async def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopAsyncIteration when the subscription has ended, and what
        `batch` raises."""
        if not self._ready:
            messages = await self.batch(timeout_s)
            if not messages:
                raise StopAsyncIteration
            self._ready.extend(messages)
        return self._ready.popleft()

    async def _until_ready(self) -> None:
        await self.open()
        while not self._ready and not self._ended:
            assert self._socket is not None
            try:
                lines = await self._receive(self._socket)
            except ClosedByServer:
                raise
            except Disconnected as error:
                if not self._ended:
                    await self._return(error)
                continue
            for line in lines:
                self._take(line)

    async def _return(self, error: Disconnected) -> None:
        """Come back after the connection has broken; raises `error` when it is time to give up."""
        async for _ in self._retry.attempts():
            with contextlib.suppress(Unreachable, Disconnected):
                # The server may not have heard of a subscription that it has given no name, and
                # then the session would go on without it.
                known = (self._session, self._seen) if self.name else (None, None)
                socket = await self._connect(*known)
                if socket.resumed:
                    self._socket = socket
                    self.resumed += 1
                else:
                    await self._restart(socket)
                return
        raise error

    async def _restart(self, socket: Socket) -> None:
        """Follow again on a new session, from the last bookmark where one was asked for at first.

        Every line's bookmark will do, whatever its topic: the server keeps them in order.
        """
        snapshot = self._command.startswith("sow_and_")
        fields = dict(self._fields)
        goes_on = not snapshot and "bm" in fields and bool(self.bookmark)
        if goes_on:
            fields["bm"] = going_on(str(fields["bm"]), self.bookmark)
        reason = socket.reason if self._gap is None else self._gap.reason
        if self.name or self._gap is not None:
            self._gap = Message("gap", reason=reason, exact=snapshot or goes_on)
        try:
            await self._begin(socket, fields)
        except SowError as error:
            if not goes_on or error.reason not in NOT_LOGGED:
                raise
            # What was missed is not kept any more, or never was: go on with what comes.
            self._gap = Message("gap", reason=reason, exact=False)
            await self._ask(socket, self._fields)

    async def _take_whole(self) -> None:
        """Begin anew on the same connection, with whole records where there were deltas; raises
        what `open` raises. What has arrived and was not read is lost."""
        assert self._socket is not None
        self._command = self._command.replace("delta_", "")
        options = [one for one in str(self._fields.get("opts") or "").split(",") if one]
        kept = ",".join(one for one in options if one != "no_empties")  # which is about deltas
        self._fields = {**self._fields, "opts": kept or None}
        try:
            await self._socket.command("unsubscribe", s="all")
            await self._ask(self._socket, self._fields)
        except ClosedByServer:
            raise
        except Disconnected:
            # Nobody knows what was heard of it: who reads next comes back as somebody new.
            self.name, self._gap = "", Message("gap")
        # In the frame of the ack, and before it, the old one was still told of.
        self._ready = deque(message for message in self._ready if message.s == self.name)

    async def close(self) -> None:
        """End the subscription and its connection; what has arrived and was not read is lost."""
        self._ended = self._is_closed = True
        self._closed(self)
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(SowError):
                # Said, so that the server does not keep the session for us to come back.
                await socket.command("unsubscribe", s="all")
            await socket.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await self.next()

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()
