"""A subscription: a connection of its own, from which typed messages are read.

Each subscription has its own connection, so that a slow reader does not delay others: while it does
not read, the socket fills, and the server treats the session as a slow one.

A broken connection is reopened. Both sides count lines, so the server continues with the next one.
If it does not have the session any more, the subscription starts again, after a message ``gap``. A
session whose subscription was not acknowledged when its connection broke is not resumed: the
command may not have arrived.

Bookmarks are sent with the name of their log, so that a server with another log refuses them
instead of continuing from an unrelated number.

With several addresses the subscription goes on at another server, which does not have the session.
Servers of one log name each place in it alike, so it goes on behind the last bookmark that it was
sent, without gap or repeat. For that it knows a bookmark from its beginning on. What no log has
(conflated topics, views, live windows, groups, deltas to a snapshot) has a new snapshot there.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Self

from sow.client.errors import ClosedByServer, Disconnected, is_away
from sow.client.socket import Line, Message, Retry, Socket, Sockets
from sow.client.tables import ShownState
from sow.errors import AnotherLog, ClientError, NotPrimary, SowError
from sow.history.bookmarks import NOW, going_on, is_range, with_log

ACK = "ack"
NOT_LOGGED = (AnotherLog.reason, "invalid bookmark", "invalid topic")
"""Reasons why a subscription that began at `now` may not be able to resume from a bookmark."""


OF_THE_SNAPSHOT = ("as_of", "order_by", "top_n", "skip_n")
"""Fields of a command that only its snapshot needs."""
NOT_IN_LOG = ("projection", "grouping", "skip_n")
"""Fields of a command whose lines are no changes of the log; `skip_n` makes a live window."""
OPTIONS_NOT_IN_LOG = re.compile(r"\b(live|positions|last=|conflation)")
LEFT_BYTES_MAX = 1024 * 1024
"""Of records that have left: some 30,000 keys. More leave without a line that has a bookmark only
where all that a client sees is withdrawn."""
ELSEWHERE = frozenset(
    {"upstream lost", "not primary", "no quorum", "outcome unknown"}
    | {"disk full", "store error", "store failing"}
)
"""Reasons of a server that ends a session since it cannot go on itself, where another one may."""


async def never(_topic: str) -> bool:
    """Of no topic is known that it is in the log."""
    return False


Record = tuple[str, str | bytes | None]
"""A topic and a key, or a body where there is no key."""


class LeftRecords:
    """Records that have left, the newest `LEFT_BYTES_MAX` of them: of others it may be said
    twice."""

    def __init__(self) -> None:
        self._found: dict[Record, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._found)

    def add(self, record: Record) -> None:
        """A record has left."""
        if record not in self._found:
            self._found[record] = None
            self._bytes += _size(record)
            while self._bytes > LEFT_BYTES_MAX:
                self.take(next(iter(self._found)))

    def take(self, record: Record) -> bool:
        """Forget a record; returns whether it had left."""
        if record not in self._found:
            return False
        del self._found[record]
        self._bytes -= _size(record)
        return True

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
        self._bytes = 0


def _size(record: Record) -> int:
    return sum(len(part or "") for part in record)


class Subscription(ShownState):
    """Messages of one topic, in order; an async iterator, and a context manager that ends it.

    It opens when first read or entered, and raises the errors of the server then.
    """

    _shown = ("name", "bookmark", "resumed", "gaps", "advice")

    def __init__(
        self,
        sockets: Sockets,
        command: str,
        fields: Mapping[str, object],
        retry: Retry,
        closed: Callable[["Subscription"], None] = lambda _closed: None,
        is_logged: Callable[[str], Awaitable[bool]] = never,
    ) -> None:
        """`closed` is called when it has been closed; `is_logged` whether the lines of a topic are
        the changes of the log."""
        self._sockets = sockets
        self._connect = sockets.connect
        self._is_logged = is_logged
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
        self._was_open = False
        """The server has acknowledged it before, so that a new beginning is a gap."""
        self._is_whole = False
        """The snapshot has come, of a subscription with one."""
        self._gap: Message | None = None
        """The gap to report when the server acknowledges the new subscription."""
        self._left = LeftRecords()
        """With several addresses: those since `bookmark`, as only lines of what begins at one say
        where. A replay from there says it again."""
        self._ended = False
        self._is_read = False
        self._is_closed = False
        """Its owner has closed it."""
        self.name = ""
        """The server's name of the subscription, once it is open."""
        self.advice: tuple[str, ...] = ()
        """Sentences on fields that no record of its snapshot has, such as misspelt ones."""
        self.bookmark = ""
        """The bookmark of the newest update received, with the name of its log; with several
        addresses that of the beginning before there is one."""
        self.resumed = 0
        """How often it went on without a gap: in its session, or elsewhere from its bookmark."""
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
            self._adopt(socket)
            try:
                await self._begin(self._fields)
            except SowError as error:
                if not (self._sockets.addresses.are_several and is_away(error)):
                    raise
                self._sockets.addresses.leave(socket.url)
                await self._return(error)

    def _adopt(self, socket: Socket) -> None:
        """Go on with a new session."""
        self._socket, self._session, self._seen = socket, socket.session, 0
        self._log_id = socket.log_id

    async def _begin(self, fields: Mapping[str, object], command: str | None = None) -> None:
        """Subscribe on a new session, at the primary if a follower does not have the topic."""
        assert self._socket is not None
        try:
            await self._subscribe(self._socket, fields, command)
        except NotPrimary as error:
            await self._socket.close()
            self._adopt(await self._sockets.after(error, self._socket.url))
            await self._subscribe(self._socket, fields, command)

    async def _subscribe(
        self, socket: Socket, fields: Mapping[str, object], command: str | None = None
    ) -> None:
        self.name = ""
        command = command or self._command
        if command.startswith("sow_and_"):
            self._is_whole = False
        elif self._sockets.addresses.are_several and fields.get("bm") in (None, "now"):
            await self._note_beginning(socket)
        # The ack "completed" marks the end of a range.
        acks = "processed,completed" if is_range(str(fields.get("bm") or "")) else None
        self._cid = await socket.command(command, **fields, a=acks)
        while not self.name:
            for line in await self._receive(socket):
                self._take(line)

    async def _note_beginning(self, socket: Socket) -> None:
        """Learn the bookmark of this moment, by a query of no records: where to go on elsewhere if
        nothing comes before the connection is lost."""
        cid = await socket.command("sow", t=self._fields["t"], top_n=0, a="completed")
        is_answered = False
        while not is_answered:
            for line in await self._receive(socket):
                if line.c == "group_end" and line.bm is not None:
                    self.bookmark = with_log(line.bm, self._log_id)
                is_answered = is_answered or (line.c == ACK and line.cid == cid)

    def _accept(self, ack: Line) -> None:
        if ack.failed:
            raise ack.error()
        self.name, self._was_open = ack.s, True
        self.advice = ack.advice
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
            self._is_whole = self._is_whole or line.c == "group_end"
        if self._sockets.addresses.are_several and self._is_repeated(line):
            return
        self._ended = self._ended or line.c == "unsubscribed"
        self._ready.append(line)

    def _is_repeated(self, line: Line) -> bool:
        """Whether a line says again, at another server, that a record has left."""
        if line.c != "oof":
            if line.bm is not None:
                self._left.clear()
            return False
        record = (line.t, line.k or line.body)
        if line.bm is None:
            self._left.add(record)
            return False
        return self._left.take(record)

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
            except ClosedByServer as error:
                if error.reason not in ELSEWHERE or not self._sockets.addresses.are_several:
                    raise
                self._sockets.addresses.leave(self._socket.url)
                await self._return(error)
                continue
            except Disconnected as error:
                if not self._ended:
                    await self._return(error)
                continue
            for line in lines:
                self._take(line)

    async def _return(self, error: SowError) -> None:
        """Reconnect after the connection has broken; raises `error` when it is time to give up."""
        async for _ in self._retry.attempts():
            # A subscription that was not acknowledged may not have arrived, and the session would
            # continue without it.
            known = (self._session, self._seen) if self.name else (None, None)
            if self._socket is not None:
                await self._socket.give_up()
            socket: Socket | None = None
            try:
                socket = await self._connect(*known)
                if socket.resumed:
                    self._socket = socket
                    self.resumed += 1
                else:
                    is_same_log = socket.log_id == self._log_id
                    self._adopt(socket)
                    if not await self._goes_on():
                        await self._restart(socket.reason, is_same_log)
                return
            except SowError as found:
                if not is_away(found):
                    raise
                if socket is not None:
                    self._sockets.addresses.leave(socket.url)
        raise error

    async def _goes_on(self) -> bool:
        """Subscribe on a new session behind the last bookmark, if there are several addresses;
        returns whether the log has what follows."""
        place = self._place()
        if not place or not self._sockets.addresses.are_several:
            return False
        fields = dict(self._fields)
        if self._command.startswith("sow_and_"):
            if not (self._is_whole and await self._is_in_log()):
                return False
            fields = {name: one for name, one in fields.items() if name not in OF_THE_SNAPSHOT}
        fields["bm"] = place
        is_exact = self._gap is None
        try:
            await self._begin(fields, self._command.removeprefix("sow_and_"))
        except SowError as error:
            if error.reason not in NOT_LOGGED:
                raise
            return False
        self.resumed += is_exact
        return True

    def _place(self) -> str:
        """The `bm` with which it goes on: behind what has come, else where it has begun; empty
        where that is not known."""
        given = str(self._fields.get("bm") or "")
        if self.bookmark:
            return going_on(given, self.bookmark)
        return "" if given in NOW else given

    async def _is_in_log(self) -> bool:
        """Whether what follows a snapshot is the changes of the log."""
        options = str(self._fields.get("opts") or "")
        if "delta" in self._command or OPTIONS_NOT_IN_LOG.search(options):
            return False
        is_derived = any(name in self._fields for name in NOT_IN_LOG)
        return not is_derived and await self._is_logged(str(self._fields["t"]))

    async def _restart(self, closed_for: str, is_same_log: bool) -> None:
        """Subscribe on a new session, from the last bookmark if the subscription began with one.

        The bookmark of any line works, whatever its topic: all are in one order.
        """
        if self.bookmark and "as_of" in self._fields:
            # The past was sent: what is missing are the changes since.
            kept = self._fields.items()
            fields = {name: one for name, one in kept if name not in OF_THE_SNAPSHOT}
            self._command = self._command.removeprefix("sow_and_")
            self._fields = {**fields, "bm": self.bookmark}
        snapshot = self._command.startswith("sow_and_")
        fields = dict(self._fields)
        goes_on = not snapshot and "bm" in fields and bool(self.bookmark)
        if goes_on:
            fields["bm"] = going_on(str(fields["bm"]), self.bookmark)
        reason = closed_for if self._gap is None else self._gap.reason
        if self._was_open:
            begins = is_same_log and "bm" in fields and bool(self._place())
            self._gap = Message("gap", reason=reason, exact=snapshot or goes_on or begins)
        try:
            await self._begin(fields)
        except SowError as error:
            if not goes_on or error.reason not in NOT_LOGGED:
                raise
            # The missed updates are not in the log: continue with new ones.
            self._gap = Message("gap", reason=reason, exact=False)
            await self._begin(self._fields)

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
