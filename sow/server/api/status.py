"""What a server is and how far it is, and what it knows of the other nodes of its log.

`/v1/status` shows the newest bookmark and the state hash (`sow.engine.state_hash`) of one moment.
Who asks at the same time shares the answer: it costs some milliseconds where there are millions of
records. A client without credentials sees only what the server is called.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aiohttp import web

from sow.engine.engine import Engine
from sow.engine.state_hash import StateHash
from sow.server.api.response_schemas import ServerStatus
from sow.server.http.moments import BOOKMARK_HEADER
from sow.server.http.responses import json_response
from sow.server.http.route import operation, route
from sow.server.loop.runtime import ServerRuntime


class Node(NamedTuple):
    """One server of a log, as others see it; None: it was not heard of."""

    url: str
    role: str
    bookmark: str | None = None
    state_hash: str | None = None
    lag_ms: int | None = None
    pid: int | None = None


class StatusHandler:
    """`/v1/status` of the server at `address`. `is_known` says whether a client may see more than
    its name."""

    role = "primary"

    def __init__(
        self,
        runtime: ServerRuntime,
        engine: Engine,
        address: str,
        is_known: Callable[[web.Request], Awaitable[bool]],
    ) -> None:
        self._runtime = runtime
        self._engine = engine
        self._address = address
        self._is_known = is_known
        self._hashes = StateHash(engine)
        self._hashing: asyncio.Task[tuple[int, str]] | None = None

    @route("GET", "/v1/status", "nothing", "What this server is, and how far it is")
    @operation("read_status", ServerStatus)
    async def status(self, request: web.Request) -> web.Response:
        """`GET /v1/status`: the role, the newest bookmark, the state hash, the other nodes."""
        configuration = self._engine.configuration
        answer: dict[str, Any] = {
            "name": configuration.name,
            "environment": None,
            "colour": None,
        }
        if not await self._is_known(request):
            return json_response(answer)
        own = await self.own()
        answer |= {
            "role": own.role,
            "upstream": None,
            "log": self._runtime.journal.log_id,
            "bookmark": own.bookmark,
            "state_hash": own.state_hash,
            "lag_ms": own.lag_ms,
            "nodes": [own._asdict()],
        }
        return json_response(answer, {BOOKMARK_HEADER: own.bookmark or "0"})

    async def own(self) -> Node:
        """This server: its bookmark and its state hash are of one moment, and durable."""
        if self._hashing is None:
            self._hashing = self._runtime.begin(self._hash())
        bookmark, state_hash = await asyncio.shield(self._hashing)
        return Node(self._address, self.role, str(bookmark), state_hash, 0, os.getpid())

    async def _hash(self) -> tuple[int, str]:
        try:
            found = await self._runtime.turns.run("state hash", self._hashes.at_now())
            await self._runtime.settled()
            return found
        finally:
            self._hashing = None
