"""What a server is and how far it is, and what it knows of the other nodes of its log.

`/v1/status` shows the newest bookmark and the state hash (`sow.engine.state_hash`) of one moment.
Requests at the same time share the answer: it takes some milliseconds where there are millions of
records. A client without credentials sees only what the server is called.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from sow.engine.engine import Engine
from sow.engine.state_hash import StateHash
from sow.server.api.health import RecordSource
from sow.server.api.nodes import AS_CHAINED, AS_FOLLOWER, AS_PRIMARY, Nodes, ServerNode
from sow.server.api.response_schemas import ServerStatus
from sow.server.http.preconditions import BOOKMARK_HEADER, Heard
from sow.server.http.responses import json_response
from sow.server.http.route import operation, route
from sow.server.loop.runtime import ServerRuntime

Above = Callable[[web.Request], Awaitable[Sequence[ServerNode]]]
"""What the server above this one knows of all nodes, requested for a client's request."""


async def alone(_request: web.Request) -> Sequence[ServerNode]:
    """There is no server above."""
    return ()


class StatusHandler:
    """`/v1/status` of the server at `address`. `is_known` says whether a client may see more than
    its name, `nodes` are those below it, `heard` is what it follows itself, if anything, and
    `source` where its records are. `sessions` counts them, and `above` says what the server above
    knows."""

    def __init__(
        self,
        runtime: ServerRuntime,
        engine: Engine,
        address: str,
        is_known: Callable[[web.Request], Awaitable[bool]],
        nodes: Nodes,
        heard: Heard | None,
        source: RecordSource,
        sessions: Callable[[], int] = lambda: 0,
        above: Above = alone,
    ) -> None:
        self._address = address
        self._source = source
        self._sessions = sessions
        self._above = above
        self._runtime = runtime
        self._engine = engine
        self._is_known = is_known
        self._nodes = nodes
        self._heard = heard
        self._hashes = StateHash(engine)
        self._hashing: asyncio.Task[tuple[int, str]] | None = None

    @route("GET", "/v1/status", "nothing", "What this server is, and how far it is")
    @operation("read_status", ServerStatus)
    async def status(self, request: web.Request) -> web.Response:
        """`GET /v1/status`: the role, the newest bookmark, the state hash, the other nodes."""
        configuration = self._engine.configuration
        answer: dict[str, Any] = {
            "name": configuration.name,
            "environment": configuration.environment,
            "colour": configuration.colour,
        }
        if not await self._is_known(request):
            return json_response(answer)
        own = await self.own()
        answer |= {
            "role": own.role,
            "upstream": own.upstream,
            "log": self._source.log_id or self._runtime.journal.log_id,
            "bookmark": own.bookmark,
            "state_hash": own.state_hash,
            "lag_ms": own.lag_ms,
            "nodes": [one._asdict() for one in await self._all(own, request)],
        }
        return json_response(answer, {BOOKMARK_HEADER: own.bookmark or "0"})

    def be_listed_as(self, address: str) -> None:
        """The server above lists this one under an address: nobody calls one that listens on all
        addresses of its machine by its own."""
        self._address = address

    async def _all(self, own: ServerNode, request: web.Request) -> list[ServerNode]:
        """This server, those below it, and all else that the server above knows."""
        found = {(one.url, one.pid): one for one in (own, *self._nodes.all())}
        for one in await self._above(request):
            found.setdefault((one.url, one.pid), one)
        return [*found.values()]

    async def own(self) -> ServerNode:
        """This server: its bookmark and its state hash are of one moment, and durable. A chained
        one has no state, and the bookmark that upstream had when it last answered."""
        source, sessions = self._source, self._sessions()
        if source.upstream:
            seen, lag_ms = source.bookmark or None, int(source.silent_s() * 1000)
            above = source.upstream
            return ServerNode(
                self._address, AS_CHAINED, seen, None, lag_ms, os.getpid(), above, sessions
            )
        if self._hashing is None:
            self._hashing = self._runtime.begin(self._hash())
        bookmark, state_hash = await asyncio.shield(self._hashing)
        moment = str(bookmark), state_hash
        if self._heard is None:
            return ServerNode(self._address, AS_PRIMARY, *moment, 0, os.getpid(), None, sessions)
        lag_ms, above = self._heard.lag_us() // 1000, self._heard.primary
        return ServerNode(self._address, AS_FOLLOWER, *moment, lag_ms, os.getpid(), above, sessions)

    async def _hash(self) -> tuple[int, str]:
        try:
            found = await self._runtime.turns.run("state hash", self._hashes.at_now())
            await self._runtime.settled()
            return found
        finally:
            self._hashing = None
