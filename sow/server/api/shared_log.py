"""Routes for operators and nodes of a shared log, of the server of one node.

    GET  /v1/log/status      how the node stands in the log, what it keeps of it, and the others
    POST /v1/log/step-down   another node is to lead
    POST /v1/log/verify      the log is read again, and compared with what the node has applied
    POST /v1/log/trim        what all nodes have goes

What they do is `sow.server.loop.log_checkpoint`. A server with a log of its own refuses them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from aiohttp import web

from sow.errors import Busy, ClientError, clipped
from sow.history.bookmarks import number_of
from sow.server.api.nodes import Nodes, ServerNode
from sow.server.api.response_schemas import (
    LogCut,
    LogVerified,
    NodeStatus,
    SharedLogStatus,
    SteppedDown,
)
from sow.server.api.status import StatusHandler
from sow.server.http.responses import json_response
from sow.server.http.route import operation, parameters_of, route
from sow.server.loop.log_checkpoint import LogOperations
from sow.server.loop.runtime import ServerRuntime


class SharedLogHandler:
    """`/v1/log/…` of a node; `operations` are None for a server with a log of its own. `nodes` are
    those that report to it, and `status` is what it reports itself."""

    def __init__(
        self,
        runtime: ServerRuntime,
        operations: LogOperations | None,
        nodes: Nodes,
        status: StatusHandler,
    ) -> None:
        self._runtime = runtime
        self._operations = operations
        self._nodes = nodes
        self._status = status
        self._is_read = False

    @contextmanager
    def _read_alone(self) -> Iterator[LogOperations]:
        """For what reads the whole log; raises Busy while another one does."""
        shared = self._shared()
        if self._is_read:
            raise Busy("the shared log is verified or trimmed already; try again when that is done")
        self._is_read = True
        try:
            yield shared
        finally:
            self._is_read = False

    def _shared(self) -> LogOperations:
        if self._operations is None:
            raise ClientError(
                "this server has a log of its own; one that nodes share is configured by <Log>",
                reason="no shared log",
            )
        return self._operations

    @route("GET", "/v1/log/status", "admin", "How this node stands in the shared log")
    @operation("read_log_status", SharedLogStatus)
    async def status(self, _request: web.Request) -> web.Response:
        """`GET /v1/log/status`: who leads, how far this node is, and what is known of others."""
        engine, own = self._runtime.engine.configuration.shared_log.engine, await self._status.own()
        if self._operations is None:
            alone = SharedLogStatus(engine, own.role)
            return json_response(msgspec.to_builtins(alone))
        nodes = [own, *self._of_log(self._nodes.all())]
        found = SharedLogStatus(
            engine,
            own.role,
            **self._operations.status(),
            checkpoint=self._operations.kept,
            nodes=[NodeStatus(**msgspec.structs.asdict(one)) for one in nodes],
        )
        return json_response(msgspec.to_builtins(found))

    def _of_log(self, nodes: Iterable[ServerNode]) -> list[ServerNode]:
        """Those that are nodes of the log, and not followers or chained servers."""
        return [one for one in nodes if one.checkpoint is not None]

    @route("POST", "/v1/log/step-down", "admin", "Have another node of the shared log lead")
    @operation("step_down", SteppedDown)
    async def step_down(self, _request: web.Request) -> web.Response:
        """`POST /v1/log/step-down`: lead no more, and not for ten leases while another node can."""
        return json_response({"node": self._shared().step_down()})

    @route("POST", "/v1/log/verify", "admin", "Read the shared log again, and compare")
    @operation("verify_log", LogVerified)
    async def verify(self, _request: web.Request) -> web.Response:
        """`POST /v1/log/verify`: compare the log with what this node has applied, and the state
        hashes of nodes that are at the same bookmark."""
        with self._read_alone() as shared:
            own = await self._status.own()
            found: dict[str, Any] = await shared.verify()
        nodes = [own, *self._of_log(self._nodes.heard())]
        found["nodes"] = [
            {
                "url": one.url,
                "bookmark": one.bookmark,
                "state_hash": one.state_hash,
                "same": _is_same(own, one),
            }
            for one in nodes
        ]
        found["equal"] = not any(one["same"] is False for one in found["nodes"])
        return json_response(found)

    @route("POST", "/v1/log/trim", "admin", "Let go of the shared log's beginning", ("before",))
    @operation("trim_log", LogCut)
    async def trim(self, request: web.Request) -> web.Response:
        """`POST /v1/log/trim?before=`: entries before a bookmark go; raises ClientError where a
        node still needs them."""
        self._shared()
        text = parameters_of(request).get("before", "")
        before = number_of(text, self._runtime.journal.log_id)
        if before is None:
            raise ClientError(
                f"before={clipped(text)} is not a bookmark; write that of the first record to keep",
                reason="invalid bookmark",
            )
        with self._read_alone() as shared:
            return json_response(await shared.trim(before, self._nodes.marks()))


def _is_same(own: ServerNode, other: ServerNode) -> bool | None:
    """Whether two nodes have the same records; None where they are not at one bookmark."""
    if None in (own.bookmark, other.bookmark) or own.bookmark != other.bookmark:
        return None
    return own.state_hash == other.state_hash
