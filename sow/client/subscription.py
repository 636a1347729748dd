"""A subscription: a connection of its own, from which typed messages are read.

Each subscription has its own connection, so that a slow reader does not delay others: while it does
not read, the socket fills, and the server treats the session as a slow one.

A broken connection is reopened. Both sides count lines, so the server continues with the next one.
If it does not have the session any more, the subscription starts again, after a message ``gap``. A
session whose subscription was not acknowledged when its connection broke is not resumed: the
command may not have arrived.

Bookmarks are sent with the name of their log, so that a server with another log refuses them
instead of continuing from an unrelated number.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from sow.client.errors import ClosedByServer, Disconnected, Unreachable
from sow.client.messages import Line, Message
from sow.client.socket import Retry, Socket
from sow.errors import AnotherLog, ClientError, SowError
from sow.history.bookmarks import going_on, is_range, with_log

ACK = "ack"
NOT_LOGGED = (AnotherLog.reason, "invalid bookmark", "invalid topic")
"""Reasons why a subscription that began at `now` may not be able to resume from a bookmark."""


class Connect(Protocol):
    """Opens a socket, for a resumed session or a new one."""

    async def __call__(self, session: str | None = None, seen: int | None = None) -> Socket:
        """A socket after its logon; raises Unreachable."""
        ...


class Subscription:
    """Messages of one topic, in order; an async iterator, and a context manager that ends it.

    It opens when first read or entered, and raises the errors of the server then.
    """

    def __init__(
        self,
        connect: Connect,
        command: str,
        fields: Mapping[str, object],
        retry: Retry,
        closed: Callable[["Subscription"], None] = lambda _closed: None,
    ) -> None:
        """`closed` is called when it has been closed."""
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
        """The gap to report when the server acknowledges the new subscription."""
        self._ended = False
        self._is_read = False
        self._is_closed = False
        """Its owner has closed it."""
        self.name = ""
        """The server's name of the subscription, once it is open."""
        self.bookmark = ""
        """The bookmark of the newest update received, with the name of its log."""
        self.resumed = 0
        """How often the session was resumed without a gap."""
        self.gaps = 0
        """How often it could not be resumed, and the subscription started again."""

    async def open(self) -> None:
        """Subscribe, unless that was done; raises BadFilter, UnknownTopic, ClientError, Unreachable
        and Disconnected."""
        if self._socket is None and not self._ended:
            socket = await self._connect()
            if self._fields.get("bm") is not None:
                # A number means this log, also if another server answers later.
                bookmark = with_log(str(self._fields["bm"]), socket.log_id)
                self._fields = {**self._fields, "bm": bookmark}
            if self._fields.get("as_of") is not None:
                moment = with_log(str(self._fields["as_of"]), socket.log_id)
                self._fields = {**self._fields, "as_of": moment}
            await self._begin(socket, self._fields)

    async def _begin(self, socket: Socket, fields: Mapping[str, object]) -> None:
        """Subscribe on a new session."""
        self._socket, self._session, self._seen = socket, socket.session, 0
        self._log_id = socket.log_id
        await self._subscribe(socket, fields)

    async def _subscribe(self, socket: Socket, fields: Mapping[str, object]) -> None:
        self.name = ""
        # The ack "completed" marks the end of a range.
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
        """Queue a line for the reader, except acks and empty heartbeats."""
        if line.c == ACK and line.cid == self._cid and not self.name:
            # Here, not in the caller of `command`, which may have been cancelled.
            self._accept(line)
        if line.c == ACK and line.cid == self._cid and line.a == "completed":
            self._ended = True
        if line.c == ACK or (line.c == "heartbeat" and not line.conflated and not line.dropped):
            return
        if line.c in ("p", "oof", "group_end") and line.bm is not None:
            self.bookmark = with_log(line.bm, self._log_id)
        self._ended = self._ended or line.c == "unsubscribed"
        self._ready.append(line)

    async def batch(self, timeout_s: float | None = None) -> Sequence[Message]:
        """All messages that have arrived; waits for the first one. Empty when the subscription has
        ended.

        Raises TimeoutError when none comes within `timeout_s` seconds (None: as long as it takes);
        no message is lost by that. Raises Disconnected when the connection broke and could not be
        reopened in the time of `Retry`, ClosedByServer when the server has ended the session,
        ClientError during another read, and what `open` raises.
        """
        if self._is_read:
            raise ClientError(
                "this subscription is being read already; read it in one place and pass the "
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
        """Reconnect after the connection has broken; raises `error` when it is time to give up."""
        async for _ in self._retry.attempts():
            with contextlib.suppress(Unreachable, Disconnected):
                # A subscription that was not acknowledged may not have arrived, and the session
                # would continue without it.
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
        """Subscribe on a new session, from the last bookmark if the subscription began with one.

        The bookmark of any line works, whatever its topic: all are in one order.
        """
        if self.bookmark and "as_of" in self._fields:
            # The past was sent: what is missing are the changes since.
            left_out = ("as_of", "order_by", "top_n", "skip_n")
            fields = {name: one for name, one in self._fields.items() if name not in left_out}
            self._command = self._command.removeprefix("sow_and_")
            self._fields = {**fields, "bm": self.bookmark}
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
            # The missed updates are not in the log: continue with new ones.
            self._gap = Message("gap", reason=reason, exact=False)
            await self._subscribe(socket, self._fields)

    async def _take_whole(self) -> None:
        """Subscribe again on the same connection, without deltas; raises what `open` raises.
        Messages that were not read are lost."""
        assert self._socket is not None
        self._command = self._command.replace("delta_", "")
        options = [one for one in str(self._fields.get("opts") or "").split(",") if one]
        kept = ",".join(one for one in options if one != "no_empties")  # only for deltas
        self._fields = {**self._fields, "opts": kept or None}
        try:
            await self._socket.command("unsubscribe", s="all")
            await self._subscribe(self._socket, self._fields)
        except ClosedByServer:
            raise
        except Disconnected:
            # The commands may not have arrived: the next read opens a new session.
            self.name, self._gap = "", Message("gap")
        # Up to the frame of the ack, messages of the old subscription may come.
        self._ready = deque(message for message in self._ready if message.s == self.name)

    async def close(self) -> None:
        """End the subscription and its connection; messages that were not read are lost."""
        self._ended = self._is_closed = True
        self._closed(self)
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(SowError):
                # So that the server does not keep the session for a reconnect.
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

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
