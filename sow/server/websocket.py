"""WebSocket: frames of command lines in, frames of lines out (contract §4)."""

import asyncio
import contextlib

from aiohttp import WSMsgType, web

from sow.commands import Command
from sow.errors import ClientError, StoreError
from sow.executor import Executor
from sow.server.connection import Connection
from sow.server.driver import Driver
from sow.sessions import Session
from sow.wire import LINES, Refused, read_frame


class WebSocketDoor:
    """`GET /v1/ws`."""

    def __init__(self, driver: Driver, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor
        self._sockets: set[web.WebSocketResponse] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One client, from its first frame to its last."""
        limits = self._executor.engine.configuration.limits
        socket = web.WebSocketResponse(
            max_msg_size=limits.frame_bytes_max, compress=False, heartbeat=30.0
        )
        if not socket.can_prepare(request):
            raise ClientError("this address speaks WebSocket; open it with a WebSocket client")
        await socket.prepare(request)
        driver, executor = self._driver, self._executor
        session = executor.open(LINES, driver.now_us())
        loop = asyncio.get_running_loop()
        closing: list[asyncio.Task[bool]] = []

        def give_up() -> None:
            closing.append(loop.create_task(socket.close(code=1008, message=b"")))

        commands: list[Command | Refused] = []

        def execute() -> None:
            """Carry out all that has come since the loop last waited, in one go."""
            executor.execute_all(connection.session, commands, driver.now_us())
            commands.clear()
            connection.follow()
            driver.wake()

        connection = Connection(driver, executor, session, request, give_up)
        self._sockets.add(socket)
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    frame = message.data.encode()
                elif message.type is WSMsgType.BINARY:
                    frame = message.data
                else:
                    break
                if not commands:
                    loop.call_soon(execute)
                commands.extend(read_frame(frame))
                if driver.behind:
                    # If the disk refuses, the driver itself ends the sessions that wait for it.
                    with contextlib.suppress(StoreError):
                        await driver.durable()
        finally:
            self._sockets.discard(socket)
            if connection.owns:
                execute()
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
            driver.attach(session, lambda: executor.relieve(session, driver.now_us()))

    async def close(self) -> None:
        """Tell every client that the server stops."""
        await asyncio.gather(
            *(socket.close(code=1001, message=b"server stops") for socket in list(self._sockets)),
            return_exceptions=True,
        )
