"""WebSocket: frames of command lines in, frames of lines out (docs/websocket.md).

Here is the life of a client's connection, a state machine; `sow.server.net.command_pump` executes
its commands, `sow.server.net.session_writer` writes to it, and
`sow.server.net.ws_memory_accounting` accounts for its messages.

    HANDSHAKE ──opened──> OPEN ──────eof──────> DRAINING: answer what came, then close
        └──eof──> HALF_CLOSED ──opened──────────────┘
    OPEN, DRAINING ──session ended──> CLOSING: the last line is written, send the close frame
    any ──lost──> CLOSED

A client that vanished without closing is detected by the ping that it does not answer (`Pings`).
Nothing arrives from a client whose socket is paused because its earlier messages are still being
executed: its pong is behind them. So silence counts only while the socket is read, which aiohttp's
own pings do not consider.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from aiohttp import WSMessage, WSMsgType, web

from sow.errors import ClientError, StoreError
from sow.protocol.replies import LINES
from sow.security.authorization import Permissions
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.http.preconditions import MOMENTS
from sow.server.http.request_origin import client_address
from sow.server.http.route import WEBSOCKET, operation, route
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import CommandReader, LogonSource
from sow.server.net.connection_supervisor import supervised
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_memory_accounting import MessageMemory, close_answer
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session

PING_CHECK_S = 15.0
"""Interval of checks whether anything has arrived; a ping has as long to be answered."""
SILENT_CHECKS = 2
"""Silent checks before a ping: routers that forget idle connections see traffic, and a vanished
client is detected within the idle time of a minute."""


class Pings:
    """The pings of one client, until `stop`; `lose` disconnects a client that answers none."""

    def __init__(
        self, activity: MessageMemory, ping: Callable[[], Awaitable[None]], lose: Callable[[], None]
    ) -> None:
        self._activity = activity
        self._ping = ping
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._received = activity.received
        self._silent = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(PING_CHECK_S, self._check)

    def _check(self) -> None:
        self._timer = self._loop.call_later(PING_CHECK_S, self._check)
        if self._activity.received != self._received or not self._activity.is_read:
            self._received, self._silent = self._activity.received, 0
            return
        self._silent += 1
        if self._silent == SILENT_CHECKS:
            self._task = self._loop.create_task(self._send())
        elif self._silent > SILENT_CHECKS:
            self.stop()
            self._lose()

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._ping()

    def stop(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None


PINGS_AT_ONCE = 50
"""Pings of one client answered before other work runs: half a millisecond."""
BINARY, TEXT = WSMsgType.BINARY, WSMsgType.TEXT
TEXT_PROTOCOL = "sow.text"
"""The subprotocol (RFC 6455 §1.9) of clients that want text frames. Others are passed over."""
GIVEN_UP, STOPPING, LOG_ON = 1008, 1001, 4401
"""Close codes (RFC 6455 §7.4.1): policy violation; going away. The last is ours (§7.4.2), after
HTTP's 401: log on again."""


class Phase(Enum):
    """A phase of a client's connection."""

    HANDSHAKE = auto()
    HALF_CLOSED = auto()
    OPEN = auto()
    DRAINING = auto()
    CLOSING = auto()
    CLOSED = auto()


class Event(Enum):
    """What changes the phase."""

    OPENED = auto()
    """The handshake is answered."""
    EOF = auto()
    """The client sends no more, and may still read."""
    ENDED = auto()
    """The server has ended the session, and its last line is written."""
    LOST = auto()
    """The socket is closed, or was never opened."""


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.HANDSHAKE, Event.OPENED): Phase.OPEN,
    (Phase.HANDSHAKE, Event.EOF): Phase.HALF_CLOSED,
    (Phase.HALF_CLOSED, Event.OPENED): Phase.DRAINING,
    (Phase.OPEN, Event.EOF): Phase.DRAINING,
    (Phase.OPEN, Event.ENDED): Phase.CLOSING,
    (Phase.DRAINING, Event.ENDED): Phase.CLOSING,
    **{(phase, Event.LOST): Phase.CLOSED for phase in Phase},
}
"""The next phase; an event that is not listed changes nothing."""


class Commands(Protocol):
    """The commands of one client: `CommandReader`, or what passes them on."""

    def add(self, frame: bytes) -> bool:
        """Queue a frame; returns whether to stop reading until there is `room`."""
        ...

    def take(self, frames: Sequence[bytes]) -> None:
        """Queue frames."""
        ...

    @property
    def is_full(self) -> bool:
        """As much is queued as may be."""
        ...

    async def room(self) -> None:
        """Return when the socket may be read again."""
        ...

    async def done(self) -> None:
        """Return when everything has been executed, or never will be."""
        ...

    @property
    def awaits(self) -> bool:
        """Another server has not answered yet what was passed on."""
        ...

    def close(self) -> None:
        """The client has disconnected."""
        ...


Reads = Callable[
    [web.Request, ServerRuntime, Executor, SessionWriter, MessageMemory, LogonSource], Commands
]
"""Makes what reads the commands of a client."""


def read_here(
    request: web.Request,
    runtime: ServerRuntime,
    executor: Executor,
    connection: SessionWriter,
    messages: MessageMemory,
    source: LogonSource,
) -> Commands:
    """Carries out commands in this server."""
    moments = request.app[MOMENTS]
    return CommandReader(runtime, executor, connection, messages, source, moments)


class WebSocketClient:
    """One client, from its `request` to its last frame.

    `executor` executes its commands; answers are written once `runtime` reports them durable.
    Raises ClientError if it does not request a WebSocket, ConnectionResetError if it has
    disconnected.
    """

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        request: web.Request,
        authn: RequestAuthenticator,
        rights: Permissions,
        shown: object,
        read: Reads = read_here,
    ) -> None:
        limits = executor.engine.configuration.limits
        # aiohttp refuses messages as long as its limit; ours is inclusive.
        self.socket = web.WebSocketResponse(
            max_msg_size=limits.frame_bytes_max + 1,
            compress=False,
            autoping=False,  # aiohttp would answer all at once
            autoclose=False,  # aiohttp would answer every code with 1000
            protocols=(TEXT_PROTOCOL,),
        )
        if not self.socket.can_prepare(request):
            raise ClientError("this address speaks WebSocket; open it with a WebSocket client")
        below = supervised(request)
        self._runtime = runtime
        self._executor = executor
        self._request = request
        self._phase = Phase.HANDSHAKE
        self._draining: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[bool] | None = None
        self._answered = 0
        self._pings: Pings | None = None
        self._logging_on: asyncio.TimerHandle | None = None
        address = client_address(request)
        session = executor.sessions.open(LINES, runtime.now_us(), rights, shown, address)
        self._connection = SessionWriter(runtime, executor, session, below, self._on_ended)
        self._messages = below.follow_messages(
            request, self._is_following, self._give_up, self._on_eof
        )
        source = LogonSource(authn, address)
        self._commands = read(request, runtime, executor, self._connection, self._messages, source)
        self._messages.hand_over(self._may_take, self._take)

    # Events.

    def _may_take(self) -> bool:
        # What `_read_messages` looks at for each message that aiohttp reads.
        is_open = self._phase is Phase.OPEN and not self._runtime.commit.is_behind
        return is_open and not self._commands.is_full

    def _take(self, frames: list[bytes]) -> None:
        self._commands.take(frames)

    def _is_following(self) -> bool:
        # A closed one is not given up; its connection is being closed.
        return self._phase is Phase.CLOSED or bool(
            self._commands.awaits or self._executor.subscriptions.of(self._connection.session)
        )

    def _give_up(self, reason: str) -> None:
        self._executor.sessions.end(self._connection.session, reason)
        self._runtime.wake()

    def _on_ended(self) -> None:
        self._on(Event.ENDED)

    def _on_eof(self) -> None:
        self._on(Event.EOF)

    def _on(self, event: Event) -> None:
        before, self._phase = self._phase, TRANSITIONS.get((self._phase, event), self._phase)
        if self._phase is before:
            return
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
        loop = asyncio.get_running_loop()
        if self._phase is Phase.DRAINING:
            self._draining = loop.create_task(self._drain())
        elif self._phase is Phase.CLOSING:
            # This waits for the client's close frame.
            code = LOG_ON if self._connection.session.is_barred else GIVEN_UP
            self._closing = loop.create_task(self.socket.close(code=code, message=b""))

    async def _drain(self) -> None:
        """Answer what the client has sent, then close."""
        with contextlib.suppress(ConnectionError, StoreError):
            # The ping detects a client that has disconnected completely, and nothing more is done
            # for it.
            await self.socket.ping()
            await self._messages.executed()
            await self._runtime.durable()
            await self._connection.drained()
            await self.socket.close()

    # Life cycle.

    async def serve(self) -> None:
        """Complete the handshake, then execute what arrives until either side ends it."""
        await self.socket.prepare(self._request)
        if self.socket.ws_protocol == TEXT_PROTOCOL:
            self._connection.write_text()
        self._pings = Pings(self._messages, self.socket.ping, self._lose)
        self._limit_logon()
        self._on(Event.OPENED)
        try:
            await self._run()
        finally:
            self._pings.stop()

    def _limit_logon(self) -> None:
        """A client that is not authenticated gets a connection for as long as a header may take."""
        if not self._connection.session.rights.is_somebody:
            timeout_s = self._executor.engine.configuration.limits.header_timeout_us / 1e6
            loop = asyncio.get_running_loop()
            self._logging_on = loop.call_later(timeout_s, self._end_anonymous, timeout_s)

    def _end_anonymous(self, timeout_s: float) -> None:
        if not self._messages.is_idle:
            self._limit_logon()  # it may be being identified
        elif not self._connection.session.rights.is_somebody:
            self._give_up(
                f"nobody has logged on for {timeout_s:g} s (Limits/HeaderTimeout); log on first, "
                "or show who you are in the handshake"
            )

    def _lose(self) -> None:
        """It answers no ping."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _run(self) -> None:
        self._connection.begin()
        try:
            await self._read_messages()
        except asyncio.CancelledError:
            if self._request.transport is None:
                # The connection is closed and aiohttp cancels the handler: what the client sent
                # before is executed all the same, but for questions that take long.
                session = self._connection.session
                if not self._executor.sessions.is_kept(session):
                    session.disconnect()
                await self._read_messages()
            raise

    async def _read_messages(self) -> None:
        """Read and execute messages until there are no more and all are done."""
        commands, runtime = self._commands, self._runtime
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
            if commands.add(frame):
                await commands.room()
            if runtime.commit.is_behind:
                await self._wait_for_disk()
        await self._answer_close()
        await commands.done()

    async def _answer_close(self) -> None:
        """The client has closed, unless this side has: answer its close frame."""
        if not self.socket.closed and self.socket.close_code is not None:
            # It may have disconnected already: nothing waits for the write.
            await self.socket.close(code=close_answer(self.socket.close_code), drain=False)

    async def _answer(self, message: WSMessage) -> None:
        """Answer a ping, and let other work run between some of many."""
        self._answered += 1
        if message.type is WSMsgType.PING and self._connection.session.ended is None:
            await self.socket.pong(message.data)
        if self._answered % PINGS_AT_ONCE == 0:
            await asyncio.sleep(0)

    async def _wait_for_disk(self) -> None:
        """Read no more while the disk is far behind: TCP slows the publisher."""
        # If the disk refuses, the runtime ends the sessions that wait for it.
        with contextlib.suppress(StoreError):
            await self._runtime.durable()

    async def release(self) -> None:
        """The socket is closed, or was never opened."""
        self._on(Event.LOST)
        if self._logging_on is not None:
            self._logging_on.cancel()
        if self._pings is not None:
            self._pings.stop()
            self._pings = None
        self._commands.close()
        self._connection.close()
        if self._connection.owns:
            self._drop(self._connection.session)
        self._runtime.wake()
        if self._closing is not None:
            with contextlib.suppress(ConnectionError):
                await self._closing
        if (error := self.socket.exception()) is not None:
            # Its frames refer to the socket: a reference cycle.
            error.__traceback__ = error.__context__ = None
        # These refer back to this object, too.
        del self._commands, self._connection, self._messages

    def _drop(self, session: Session) -> None:
        """The session may outlive its socket, and its outbox has to stay within its bounds."""
        runtime, sessions = self._runtime, self._executor.sessions
        if sessions.drop(session, runtime.now_us()):
            session.attach(lambda now_us: sessions.apply_back_pressure(session, now_us))

    async def stop(self) -> None:
        """The server stops: close the connection."""
        await self.socket.close(code=STOPPING, message=b"server stops")


class WebSocketHandler:
    """`GET /v1/ws`."""

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        authn: RequestAuthenticator,
        read: Reads = read_here,
    ) -> None:
        self._runtime = runtime
        self._executor = executor
        self._authn = authn
        self._read = read
        self._clients: set[WebSocketClient] = set()

    @route("GET", WEBSOCKET, "nothing", "WebSocket")
    @operation("open_websocket", answers=())
    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one client; raises ClientError if it does not request a WebSocket."""
        rights, shown = await self._authn.authenticate_request(request)
        client = WebSocketClient(
            self._runtime, self._executor, request, self._authn, rights, shown, self._read
        )
        self._clients.add(client)
        try:
            await client.serve()
        finally:
            self._clients.discard(client)
            await client.release()
        return client.socket

    async def close(self) -> None:
        """Close every connection because the server stops."""
        await asyncio.gather(
            *(client.stop() for client in list(self._clients)), return_exceptions=True
        )
