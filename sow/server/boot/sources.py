"""Where the records of a server are: in its own engine, or with an upstream server.

The one place where a chained server differs from others. Doors, users, sessions and queues are the
same; what reads the commands of clients and answers requests is chosen here.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from aiohttp import ClientError as CallFailed
from aiohttp import hdrs, web

from sow.core.definitions import Configuration, JournalSettings
from sow.errors import ConfigError, UpstreamLost
from sow.server.api.nodes import ServerNode, Upstream, nodes_of, report
from sow.server.api.status import RecordSource, StatusHandler
from sow.server.boot.routes import Handlers
from sow.server.chained.chain import Chain
from sow.server.chained.reader import ChainedReader
from sow.server.chained.upstream import Forwarder, UpstreamServer, log_failure
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import LogonSource
from sow.server.net.session_writer import SessionWriter
from sow.server.net.websocket import Commands, Reads, WebSocketHandler
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.sessions.commands.executor import Executor

NODE_BYTES = 8
"""The id of a process among the servers of a chain; random, so that no two have the same."""
REPORT_S = 2.0
"""Interval of reports to upstream, as often as followers report by default."""


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
        status: StatusHandler,
    ) -> None:
        """Have these handlers answer from there; `status` says what this server is."""
        ...

    async def above(self, request: web.Request) -> Sequence[ServerNode]:
        """What the server that has the records knows of all nodes."""
        ...

    async def close(self) -> None:
        """The server stops."""
        ...


class RecordsHere:
    """The records are in this process; `node` is its id."""

    refusal: str | None = None
    log_id = ""
    upstream = bookmark = ""

    def __init__(self, node: str) -> None:
        self.chain = [node]

    async def reach(self) -> None:
        """They are."""

    def silent_s(self) -> float:
        """Nobody else has to answer."""
        return 0.0

    def figures(self) -> Mapping[str, float]:
        """Nothing comes from elsewhere."""
        return {}

    async def above(self, _request: web.Request) -> Sequence[ServerNode]:
        """There is no server above."""
        return ()

    def serve(self, *_parts: object) -> None:
        """The handlers are those of this engine."""

    async def close(self) -> None:
        """Nothing is open."""


class RecordsUpstream:
    """The records are with another server; by `report_token` this one reports there."""

    def __init__(self, upstream: UpstreamServer, report_token: str = "") -> None:
        self._upstream = upstream
        self._chain: Chain | None = None
        token = report_token or upstream.token
        self._headers: dict[str, str] = {}
        if token:
            self._headers[hdrs.AUTHORIZATION] = f"Bearer {token}"
        self._reporting: asyncio.Task[None] | None = None

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
    def bookmark(self) -> str:
        """The newest that upstream has named."""
        return self._upstream.bookmark

    def silent_s(self) -> float:
        """For how long upstream has not answered."""
        return self._upstream.silent_s()

    def figures(self) -> Mapping[str, float]:
        """What has come from upstream."""
        return {} if self._chain is None else self._chain.figures()

    async def above(self, request: web.Request) -> Sequence[ServerNode]:
        """What upstream knows of all nodes: called by this server's token, or with what the client
        shows."""
        if not self._upstream.is_there:
            return ()
        shown = request.headers.get(hdrs.AUTHORIZATION)
        headers = dict(self._headers)
        if shown and not headers:
            headers[hdrs.AUTHORIZATION] = shown
        return await nodes_of(self._upstream.http, self._upstream.url, headers)

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
        status: StatusHandler,
    ) -> None:
        """Pass on commands and requests, and report."""
        chain = self._chain = Chain(self._upstream, runtime, executor)
        handlers.put(WebSocketHandler(runtime, executor, authn, _reads(chain)))
        handlers.forward_by(Forwarder(self._upstream).forward)
        self._reporting = asyncio.get_running_loop().create_task(self._report(status))

    async def _report(self, status: StatusHandler) -> None:
        """Tell upstream now and then how far this server is; where it refuses, no more before it is
        another one, since each refusal is noted there."""
        upstream, refused_in = self._upstream, -1
        while True:
            await upstream.there.wait()
            try:
                if refused_in != upstream.received.losses:
                    async with asyncio.timeout(REPORT_S):
                        listed = await report(
                            upstream.http, upstream.url, await status.own(), self._headers
                        )
                    refused_in = -1 if listed else upstream.received.losses
                    if listed:
                        status.be_listed_as(listed)
            except (CallFailed, OSError, TimeoutError):
                pass  # what asks upstream whether it is there reports the loss
            except Exception as error:
                log_failure(error)
            await asyncio.sleep(REPORT_S)

    async def close(self) -> None:
        """End all connections."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
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


def origin_of(upstream: Upstream | None) -> RecordOrigin:
    """Where the records of a new server are: here, or with this server."""
    node = secrets.token_hex(NODE_BYTES)
    if upstream is None:
        return RecordsHere(node)
    server = UpstreamServer(upstream.url, upstream.token, node, encryption=upstream.encryption)
    return RecordsUpstream(server, upstream.report_token)


def without_records(configuration: Configuration, applies: bool = False) -> Configuration:
    """The part of a configuration that counts for a chained server: its upstream has the rest, and
    `applies` what roles say of records. Raises ConfigError where no server would."""
    for role in () if applies else configuration.security.roles:
        for allow in role.allows:
            if (allow.filter, allow.select, allow.check) != (None, None, None):
                raise ConfigError(
                    f"the role {role.name} has a Filter, Select or Check for {allow.topic}, which "
                    "a chained server does not apply: give it in the configuration of the upstream "
                    "server, which applies it to this server's clients, and leave it out here"
                )
    return replace(configuration, topics=(), pipelines=(), actions=(), journal=JournalSettings())
