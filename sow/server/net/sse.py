"""Server-sent events: query and subscribe for browsers and curl (docs/http.md).

A stream is a session with a single command, made from its request. Its frames are chunks of one
endless HTTP/1.1 response, rendered once for all equal streams, like WebSocket frames.
"""

import asyncio
import contextlib
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
from sow.server.net.connection_supervisor import supervised
from sow.server.net.session_writer import SessionWriter
from sow.sessions.commands.executor import Executor

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
