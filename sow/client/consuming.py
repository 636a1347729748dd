"""Consuming a queue: messages are leased to this client, which acknowledges each when it is done.

A consumer has a connection of its own, and with it a session of the server: its leases belong to
that. A broken connection is opened again, and the session taken up with what it holds. Where the
server has given it up, a new one begins: what was held comes back when its leases end, and an
acknowledgement of it says that it counts no more. Leaving gives back what is not acknowledged, as
if it had never been delivered.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

import orjson

from sow.client.errors import TAKEN_ELSEWHERE, ClosedByServer, Disconnected, is_away
from sow.client.socket import Line, Retry, Socket, Sockets
from sow.client.tables import ShownState
from sow.errors import ClientError, NotPrimary, SowError

LEFT_S = 5.0
"""How long leaving waits for the server to take messages back: their leases end in any case."""


class LeasedMessage(ShownState):
    """One message of a queue. `key` is the SowKey of the record that was published, `bookmark` that
    of its publish, `deliveries` how often it was delivered."""

    _shown = ("key", "bookmark", "deliveries", "body")

    def __init__(self, line: Line, settle: "Callable[[LeasedMessage, bool], Any]") -> None:
        self._line = line
        self._settle = settle
        self.bookmark = line.bm or ""
        self.key = line.k or ""
        self.deliveries = line.deliveries

    @property
    def body(self) -> bytes:
        """The message as it was published."""
        return self._line.body

    def document(self) -> Any:
        """The message as Python objects (`Message.document`)."""
        return self._line.document()

    async def ack(self) -> bool:
        """The message is done; returns when that is durable. False where the lease was over, so
        that somebody else gets it, or has it."""
        return bool(await self._settle(self, False))

    async def cancel(self) -> bool:
        """Give the message back, as if it had not been delivered."""
        return bool(await self._settle(self, True))


class MessageConsumer(ShownState):
    """Messages of one queue, as they come: an asynchronous iterator, until `close` or the end of
    `async with`. It holds up to `max_backlog` messages that are not acknowledged."""

    _shown = ("queue",)

    def __init__(
        self,
        sockets: Sockets,
        queue: str,
        max_backlog: int,
        retry: Retry,
        closed: "Callable[[MessageConsumer], None]",
    ) -> None:
        self.queue = queue
        self._sockets = sockets
        self._backlog = max_backlog
        self._retry = retry
        self._closed = closed
        self._socket: Socket | None = None
        self._session, self._seen = "", 0
        self._ready: deque[LeasedMessage] = deque()
        self._held: dict[str, LeasedMessage] = {}
        self._waiting: dict[str, tuple[asyncio.Future[int], bytes]] = {}
        """Acks that are awaited, and what was sent for each, by their cids."""
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._failure: SowError | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Subscribe, unless that was done; raises what the server refuses it with."""
        if self._reader is None:
            await self._begin_again(await self._sockets.for_writes())
            self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _begin_again(self, socket: Socket) -> None:
        """Subscribe in a new session, where messages are leased."""
        try:
            await self._begin(socket)
        except NotPrimary as error:
            await self._begin(await self._sockets.after(error, socket.url))

    async def _begin(self, socket: Socket) -> None:
        self._socket, self._session, self._seen = socket, socket.session, 0
        self._ready.clear()
        self._held.clear()
        for waiting, _ in self._waiting.values():
            if not waiting.done():
                waiting.set_result(0)  # what it held is nobody's now, or soon
        self._waiting.clear()
        opts = f"max_backlog={self._backlog}"
        cid = await socket.command("subscribe", t=self.queue, opts=opts)
        while True:
            lines = await self._receive(socket)
            acks = [line for line in lines if line.c == "ack" and line.cid == cid]
            if acks and acks[0].failed:
                await socket.close()
                raise acks[0].error()
            self._take(lines)
            if acks:
                return

    async def _receive(self, socket: Socket) -> Sequence[Line]:
        lines = await socket.receive()
        self._seen += len(lines)
        return lines

    def _take(self, lines: Sequence[Line]) -> None:
        for line in lines:
            if line.c == "p":
                message = LeasedMessage(line, self._settle)
                self._held[message.bookmark] = message
                self._ready.append(message)
            elif line.c == "ack" and line.cid in self._waiting:
                self._answer(self._waiting.pop(line.cid)[0], line)
            elif line.c == "unsubscribed":
                self._failure = ClientError(line.detail or f"the consumer ended: {line.reason}")
        self._news.set()

    def _answer(self, waiting: "asyncio.Future[int]", line: Line) -> None:
        if waiting.done():
            return
        if line.failed and line.reason in TAKEN_ELSEWHERE:
            # It leads no more: its leases end by themselves.
            waiting.set_result(0)
        elif line.failed:
            waiting.set_exception(line.error())
        else:
            waiting.set_result(line.acknowledged or line.cancelled or 0)

    async def _read(self) -> None:
        """Take what comes, and open the connection again where it breaks."""
        while self._failure is None:
            assert self._socket is not None
            try:
                self._take(await self._receive(self._socket))
            except Disconnected as error:
                try:
                    await self._return(error)
                except SowError as final:
                    self._failure = final
            except SowError as error:
                self._failure = error
        for waiting, _ in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._failure)
        self._news.set()

    async def _return(self, error: SowError) -> None:
        """Take the session up again, or begin another one."""
        is_gone = isinstance(error, ClosedByServer)
        async for _ in self._retry.attempts():
            session = None if is_gone else self._session
            if self._socket is not None:
                await self._socket.give_up()
            try:
                socket = await self._sockets.connect(session, self._seen if session else None)
                if socket.resumed:
                    await self._go_on(socket)
                else:
                    await self._begin_again(socket)
            except SowError as again:
                if not (is_away(again) or again.reason in TAKEN_ELSEWHERE):
                    raise
                error = again
                continue
            return
        raise error

    async def _go_on(self, socket: Socket) -> None:
        """The session has what it held, and its lines go on where they were read; what it was sent
        last may not have arrived. Sent again, it does nothing more."""
        self._socket = socket
        for _, frame in [*self._waiting.values()]:
            await socket.send(frame)

    async def _settle(self, message: LeasedMessage, cancels: bool) -> int:
        """Acknowledge a message, or give it back; returns whether it was held."""
        if self._held.get(message.bookmark) is not message:
            return 0  # of a session that is gone, or settled before
        del self._held[message.bookmark]
        more = {"opts": "cancel"} if cancels else {}
        named = {"t": self.queue, "bm": message.bookmark, "a": "persisted"}
        return await self._send({"c": "sow_delete", **named, **more})

    async def _send(self, fields: dict[str, str]) -> int:
        """Send a command; returns how many messages its ack says it was about."""
        if self._failure is not None:
            raise self._failure
        socket = self._socket
        assert socket is not None
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        cid = f"m{next(self._numbers)}"  # unique over all connections
        frame = orjson.dumps({**fields, "cid": cid})
        self._waiting[cid] = waiting, frame
        with suppress(Disconnected):  # the reader opens the connection again, and sends it again
            await socket.send(frame)
        return await waiting

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LeasedMessage:
        message = await self.next()
        assert message is not None
        return message

    async def next(self, timeout_s: float | None = None) -> LeasedMessage | None:
        """The next message; None where none has come within `timeout_s` seconds (None: as long as
        it takes). Raises Disconnected when the connection could not be opened again."""
        await self.open()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self._ready:
                    if self._failure is not None:
                        raise self._failure
                    self._news.clear()
                    await self._news.wait()
        return self._ready.popleft() if self._ready else None

    async def close(self) -> None:
        """Give back what is not acknowledged, and end."""
        self._closed(self)
        socket = self._socket
        if socket is None:
            return
        self._held.clear()
        if self._failure is None:
            with suppress(SowError, TimeoutError):
                async with asyncio.timeout(LEFT_S):
                    await self._send({"c": "unsubscribe", "s": "all"})
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._ready.clear()  # what was given back is nobody's here
        self._failure = self._failure or ClientError(f"the consumer of {self.queue} is closed")
        await socket.close()


class QueueRequests(ABC):
    """What a client requests of queues (docs/queues.md)."""

    @abstractmethod
    def _consumer(self, queue: str, max_backlog: int) -> MessageConsumer:
        """A consumer that this client closes at its end."""

    def consume(self, queue: str, *, max_backlog: int = 1) -> MessageConsumer:
        """Messages of a queue: `async with client.consume("jobs") as messages`, then
        the messages are iterated, and each has `ack()`. Up to `max_backlog` are held at a
        time, at most as many as the queue allows. The end of `async with` gives back what was not
        acknowledged."""
        return self._consumer(queue, max_backlog)
