"""WebSocket: frames of command lines in, frames of lines out (docs/websocket.md).

Here a client comes and goes; what it sends is carried out by `sow.server.net.command_pump`, what it
is sent is written by `sow.server.net.session_writer`, and how much of it is held by
`sow.server.net.ws_memory_accounting`.
"""

import asyncio
import contextlib

from aiohttp import WSMessage, WSMsgType, web

from sow.errors import ClientError, StoreError
from sow.protocol.encodings import LINES
from sow.security.authorization import Permissions
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.http.middleware import client_address
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import Callers, CommandReader
from sow.server.net.connection_supervisor import supervised
from sow.server.net.pings import Pings
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_frame_scanner import close_answer
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session

PINGS_AT_ONCE = 50
"""Pings of one client answered before others have their turn: half a millisecond."""
FINISHED_LOOK_S = 0.02
"""How often it is looked whether all that a client waits for is answered, when it sends no more."""
BINARY, TEXT = WSMsgType.BINARY, WSMsgType.TEXT
GIVEN_UP, STOPPING, LOG_ON = 1008, 1001, 4401
"""Codes of a closed WebSocket (RFC 6455 §7.4.1): a policy was violated; the server goes away. The
last is ours (§7.4.2), after HTTP's 401: log on again."""


class WebSocketClient:
    """One client, from its `request` to its last frame.

    Its commands are carried out by `executor`, and written once `driver` says that they are
    durable. Raises ClientError if it asks for no WebSocket, ConnectionResetError if it has gone.
    """

    def __init__(
        self,
        driver: ServerRuntime,
        executor: Executor,
        request: web.Request,
        authn: RequestAuthenticator,
        rights: Permissions,
        shown: object,
    ) -> None:
        limits = executor.engine.configuration.limits
        # aiohttp refuses what is as long as its limit; ours is what may be.
        self.socket = web.WebSocketResponse(
            max_msg_size=limits.frame_bytes_max + 1,
            compress=False,
            autoping=False,  # which answers all that have come before others have a turn
            autoclose=False,  # which answers each code by 1000
        )
        if not self.socket.can_prepare(request):
            raise ClientError("this address speaks WebSocket; open it with a WebSocket client")
        below = supervised(request)
        self._driver = driver
        self._executor = executor
        self._request = request
        self._closing: asyncio.Task[bool] | None = None
        self._finishing: asyncio.Task[None] | None = None
        self._has_left = self._sends_no_more = False
        self._answered = 0
        self._pings: Pings | None = None
        self._logging_on: asyncio.TimerHandle | None = None
        address = client_address(request)
        session = executor.sessions.open(LINES, driver.now_us(), rights, shown, address)
        self._connection = SessionWriter(driver, executor, session, below, self._close_given_up)
        self._messages = below.follow_messages(
            request, self._is_following, self._give_up, self._begin_to_finish
        )
        self._incoming = CommandReader(
            driver,
            executor,
            self._connection,
            self._messages,
            Callers(authn, address),
        )

    # What happens to it.

    def _is_following(self) -> bool:
        # Who has left is looked at until the socket has gone, which others see to.
        return self._has_left or bool(self._executor.subscriptions.of(self._connection.session))

    def _give_up(self, reason: str) -> None:
        self._executor.sessions.end(self._connection.session, reason)
        self._driver.wake()

    def _close_given_up(self) -> None:
        """Its last line is written: close the socket, which waits for the client to agree."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(
                self.socket.close(code=self._why(), message=b"")
            )

    def _why(self) -> int:
        return LOG_ON if self._connection.session.is_barred else GIVEN_UP

    def _begin_to_finish(self) -> None:
        """The client sends no more, perhaps since before its handshake is answered."""
        self._sends_no_more = True
        if self.socket.prepared and self._finishing is None and not self._has_left:
            self._finishing = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        """The client sends no more: answer what it has sent, then say that this is the end."""
        with contextlib.suppress(ConnectionError, StoreError):
            # A client that has gone altogether is found out by it, and nothing more is done for it.
            await self.socket.ping()
            while not self._messages.is_idle:
                await asyncio.sleep(FINISHED_LOOK_S)
            await self._driver.durable()
            session = self._connection.session
            while session.outbox and session.ended is None:
                await asyncio.sleep(FINISHED_LOOK_S)
            await self.socket.close()

    # Its life.

    async def serve(self) -> None:
        """Shake hands, then carry out what it sends until either side ends it."""
        await self.socket.prepare(self._request)
        self._pings = Pings(self._messages, self.socket.ping, self._lose)
        self._await_logon()
        if self._sends_no_more:
            self._begin_to_finish()
        try:
            await self._carry_out()
        finally:
            self._pings.stop()

    def _await_logon(self) -> None:
        """Who has not said who it is holds a connection for as long as a header may take."""
        if not self._connection.session.rights.is_somebody:
            timeout_s = self._executor.engine.configuration.limits.header_timeout_us / 1e6
            loop = asyncio.get_running_loop()
            self._logging_on = loop.call_later(timeout_s, self._end_unknown, timeout_s)

    def _end_unknown(self, timeout_s: float) -> None:
        if not self._messages.is_idle:
            self._await_logon()  # it may be being found out
        elif not self._connection.session.rights.is_somebody:
            self._give_up(
                f"nobody has logged on for {timeout_s:g} s (Limits/HeaderTimeout); log on first, "
                "or show who you are in the handshake"
            )

    def _lose(self) -> None:
        """It answers no ping: nobody is there."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _carry_out(self) -> None:
        self._connection.begin()
        try:
            await self._take_in()
        except asyncio.CancelledError:
            if self._request.transport is None:
                # The connection has gone, and with it aiohttp's patience: what the client had sent
                # before is carried out all the same.
                await self._take_in()
            raise

    async def _take_in(self) -> None:
        """Carry out what comes, until nothing more does and all of it is done."""
        incoming, driver = self._incoming, self._driver
        async for message in self.socket:
            if message.type is BINARY:
                frame: bytes = message.data
            elif message.type is TEXT:
                frame = message.data.encode()
            elif message.type in (WSMsgType.PING, WSMsgType.PONG):
                await self._answer(message)
                continue
            else:
                break
            if incoming.add(frame):
                await incoming.room()
            if driver.behind:
                await self._wait_for_disk()
        await self._answer_close()
        await incoming.done()

    async def _answer_close(self) -> None:
        """The client has closed, unless this side has: answer its close frame."""
        if not self.socket.closed and self.socket.close_code is not None:
            # It may be gone already: nothing waits for what is written.
            await self.socket.close(code=close_answer(self.socket.close_code), drain=False)

    async def _answer(self, message: WSMessage) -> None:
        """Answer a ping, and let others have their turn between some of many."""
        self._answered += 1
        if message.type is WSMsgType.PING and self._connection.session.ended is None:
            await self.socket.pong(message.data)
        if self._answered % PINGS_AT_ONCE == 0:
            await asyncio.sleep(0)

    async def _wait_for_disk(self) -> None:
        """Read no more while the disk is far behind: TCP slows the publisher."""
        # If the disk refuses, the driver itself ends the sessions that wait for it.
        with contextlib.suppress(StoreError):
            await self._driver.durable()

    async def leave(self) -> None:
        """The socket has gone, or was never there."""
        self._has_left = True
        if self._logging_on is not None:
            self._logging_on.cancel()
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        if self._pings is not None:
            self._pings.stop()
            self._pings = None
        self._incoming.close()
        self._connection.close()
        if self._connection.owns:
            self._drop(self._connection.session)
        self._driver.wake()
        if self._closing is not None:
            with contextlib.suppress(ConnectionError):
                await self._closing
        if (error := self.socket.exception()) is not None:
            # Its frames lead back to the socket, in a circle that only the collector would find.
            error.__traceback__ = error.__context__ = None
        # Which lead back here, too.
        del self._incoming, self._connection, self._messages

    def _drop(self, session: Session) -> None:
        """The session may stay without its socket, and its queue has to be kept in bounds."""
        driver, sessions = self._driver, self._executor.sessions
        if sessions.drop(session, driver.now_us()):
            driver.attach(session, lambda: sessions.apply_back_pressure(session, driver.now_us()))

    async def stop(self) -> None:
        """The server stops: tell the client."""
        await self.socket.close(code=STOPPING, message=b"server stops")


class WebSocketHandler:
    """`GET /v1/ws`."""

    def __init__(
        self, driver: ServerRuntime, executor: Executor, authn: RequestAuthenticator
    ) -> None:
        self._driver = driver
        self._executor = executor
        self._authn = authn
        self._clients: set[WebSocketClient] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One client, from its first frame to its last; raises ClientError if it asks for no
        WebSocket."""
        rights, shown = await self._authn.authenticate_request(request)
        client = WebSocketClient(self._driver, self._executor, request, self._authn, rights, shown)
        self._clients.add(client)
        try:
            await client.serve()
        finally:
            self._clients.discard(client)
            await client.leave()
        return client.socket

    async def close(self) -> None:
        """Tell every client that the server stops."""
        await asyncio.gather(
            *(client.stop() for client in list(self._clients)), return_exceptions=True
        )
