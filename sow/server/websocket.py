"""WebSocket: frames of command lines in, frames of lines out (docs/websocket.md).

What a client sends is carried out a little in each turn of the loop, so that no frame delays others
for longer than a command takes. Meanwhile its socket is not read: TCP slows the client.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from aiohttp import WSMsgType, web

from sow.commands import Command
from sow.delivery.sessions import Session
from sow.encodings import LINES
from sow.errors import ClientError, StoreError
from sow.requests.executor import Executor
from sow.server.connection import Connection
from sow.server.connections import MessageWatch, watched
from sow.server.driver import Driver
from sow.server.inbox import Inbox
from sow.wire import Refused

TURN_S = 0.002
"""How long one client's commands may keep the loop, but for the end of the last one."""
INBOX_BYTES_MAX = 256 * 1024
"""So much is taken in before what came first is carried out: what one read of a socket gives."""
LONG_FILTER_CHARS = 4 * 1024
"""A filter so long is compiled beside the loop: it may take a quarter of a second."""
FULL_PAUSE_S = 0.02
"""How long to wait for a client that has not read its answers before looking again."""


class Incoming:
    """What one client sends, from its frames to the steps of the executor.

    A client whose queue is full of answers has to read some before more is carried out for it.
    """

    def __init__(
        self, driver: Driver, executor: Executor, connection: Connection, messages: MessageWatch
    ) -> None:
        self._driver = driver
        self._executor = executor
        self._connection = connection
        self._messages = messages
        messages.is_following = lambda: bool(executor.subscriptions.of(connection.session))
        messages.give_up = self._give_up
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox()
        self._steps: Iterator[None] | None = None
        self._next: asyncio.Handle | None = None
        self._turned: asyncio.Future[None] | None = None
        self._compiling: asyncio.Task[None] | None = None

    def add(self, frame: bytes) -> None:
        """A frame has come; what has come with it is carried out together."""
        self._messages.take()
        self._inbox.add(frame)
        if not self._busy:
            self._next = self._loop.call_soon(self._turn)

    @property
    def _busy(self) -> bool:
        return self._next is not None or self._compiling is not None

    async def room(self) -> None:
        """Return when the socket may be read again."""
        while self._inbox.bytes > INBOX_BYTES_MAX:
            await self._turn_taken()

    async def done(self) -> None:
        """Return when everything has been carried out, or never will be."""
        while self._busy:
            await self._turn_taken()

    async def _turn_taken(self) -> None:
        self._turned = self._loop.create_future()
        await self._turned

    def _turn(self) -> None:
        self._next = None
        connection, session = self._connection, self._connection.session
        try:
            if session.ended is not None or not connection.owns:
                self._drop()
            elif session.outbox.full:
                self._executor.apply_back_pressure(session, self._driver.now_us())
                if session.ended is not None:
                    connection.write()
                self._next = self._loop.call_later(FULL_PAUSE_S, self._turn)
            else:
                if self._carry_out() and self._compiling is None:
                    self._next = self._loop.call_soon(self._turn)
                connection.follow()
            self._driver.wake()
        finally:
            if self._turned is not None and not self._turned.done():
                self._turned.set_result(None)

    def _carry_out(self) -> bool:
        """Take steps for as long as a turn lasts; whether there is more to do."""
        until = self._loop.time() + TURN_S
        while True:
            if self._steps is None:
                commands = self._inbox.take()
                if not commands:
                    self._messages.carried_out()
                    return False
                session = self._connection.session
                self._steps = self._executor.carry_out(session, commands, self._driver.now_us)
                if filters := self._long_filters(commands):
                    self._compiling = self._loop.create_task(self._compile(filters))
                    return True
            for _ in self._steps:
                if self._loop.time() >= until:
                    return True
            self._steps = None
            # The rest is for the session that a logon may have taken up.
            self._connection.follow()

    def _long_filters(self, commands: list[Command | Refused]) -> list[str]:
        """Filters that take long to compile and are not at hand."""
        has = self._executor.engine.has_filter
        return [
            command.filter
            for command in commands
            if isinstance(command, Command)
            and command.filter is not None
            and len(command.filter) > LONG_FILTER_CHARS
            and not has(command.filter)
        ]

    async def _compile(self, filters: list[str]) -> None:
        """Make filters in a thread, one after the other; then go on with who asks for them."""
        engine = self._executor.engine
        try:
            for text in dict.fromkeys(filters):
                engine.keep_filter(text, await asyncio.to_thread(engine.compiled, text))
        finally:
            self._compiling = None
            self._next = self._loop.call_soon(self._turn)

    def _give_up(self, reason: str) -> None:
        self._executor.end(self._connection.session, reason)
        self._driver.wake()

    def _drop(self) -> None:
        self._inbox.clear()
        self._steps = None

    def close(self) -> None:
        """The client has gone: forget what is left."""
        self._drop()
        if self._compiling is not None:
            self._compiling.cancel()
        if self._next is not None:
            self._next.cancel()
            self._next = None


class WebSocketDoor:
    """`GET /v1/ws`."""

    def __init__(self, driver: Driver, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor
        self._sockets: set[web.WebSocketResponse] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One client, from its first frame to its last."""
        limits = self._executor.engine.configuration.limits
        # aiohttp refuses what is as long as its limit; ours is what may be.
        socket = web.WebSocketResponse(
            max_msg_size=limits.frame_bytes_max + 1, compress=False, heartbeat=30.0
        )
        if not socket.can_prepare(request):
            raise ClientError("this address speaks WebSocket; open it with a WebSocket client")
        messages = watched(request).follow_messages(request)
        await socket.prepare(request)
        driver, executor = self._driver, self._executor
        session = executor.open(LINES, driver.now_us())
        loop = asyncio.get_running_loop()
        closing: list[asyncio.Task[bool]] = []

        def give_up() -> None:
            closing.append(loop.create_task(socket.close(code=1008, message=b"")))

        connection = Connection(driver, executor, session, request, give_up)
        incoming = Incoming(driver, executor, connection, messages)
        self._sockets.add(socket)
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    incoming.add(message.data.encode())
                elif message.type is WSMsgType.BINARY:
                    incoming.add(message.data)
                else:
                    break
                await incoming.room()
                if driver.behind:
                    # If the disk refuses, the driver itself ends the sessions that wait for it.
                    with contextlib.suppress(StoreError):
                        await driver.durable()
            await incoming.done()
        finally:
            self._sockets.discard(socket)
            incoming.close()
            connection.close()
            if connection.owns:
                self._drop(connection.session)
            driver.wake()
            for task in closing:
                with contextlib.suppress(ConnectionError):
                    await task
        return socket

    def _drop(self, session: Session) -> None:
        """The socket has gone; the session may stay, and its queue has to be kept in bounds."""
        driver, executor = self._driver, self._executor
        if executor.drop(session, driver.now_us()):
            driver.attach(session, lambda: executor.apply_back_pressure(session, driver.now_us()))

    async def close(self) -> None:
        """Tell every client that the server stops."""
        await asyncio.gather(
            *(socket.close(code=1001, message=b"server stops") for socket in list(self._sockets)),
            return_exceptions=True,
        )
