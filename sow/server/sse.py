"""Server-sent events: query and subscribe for browsers and curl (contract §3).

A stream is a session whose only command is its first request. Its frames are chunks of one
endless HTTP/1.1 response, rendered once for all equal streams, like WebSocket frames.
"""

import asyncio
import contextlib

from aiohttp import HttpVersion11, web

from sow.commands import Command, Options
from sow.errors import ClientError, NotAvailable
from sow.executor import Executor
from sow.server.connection import Connection
from sow.server.driver import Driver
from sow.server.parameters import read_flag, read_parameters
from sow.sessions import Session
from sow.wire import EVENTS

PARAMETERS = ("filter", "snapshot", "oof", "conflation")
PARAMETERS_LATER = ("delta", "no_empties", "select", "conflation_key", "bookmark")


class EventDoor:
    """`GET /v1/topics/{topic}/stream`."""

    def __init__(self, driver: Driver, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor
        self._open: set[asyncio.Event] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One stream, until either side ends it."""
        if request.version < HttpVersion11:
            raise ClientError(
                "a stream has no known end: it needs HTTP/1.1 (a proxy may be using 1.0)"
            )
        command = self._command(request)
        driver, executor = self._driver, self._executor
        session = executor.open(EVENTS, driver.now_us())
        ended = asyncio.Event()
        try:
            self._check(session, command)
            response = web.StreamResponse(headers={"Cache-Control": "no-store"})
            response.content_type = "text/event-stream"
            response.enable_chunked_encoding()
            await response.prepare(request)
            connection = Connection(driver, session, request, ended.set)
            self._open.add(ended)
            try:
                executor.execute(session, command, driver.now_us())
                driver.wake()
                await ended.wait()
            finally:
                self._open.discard(ended)
                connection.close()
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
        finally:
            executor.close(session)
            driver.wake()
        return response

    def _command(self, request: web.Request) -> Command:
        asked = read_parameters(request, PARAMETERS, PARAMETERS_LATER)
        if asked.get("conflation", "none") != "none":
            raise NotAvailable("conflated subscriptions are not available yet")
        snapshot = read_flag({"snapshot": "true"} | asked, "snapshot")
        if "Last-Event-ID" in request.headers and not snapshot:
            # With a snapshot the newest state makes up for whatever was missed.
            raise NotAvailable("resuming from Last-Event-ID without snapshot is not available yet")
        return Command(
            "sow_and_subscribe" if snapshot else "subscribe",
            topic=request.match_info["topic"],
            filter=asked.get("filter"),
            options=Options(oof=read_flag(asked, "oof")),
        )

    def _check(self, session: Session, command: Command) -> None:
        """Refuse with a problem document what would otherwise be a stream of one error."""
        if session.ended is not None:
            raise ClientError("the session has ended")
        self._executor.engine.topic(command.topic)
        if command.filter is not None:
            self._executor.engine.filter(command.filter)

    def close(self) -> None:
        """End every stream, because the server stops."""
        for ended in list(self._open):
            ended.set()
