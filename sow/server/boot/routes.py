"""The routes of one server: which resources there are, when they answer, and from which records.

Each resource is a class whose methods declare their routes (`sow.server.http.route`). `RESOURCES`
lists the classes, `TABLE` all their routes: `/openapi.json` is generated from it, and the documents
are compared with it.

The port is open before all records are restored, so that supervisors see that the process lives and
how far it is. Until then all requests but those wait at the readiness gate: nothing is answered
from half of the records, and nothing is accepted whose place is not known yet. A request that would
wait too long, or as one of too many, gets an error with `Retry-After`. The gate does not look at
requests.

The records are in the server's own engine, or with an upstream server (`origin_of`): the one place
where a chained server differs from others. Doors, users, sessions and queues are the same; what
reads the commands of clients and answers requests is chosen here.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from aiohttp import ClientError as CallFailed
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from sow.core.definitions import Configuration, JournalSettings
from sow.engine.engine import Engine
from sow.errors import Busy, ConfigError, NotPrimary, Replaying, UpstreamLost
from sow.security.authorization import Demand
from sow.server.api.admin import AdminHandler
from sow.server.api.batch_commit import BatchCommitHandler
from sow.server.api.cursors import ChangeCursors
from sow.server.api.explain import ExplainHandler
from sow.server.api.followers import FollowersHandler, SharedLogHandler
from sow.server.api.leases import LeasesHandler
from sow.server.api.log import LogHandler
from sow.server.api.nodes import ServerNode, Upstream, nodes_of, report
from sow.server.api.record_resource import EventsHandler, RecordHandler
from sow.server.api.records import RecordsHandler
from sow.server.api.sessions import ExplainSessionHandler, SessionsHandler
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.server.api.static_files import DescriptionHandler, Pages
from sow.server.api.status import HealthHandler, RecordSource, StatusHandler
from sow.server.api.topics import RatesHandler, TopicsHandler
from sow.server.chained.chain import Chain
from sow.server.chained.reader import ChainedReader
from sow.server.chained.upstream import Forwarder, UpstreamServer, log_failure
from sow.server.http.authn_middleware import RequestAuthenticator, permissions_of
from sow.server.http.route import READ_METHODS, Route, parameters_of, reach_moment, routes_of
from sow.server.loop.background_work import compile_beside, guarded_by, long_among, long_guarded
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import LogonSource
from sow.server.net.session_writer import EventStreamHandler, SessionWriter
from sow.server.net.websocket import Commands, Reads, WebSocketHandler
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.sessions.commands.executor import Executor
from sow.store.staging import Staging

RESOURCES: tuple[type, ...] = (
    TopicsHandler,
    RecordsHandler,
    RecordHandler,
    EventsHandler,
    LeasesHandler,
    RatesHandler,
    ExplainHandler,
    EventStreamHandler,
    LogHandler,
    SnapshotHandler,
    BatchCommitHandler,
    SessionsHandler,
    ExplainSessionHandler,
    AdminHandler,
    StatusHandler,
    FollowersHandler,
    SharedLogHandler,
    WebSocketHandler,
    Pages,
    DescriptionHandler,
    HealthHandler,
)
"""All resources, in the order of `/openapi.json`."""
OWN = (WebSocketHandler, SessionsHandler, ExplainSessionHandler, StatusHandler)
"""What each server has of its own, wherever the records are."""
TABLE = tuple(one for resource in RESOURCES for one in routes_of(resource))
"""All routes; their handlers are methods that are not bound yet."""
DEMANDED: Mapping[str, Demand] = {
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "delete",
}
"""The permission that a method needs, unless it reads a topic."""
LOCAL = ("/v1/snapshots", "/v1/sessions", "/v1/backup", "/v1/verify", "/v1/nodes", "/v1/log/verify")
"""What a follower takes beside reading: it concerns the follower itself."""
WAIT_S_MAX = 20.0
"""Proxies and clients time out after 30 s or more without a reason: they get one before."""
WAITING_MAX = 1000
"""Waiting requests. Each may have sent 128 KB that nobody reads: these take about half of what
requests may hold together (`RequestMemory`)."""
RELEASED_AT_ONCE = 32
"""Requests released in one iteration of the loop: some milliseconds of work."""

Resource = TypeVar("Resource")


class Handlers:
    """The resources of one server, by their classes."""

    def __init__(self, engine: Engine, *resources: object) -> None:
        self.filters = engine.filters
        self._engine = engine
        self.forward: Handler | None = None
        """Answers requests for all that is not of this server alone, where another has it."""
        self._resources: dict[type, Any] = {type(one): one for one in resources}

    def check(self, method: str, path: str) -> None:
        """Raise NotPrimary for what a server that follows another one does not take."""
        primary = self._engine.primary
        if primary and method not in READ_METHODS and not path.startswith(LOCAL):
            raise NotPrimary(
                f"this server follows {primary}, which alone takes {method} {path}: send it there",
                primary=primary,
            )

    def __getitem__(self, resource: type[Resource]) -> Resource:
        found: Resource = self._resources[resource]
        return found

    def forward_by(self, forward: Handler) -> None:
        """Have another server answer what is not this one's own."""
        self.forward = forward

    def put(self, resource: object) -> None:
        """Have one instead of another of its class."""
        self._resources[type(resource)] = resource


def open_handlers(
    runtime: ServerRuntime,
    executor: Executor,
    staging: Staging,
    authn: RequestAuthenticator,
    admin: AdminHandler,
    status: StatusHandler,
    followers: FollowersHandler,
    shared_log: SharedLogHandler,
) -> Handlers:
    """The resources of one server that need all records."""
    engine = executor.engine
    past = AsOfQueries(runtime, executor.subscriptions.past)
    snapshots = SnapshotHandler(runtime, engine, past)
    return Handlers(
        engine,
        TopicsHandler(runtime, engine),
        RatesHandler(runtime, engine),
        RecordsHandler(runtime, executor, past, snapshots),
        RecordHandler(runtime, executor),
        EventsHandler(runtime, executor),
        LeasesHandler(runtime, executor),
        ExplainHandler(runtime, executor, past),
        EventStreamHandler(runtime, executor),
        LogHandler(runtime, engine, ChangeCursors(runtime, engine, snapshots, past)),
        snapshots,
        BatchCommitHandler(runtime, engine, staging),
        SessionsHandler(runtime, executor),
        ExplainSessionHandler(runtime, executor),
        admin,
        status,
        followers,
        shared_log,
        WebSocketHandler(runtime, executor, authn),
    )


class ReadinessGate:
    """Passes the handlers to requests once they are ready; `progress` describes the start until
    then, and `lost` says why who has the records cannot be reached, if that is so."""

    def __init__(
        self, progress: Callable[[], str], lost: Callable[[], str | None] = lambda: None
    ) -> None:
        self._progress = progress
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._handlers: Handlers | None = None
        self._closed = ""
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    async def handlers(self, request: web.Request | None = None) -> Handlers:
        """The handlers, once the gate is open. Raises Replaying if that takes too long, or too many
        wait already, and Busy if the server stops before. What a `request` raises that waited for
        the start is what `reach_moment` does: a follower may be behind what it is to show."""
        if self._handlers is None and not self._closed:
            if (lost := self._lost()) is not None:
                raise UpstreamLost(lost)
            await self._wait()
            if request is not None and self._handlers is not None:
                await reach_moment(request)
        if self._handlers is None:
            raise Busy(self._closed) if self._closed else Replaying(self._progress())
        return self._handlers

    async def _wait(self) -> None:
        if self.waiting >= WAITING_MAX:
            raise Replaying(f"{self._progress()}; {WAITING_MAX:,} requests wait already")
        opened: asyncio.Future[None] = self._loop.create_future()
        self._waiting[opened] = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await opened
        except TimeoutError:
            pass  # the gate may have opened in this very moment
        finally:
            self._waiting.pop(opened, None)

    def open(self, handlers: Handlers) -> None:
        """Release the waiting requests, some at a time and in the order of their arrival, and let
        all later ones pass."""
        self._handlers = handlers
        self._release()

    def close(self, why: str) -> None:
        """Refuse requests with Busy and the reason `why`, waiting ones included."""
        self._closed = self._closed or why
        self._release()

    def _release(self) -> None:
        for opened in list(islice(self._waiting, RELEASED_AT_ONCE)):
            del self._waiting[opened]
            if not opened.done():
                opened.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._release)


def routes(gate: ReadinessGate, status: HealthHandler) -> list[Route]:
    """All routes with their handlers. Those of `Pages`, `DescriptionHandler` and `HealthHandler`
    are answered at any time, all others once `gate` is open."""
    at_once: dict[type, object] = {
        type(one): one for one in (Pages(), DescriptionHandler(lambda: TABLE), status)
    }

    def gated(resource: type, method: Callable[..., Awaitable[web.StreamResponse]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            handlers = await gate.handlers(request)
            if handlers.forward is not None and resource not in OWN:
                return await handlers.forward(request)
            handlers.check(request.method, request.path)
            text, filters = parameters_of(request).get("filter"), handlers.filters
            if text is not None and (long := long_among(filters, [text])):
                await compile_beside(filters, long)
            topic = request.match_info.get("topic")
            if topic is not None:
                guard = guarded_by(
                    permissions_of(request), DEMANDED.get(request.method, "read"), topic
                )
                if guard is not None:
                    await compile_beside(filters, (), long_guarded(filters, [(guard, text)]))
            return await method(handlers[resource], request)

        return handle

    return [
        one._replace(
            handler=partial(one.handler, at_once[resource])
            if resource in at_once
            else gated(resource, one.handler)
        )
        for resource in RESOURCES
        for one in routes_of(resource)
    ]


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
