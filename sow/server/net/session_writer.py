"""Writes a session's outbox to its socket, as fast as that accepts it; and server-sent events.

Frames are written straight to the transport, since equal subscriptions share encoded frames; what
may leave at one moment is written together. What has still to be encoded, rows of an answer or
history from the log, is encoded in slices of the scheduler (`sow.server.loop.scheduler`), however
fast its client reads. The transport's own buffer is kept small: what a slow client has not read
stays in the session's outbox, where it is accounted and bounded.

A stream of server-sent events (docs/http.md), for browsers and curl, only writes. It is a session
with a single command, made from its request. Its frames are chunks of one endless HTTP/1.1
response, rendered once for all equal streams, like WebSocket frames.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from aiohttp import HttpVersion11, hdrs, web

from sow.core.media_types import EVENT_STREAM
from sow.engine.following import FollowingEngine
from sow.errors import ClientError, SowError
from sow.history.bookmarks import parse_bookmark, turn_time
from sow.protocol.commands import OPTIONS_IGNORED, Command, options_of
from sow.protocol.replies import EventEncoding
from sow.server.http.authn_middleware import credentials_of, permissions_of
from sow.server.http.preconditions import MOMENTS
from sow.server.http.request_origin import client_address
from sow.server.http.route import operation, parameters_of, read_flag, read_options, route
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import SupervisedProtocol, supervised
from sow.sessions.commands.executor import Executor
from sow.streaming.outbox.outbox import NOT_YET
from sow.streaming.sessions import Session

SOCKET_BUFFER_BYTES = 256 * 1024
"""What a transport may buffer: enough to keep a fast socket busy between two iterations of the
loop, little beside the bounds of a session."""
WRITE_BYTES = 64 * 1024
"""Encoded bytes that are written at once, the rest in slices: some ten microseconds of work, and
more than what clients that keep up get at a time."""
TEXT_HEAD = b"\x81"
"""The first byte of a final text frame; that of a binary one is 0x82."""
GRACE_S = 2.0
"""How long a client may take to read why its session ended: anything in flight around the world
arrives in less, and a client that does not read releases its file."""


def as_text(frame: bytes) -> bytes:
    """A binary WebSocket frame as a text frame (RFC 6455 §5.6): another opcode, the same payload,
    as lines are JSON, and so UTF-8. Frames stay shared with sessions of the other kind. What is
    empty stays so: a head alone would begin a frame."""
    return TEXT_HEAD + frame[1:] if frame else frame


class SessionWriter:
    """One session on one socket (`below`), from `begin` to `close`.

    `on_end` is called when the server has ended the session and its last line is written.
    """

    name = "writing to a client"

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        session: Session,
        below: SupervisedProtocol,
        on_end: Callable[[], None],
    ) -> None:
        self.session = session
        self._runtime = runtime
        self._executor = executor
        self._transport = below.transport
        self._flow = below.flow
        self._on_end = on_end
        self._aborting: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._is_text = False
        self._on_room: Callable[[], None] | None = None
        self._claim()

    def begin(self) -> None:
        """The handshake is complete: frames may be written."""
        self._transport.set_write_buffer_limits(SOCKET_BUFFER_BYTES)
        self.session.attach(self.write)
        self._resume()

    def write_text(self) -> None:
        """Write frames of a WebSocket as text from now on."""
        self._is_text = True

    def _claim(self) -> None:
        self.session.belong_to(self)

    def follow(self) -> None:
        """Continue with the session that a logon has switched to."""
        if self.session.successor is not None:
            self.session.detach()
            self.session = self.session.successor
            self._claim()
            self.session.attach(self.write)

    @property
    def is_stuck(self) -> bool:
        """The transport's buffer is full, and stays so until the client reads; or the client has
        disconnected, and its last commands may wait for room in its outbox."""
        return self._flow.paused or self.is_gone

    @property
    def is_gone(self) -> bool:
        """The client has disconnected, or is being disconnected."""
        return self._transport.is_closing()

    def lose(self) -> None:
        """Another socket has taken over the session."""
        self.session.detach()
        self._transport.abort()
        self._check_room()

    @property
    def owns(self) -> bool:
        """Whether the session is still this socket's."""
        return self.session.belongs_to(self)

    def _resume(self) -> None:
        """The socket accepts more."""
        self.write(self._runtime.now_us())

    def go_on(self, until_s: float) -> bool:
        """Continue to encode and write until `until_s`; returns whether there is more."""
        return self.write(self._runtime.now_us(), until_s)

    def write(self, now_us: int, until_s: float | None = None) -> bool:
        """Fill the socket with what is released: with frames that are encoded already, and the rest
        in slices; or, with `until_s`, with all until then. Returns whether the socket accepts more
        than there was time for."""
        if self._transport.is_closing():
            self._check_room()
            return False
        session = self.session
        if not self._flow.paused:
            # Straight to the socket: mostly one frame waits, and nobody for its having left.
            frame = session.pull_alone(self._runtime.engine.sequencer.released, now_us)
            if frame is not None:
                self._transport.write(as_text(frame) if self._is_text else frame)
                is_awaited = self._drained is not None or self._on_room is not None
                if not is_awaited and not session.is_paced and session.ended is None:
                    return False
        more = self._fill_socket(now_us, until_s)
        queue = session.outbox.queue
        if queue.entries or queue.unfolded or session.ended is not None:
            self._executor.sessions.apply_back_pressure(session, now_us)
            # A socket that had no time for all of it comes again.
            more = more or self._fill_socket(now_us, until_s)
        if session.ended is not None and self._aborting is None:
            self._give_up()
        if self._on_room is not None:
            self._check_room()
        if more:
            self._runtime.turns.add(self, session.memory.share.client)
        return more

    def _fill_socket(self, now_us: int, until_s: float | None) -> bool:
        """Write frames that are encoded already, up to `WRITE_BYTES`; or, with `until_s`, all until
        then, one at least."""
        session = self.session
        while not self._flow.paused:
            more = self._write_some(now_us, until_s)
            if self._flow.paused:
                break
            if not more:
                if session.is_paced or session.ended is not None or self._drained is not None:
                    self._check_drained()
                return False
            if until_s is None or self._runtime.loop.time() >= until_s:
                return True
        self._flow.wait(self._resume)
        return False

    def _write_some(self, now_us: int, until_s: float | None) -> bool:
        """Hand frames to the socket together, up to `WRITE_BYTES`: a call of the system for each
        would cost more than the copy. Returns whether others may follow."""
        session, frames, room = self.session, list[bytes](), WRITE_BYTES
        queue, released = session.outbox.queue, self._runtime.engine.sequencer.released
        more = True
        while more and room > 0:
            frame = None
            if queue.entries or queue.unfolded:
                frame = session.pull(released, now_us, until_s is not None)
            if frame is None:
                more = False
            elif frame is not NOT_YET:
                frames.append(as_text(frame) if self._is_text else frame)
                room -= len(frame)
            elif until_s is None:
                break
            if until_s is not None and self._runtime.loop.time() >= until_s:
                break
        if frames:
            self._transport.write(b"".join(frames))
        return more

    def wait_for_room(self, resumed: Callable[[], None]) -> None:
        """Call `resumed` once, when the full outbox is within its bounds again, or never will be:
        the session has ended, or is another socket's. Whatever shortens an outbox has it written
        (`PendingOutput.touch`), so this is checked after each write."""
        self._on_room = resumed

    def forget_room(self) -> None:
        """Cancel `wait_for_room`."""
        self._on_room = None

    def _check_room(self) -> None:
        resumed, session = self._on_room, self.session
        if resumed is None or (self.owns and session.ended is None and session.outbox.full):
            return
        self._on_room = None
        resumed()

    async def drained(self) -> None:
        """Return when the outbox is empty."""
        while self.session.outbox:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _check_drained(self) -> None:
        if self.session.outbox:
            return
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.session.ended is not None:
            self._on_end()
        elif self.session.is_paced:
            self._executor.subscriptions.drained(self.session)

    def _give_up(self) -> None:
        """Leave the client a moment to read the reason, then abort the connection."""
        self._aborting = asyncio.get_running_loop().call_later(GRACE_S, self._transport.abort)

    def close(self) -> None:
        """The socket is closed."""
        if self.owns:
            self.session.detach()
        self._flow.forget(self._resume)
        self._runtime.turns.remove(self)
        if self._aborting is not None:
            self._aborting.cancel()


STREAM_SUMMARY = "Server-sent events: query and subscribe"
STREAM_PARAMETERS = (
    "filter", "snapshot", "delta", "bookmark", "order_by", "unnamed", *options_of("stream"),
    *OPTIONS_IGNORED,
)  # fmt: skip


class EventStreamHandler:
    """`GET /v1/topics/{topic}/stream`."""

    def __init__(self, runtime: ServerRuntime, executor: Executor) -> None:
        self._runtime = runtime
        self._executor = executor
        log_id = runtime.journal.log_id
        self._named, self._unnamed = EventEncoding(log_id), EventEncoding(log_id, named=False)
        self._open: set[asyncio.Event] = set()

    @route("GET", "/v1/topics/{topic}/stream", "read", STREAM_SUMMARY, STREAM_PARAMETERS)
    @operation("follow", answers=(EVENT_STREAM,), refusals=(507,))
    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One stream, until either side ends it; raises the errors of the request: ClientError,
        BadFilter, UnknownTopic."""
        if request.version < HttpVersion11:
            raise ClientError(
                "a stream has no known end: it needs HTTP/1.1 (a proxy may be using 1.0)"
            )
        await self._reach(request)
        command = self._command(request)
        unnamed = read_flag(parameters_of(request), "unnamed")
        encoding = self._unnamed if unnamed else self._named
        runtime, executor = self._runtime, self._executor
        session = executor.sessions.open(
            encoding,
            runtime.now_us(),
            permissions_of(request),
            credentials_of(request),
            client_address(request),
        )
        ended = asyncio.Event()
        try:
            await self._check(command, encoding)
            response = web.StreamResponse(headers={"Cache-Control": "no-store"})
            if command.options.ignored:
                response.headers["SOW-Ignored"] = ", ".join(command.options.ignored)
            response.content_type = EVENT_STREAM
            response.enable_chunked_encoding()
            await response.prepare(request)
            if request.method == hdrs.METH_HEAD:
                return response
            below = supervised(request)
            below.end_with_client()
            connection = SessionWriter(runtime, executor, session, below, ended.set)
            self._open.add(ended)
            try:
                connection.begin()
                steps = executor.carry_out(session, [command], runtime.now_us)
                await runtime.turns.run("a stream", steps)
                await ended.wait()
            finally:
                self._open.discard(ended)
                connection.close()
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
        finally:
            executor.sessions.close(session)
            runtime.wake()
        return response

    async def _reach(self, request: web.Request) -> None:
        """Wait for what a reconnecting client has had, which may be from a server that is ahead. If
        that takes too long it is sent a new snapshot: after an error it would not come back."""
        last = request.headers.get("Last-Event-ID")
        if last is not None and isinstance(self._executor.engine, FollowingEngine):
            with contextlib.suppress(SowError):
                await request.app[MOMENTS].wait(last, None)

    def _command(self, request: web.Request) -> Command:
        requested = parameters_of(request)
        delta, options = read_flag(requested, "delta"), read_options(requested, "stream")
        last = request.headers.get("Last-Event-ID")
        if last is None:
            bookmark = requested.get("bookmark")
            snapshot = read_flag(
                {"snapshot": str(bookmark is None).lower()} | requested, "snapshot"
            )
            if bookmark is not None and snapshot:
                raise ClientError("a stream begins with a snapshot or at a bookmark, not both")
        else:
            # What it had of the past was sent, or it begins from scratch.
            options = replace(options, as_of=None)
            bookmark = None if options.top_n is not None else self._resumable(request, last)
            snapshot = bookmark is None
            # Of a series: what it began with has been sent.
            options = options if snapshot else replace(options, last=None)
        kind = "delta_subscribe" if delta else "subscribe"
        return Command(
            f"sow_and_{kind}" if snapshot else kind,
            topic=request.match_info["topic"],
            filter=requested.get("filter"),
            bookmark=bookmark,
            order_by=requested.get("order_by"),
            options=options,
            rights=permissions_of(request),
            or_snapshot=last is not None,
        )

    def _resumable(self, request: web.Request, last: str) -> str | None:
        """The bookmark of a reconnecting client, if the log has what it missed; None: it needs a
        new snapshot."""
        engine = self._executor.engine
        topic = engine.topic(request.match_info["topic"])
        if turn_time(last) > self._runtime.now_us():
            return None  # of a server that was ahead: there it goes on later, here from now on
        if topic.is_logged or topic.kind != "topic":
            with contextlib.suppress(ClientError):
                parse_bookmark(last, self._runtime.journal, engine.seq)
                return last
        return None

    async def _check(self, command: Command, encoding: EventEncoding) -> None:
        """Raise errors of the command now, so that they become a problem document instead of a
        stream of one error."""
        if command.topic in self._executor.queues.queues.names:
            self._executor.queues.check(command)
        steps = self._executor.subscriptions.check_command(command, encoding)
        await self._runtime.turns.run("a stream", steps)

    def close(self) -> None:
        """End every stream, because the server stops."""
        for ended in list(self._open):
            ended.set()
