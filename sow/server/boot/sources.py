"""Where the records of a server are: in its own engine, or with an upstream server.

The one place where a chained server differs from others. Doors, users, sessions and queues are the
same; what reads the commands of clients and answers requests is chosen here.
"""

from collections.abc import Sequence
from typing import Protocol

from aiohttp import web

from sow.errors import UpstreamLost
from sow.server.api.health import RecordSource
from sow.server.boot.routes import Handlers
from sow.server.chained.chain import Chain
from sow.server.chained.forward import Forwarder
from sow.server.chained.reader import ChainedReader
from sow.server.chained.upstream import UpstreamServer
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import LogonSource
from sow.server.net.session_writer import SessionWriter
from sow.server.net.websocket import Commands, Reads, WebSocketHandler
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.sessions.commands.executor import Executor


class RecordOrigin(RecordSource, Protocol):
    """Where the records are, and how they are served from there."""

    async def reach(self) -> None:
        """Return once they can be reached; raises ConfigError if they never can."""
        ...

    def serve(
        self,
        handlers: Handlers,
        runtime: ServerRuntime,
        executor: Executor,
        authn: RequestAuthenticator,
    ) -> None:
        """Have these handlers answer from there."""
        ...

    async def close(self) -> None:
        """The server stops."""
        ...


class RecordsHere:
    """The records are in this process; `node` is its id."""

    refusal: str | None = None
    log_id = ""
    upstream = ""

    def __init__(self, node: str) -> None:
        self.chain = [node]

    async def reach(self) -> None:
        """They are."""

    def serve(self, *_parts: object) -> None:
        """The handlers are those of this engine."""

    async def close(self) -> None:
        """Nothing is open."""


class RecordsUpstream:
    """The records are with another server."""

    def __init__(self, upstream: UpstreamServer) -> None:
        self._upstream = upstream
        self._chain: Chain | None = None

    @property
    def chain(self) -> Sequence[str]:
        """The random ids of the servers from this one to the one that has them."""
        return self._upstream.chain

    @property
    def upstream(self) -> str:
        """The address of the upstream server."""
        return self._upstream.url

    @property
    def log_id(self) -> str:
        """The name of upstream's log."""
        return self._upstream.log_id

    @property
    def refusal(self) -> str | None:
        """Why they cannot be reached; the address is not for strangers."""
        return UpstreamLost.reason if self._upstream.is_lost else None

    async def reach(self) -> None:
        """Return once upstream has answered; raises Circle."""
        await self._upstream.reach()

    def serve(
        self,
        handlers: Handlers,
        runtime: ServerRuntime,
        executor: Executor,
        authn: RequestAuthenticator,
    ) -> None:
        """Pass on commands and requests."""
        chain = self._chain = Chain(self._upstream, runtime, executor)
        handlers.put(WebSocketHandler(runtime, executor, authn, _reads(chain)))
        handlers.forward_by(Forwarder(self._upstream).forward)

    async def close(self) -> None:
        """End all connections."""
        if self._chain is not None:
            await self._chain.close()
        else:
            await self._upstream.close()


def _reads(chain: Chain) -> Reads:
    """Makes what passes on the commands of a client."""

    def read(
        request: web.Request,
        runtime: ServerRuntime,
        _executor: Executor,
        connection: SessionWriter,
        messages: MessageMemory,
        source: LogonSource,
    ) -> Commands:
        return ChainedReader(chain, request, runtime, connection, messages, source)

    return read
