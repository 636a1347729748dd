"""What a server is and how far it is, and what it knows of the other nodes of its log.

`/v1/status` shows the newest bookmark and the state hash (`sow.engine.state_hash`) of one moment.
Requests at the same time share the answer: it takes some milliseconds where there are millions of
records. A client without credentials sees only what the server is called.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aiohttp import web

from sow.engine.engine import Engine
from sow.engine.state_hash import StateHash
from sow.errors import TooLarge
from sow.server.api.health import RecordSource
from sow.server.api.response_schemas import ServerStatus
from sow.server.http.preconditions import BOOKMARK_HEADER, Heard
from sow.server.http.responses import json_response
from sow.server.http.route import operation, route
from sow.server.loop.runtime import ServerRuntime


class ServerNode(NamedTuple):
    """One server of a log, as others see it; None: it was not heard of."""

    url: str
    role: str
    bookmark: str | None = None
    state_hash: str | None = None
    lag_ms: int | None = None
    pid: int | None = None


HEARD_S = 30.0
"""Of a node that is silent for longer nothing is known any more: followers report every second or
two."""
REMEMBERED_S = 3600.0
"""So long a silent node is listed, and the log kept for it: a reboot and a deployment are over by
then, and a busy log of an hour still fits on a disk."""


NODES_MAX = 1_000
"""Nodes that are remembered: each answer of `/v1/status` lists them all."""
URL_CHARS_MAX = 2_000
"""Of a node's address, twice what a name of a host and a path need."""


class FeedPosition:
    """How far a follower has read the log."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.readers = 0

    def reached(self, seq: int) -> None:
        """It has been sent everything up to a record."""
        self.seq = seq


class Nodes:
    """The followers of one server by their addresses; `now_s` passes steadily."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._said: dict[str, ServerNode] = {}
        self._read: dict[str, FeedPosition] = {}
        self._heard_s: dict[str, float] = {}

    def note(self, node: ServerNode) -> None:
        """A node has reported; raises TooLarge."""
        self._check(node.url)
        self._said[node.url] = node
        self._heard_s[node.url] = self._now_s()
        self._forget()

    @contextmanager
    def reading(self, url: str, seq: int) -> Iterator[FeedPosition]:
        """A follower reads the log behind record `seq` while this is open. Raises TooLarge."""
        self._check(url)
        reading = self._read[url] = FeedPosition(seq)
        self._heard_s[url] = self._now_s()
        reading.readers += 1
        self._forget()
        try:
            yield reading
        finally:
            reading.readers -= 1
            self._heard_s[url] = self._now_s()

    def all(self) -> list[ServerNode]:
        """What is known of each."""
        self._forget()
        since_s = self._now_s() - HEARD_S
        return [
            node if self._heard_s[url] >= since_s else ServerNode(url, node.role)
            for url, node in self._said.items()
        ]

    def positions(self) -> dict[str, int]:
        """The records behind which followers need the log, by their addresses."""
        self._forget()
        return {url: reading.seq for url, reading in self._read.items()}

    def _check(self, url: str) -> None:
        if len(url) > URL_CHARS_MAX:
            raise TooLarge(f"a node's address has {URL_CHARS_MAX} characters at most")

    def _forget(self) -> None:
        """Forget those that are silent for long, and the most silent ones where there are many."""
        since_s = self._now_s() - REMEMBERED_S
        silent = [url for url in self._heard_s if not self._is_reading(url)]
        silent.sort(key=self._heard_s.__getitem__)
        too_many = len(self._heard_s) - NODES_MAX
        for at, url in enumerate(silent):
            if at >= too_many and self._heard_s[url] >= since_s:
                break
            for known in (self._read, self._said, self._heard_s):
                known.pop(url, None)

    def _is_reading(self, url: str) -> bool:
        reading = self._read.get(url)
        return reading is not None and reading.readers > 0


class StatusHandler:
    """`/v1/status` of the server at `address`. `is_known` says whether a client may see more than
    its name, `nodes` are its followers, `heard` is what it follows itself, if anything, and
    `source` where its records are."""

    def __init__(
        self,
        runtime: ServerRuntime,
        engine: Engine,
        address: str,
        is_known: Callable[[web.Request], Awaitable[bool]],
        nodes: Nodes,
        heard: Heard | None,
        source: RecordSource,
    ) -> None:
        self._source = source
        self._runtime = runtime
        self._engine = engine
        self._address = address
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
            "environment": None,
            "colour": None,
        }
        if not await self._is_known(request):
            return json_response(answer)
        own = await self.own()
        answer |= {
            "role": own.role,
            "upstream": self._source.upstream or (self._heard and self._heard.primary),
            "log": self._source.log_id or self._runtime.journal.log_id,
            "bookmark": own.bookmark,
            "state_hash": own.state_hash,
            "lag_ms": own.lag_ms,
            "nodes": [one._asdict() for one in (own, *self._nodes.all())],
        }
        return json_response(answer, {BOOKMARK_HEADER: own.bookmark or "0"})

    async def own(self) -> ServerNode:
        """This server: its bookmark and its state hash are of one moment, and durable. A chained
        one has neither."""
        if self._source.upstream:
            return ServerNode(self._address, "chained", lag_ms=0, pid=os.getpid())
        if self._hashing is None:
            self._hashing = self._runtime.begin(self._hash())
        bookmark, state_hash = await asyncio.shield(self._hashing)
        role, lag_us = ("primary", 0) if self._heard is None else ("follower", self._heard.lag_us())
        moment = str(bookmark), state_hash, lag_us // 1000
        return ServerNode(self._address, role, *moment, os.getpid())

    async def _hash(self) -> tuple[int, str]:
        try:
            found = await self._runtime.turns.run("state hash", self._hashes.at_now())
            await self._runtime.settled()
            return found
        finally:
            self._hashing = None
