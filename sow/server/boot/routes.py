"""The table of routes: every address of the server, and its parameters.

Requests are checked against it (`sow.server.http.route`): a parameter that is not listed reaches no
handler. `/openapi.json` is generated from it, and the documents are compared with it.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import NamedTuple

import orjson
from aiohttp import web

from sow.core.media_types import JSON
from sow.engine.queries import FilterCache
from sow.expressions import described_functions
from sow.security.authorization import Demand
from sow.server.api.admin import AdminHandler
from sow.server.api.as_of_queries import AsOfQueries
from sow.server.api.backups import BackupHandler
from sow.server.api.batch_commit import ABORT_PARAMETERS, STAGE_PARAMETERS, BatchCommitHandler
from sow.server.api.explain import ExplainHandler
from sow.server.api.explain_session import ExplainSessionHandler
from sow.server.api.health import HealthHandler
from sow.server.api.log import EXTENT_PARAMETERS, LOG_PARAMETERS, LogHandler
from sow.server.api.openapi import description
from sow.server.api.record_resource import PUT_PARAMETERS, RecordHandler
from sow.server.api.records import (
    DELETE_PARAMETERS,
    PUBLISH_PARAMETERS,
    QUERY_PARAMETERS,
    TOPICS_PARAMETERS,
    RecordsHandler,
)
from sow.server.api.sessions import SESSIONS_LIST_PARAMETERS, SESSIONS_PARAMETERS, SessionsHandler
from sow.server.api.snapshots import READ_PARAMETERS, TAKE_PARAMETERS, SnapshotHandler
from sow.server.api.static_files import Pages, ShippedFile
from sow.server.http.authn_middleware import RequestAuthenticator, permissions_of
from sow.server.http.parameters import parameters_of
from sow.server.http.route import WEBSOCKET, Handler, Route
from sow.server.http.startup_barrier import ReadinessGate
from sow.server.loop.filter_compile_pool import compile_beside, guarded_by, long_among, long_guarded
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.sse import STREAM_PARAMETERS, EventStreamHandler
from sow.server.net.websocket import WebSocketHandler
from sow.sessions.commands.executor import Executor
from sow.store.backup import CopiedStore
from sow.store.staging import Staging

DEMANDED: Mapping[str, Demand] = {
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "delete",
}
"""The permission that a method needs, unless it reads a topic."""


class Handlers(NamedTuple):
    """The handlers of requests."""

    http: RecordsHandler
    record: RecordHandler
    sessions: SessionsHandler
    log: LogHandler
    snapshots: SnapshotHandler
    writes: BatchCommitHandler
    websocket: WebSocketHandler
    events: EventStreamHandler
    why: ExplainHandler
    stories: ExplainSessionHandler
    filters: FilterCache
    operations: AdminHandler
    backups: BackupHandler


def open_handlers(
    driver: ServerRuntime,
    executor: Executor,
    reload: Callable[[bool], Awaitable[list[str]]],
    staging: Staging,
    store: CopiedStore,
    authn: RequestAuthenticator,
    operations: AdminHandler | None = None,
) -> Handlers:
    """The handlers of one server; `reload` reads its configuration again."""
    past = AsOfQueries(driver, executor.engine)
    snapshots = SnapshotHandler(driver, executor.engine, past)
    return Handlers(
        RecordsHandler(driver, executor, reload, past, snapshots),
        RecordHandler(driver, executor),
        SessionsHandler(driver, executor),
        LogHandler(driver, executor.engine),
        snapshots,
        BatchCommitHandler(driver, executor.engine, staging),
        WebSocketHandler(driver, executor, authn),
        EventStreamHandler(driver, executor),
        ExplainHandler(driver, executor.engine),
        ExplainSessionHandler(driver, executor),
        executor.engine.filters,
        operations or AdminHandler(),
        BackupHandler(store, driver.now_us),
    )


def routes(status: HealthHandler, gate: ReadinessGate[Handlers]) -> list[Route]:
    """All routes. Those of `status` are answered at any time, all others by the handlers, once
    `gate` is open."""

    def gated(find: Callable[[Handlers], Handler]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            handlers = await gate.handlers()
            text, filters = parameters_of(request).get("filter"), handlers.filters
            await compile_beside(filters, long_among(filters, [text]))
            topic = request.match_info.get("topic")
            if topic is not None:
                guard = guarded_by(
                    permissions_of(request), DEMANDED.get(request.method, "read"), topic
                )
                await compile_beside(filters, (), long_guarded(filters, [(guard, text)]))
            return await find(handlers)(request)

        return handle

    @cache
    def described() -> bytes:
        # Made once: it takes some milliseconds, and any client may request it.
        return orjson.dumps(description(table))

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=described(), content_type=JSON)

    async def functions(_request: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(described_functions()), content_type=JSON)

    pages = Pages()
    topic = "/v1/topics/{topic}"
    records = topic + "/records"
    batch = "/v1/writes/{writer}/{epoch}"
    table = [
        Route(
            "GET",
            "/v1/topics",
            "logon",
            gated(lambda handlers: handlers.http.topics),
            "All topics, or some by their names",
            TOPICS_PARAMETERS,
        ),
        Route(
            "GET",
            topic,
            "see",
            gated(lambda handlers: handlers.http.topic),
            "One topic: definition, counts, conflation",
            ("expected",),
        ),
        Route(
            "GET",
            records,
            "read",
            gated(lambda handlers: handlers.http.query),
            "Query records",
            QUERY_PARAMETERS,
        ),
        Route(
            "POST",
            records,
            "write",
            gated(lambda handlers: handlers.http.publish),
            "Publish",
            PUBLISH_PARAMETERS,
        ),
        Route(
            "PATCH",
            records,
            "write",
            gated(lambda handlers: handlers.http.delta_publish),
            "Delta publish",
            PUBLISH_PARAMETERS,
        ),
        Route(
            "DELETE",
            records,
            "delete",
            gated(lambda handlers: handlers.http.delete),
            "Delete records",
            DELETE_PARAMETERS,
        ),
        Route(
            "GET",
            records + "/{key}",
            "read",
            gated(lambda handlers: handlers.record.read),
            "One record by SowKey",
        ),
        Route(
            "PUT",
            records + "/{key}",
            "write",
            gated(lambda handlers: handlers.record.put),
            "Publish one record by SowKey",
            PUT_PARAMETERS,
        ),
        Route(
            "PATCH",
            records + "/{key}",
            "write",
            gated(lambda handlers: handlers.record.merge),
            "Merge a message into one record",
            PUT_PARAMETERS,
        ),
        Route(
            "DELETE",
            records + "/{key}",
            "delete",
            gated(lambda handlers: handlers.record.delete),
            "Delete one record by SowKey",
        ),
        Route(
            "GET",
            records + "/{key}/why",
            "read",
            gated(lambda handlers: handlers.why.handle),
            "Explain a record: its windows and followers",
        ),
        Route(
            "GET",
            topic + "/stream",
            "read",
            gated(lambda handlers: handlers.events.handle),
            "Server-sent events: query and subscribe",
            STREAM_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/message-types",
            "logon",
            gated(lambda handlers: handlers.http.message_types),
            "The message types of the configuration",
        ),
        Route(
            "GET",
            "/v1/log",
            "logon",
            gated(lambda handlers: handlers.log.handle),
            "A range of the transaction log",
            LOG_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/log/extent",
            "logon",
            gated(lambda handlers: handlers.log.extent),
            "What a range of the log holds",
            EXTENT_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/log/consumers",
            "logon",
            gated(lambda handlers: handlers.log.consumers),
            "Who has read the log how far",
        ),
        Route(
            "PUT",
            "/v1/log/consumers/{name}",
            "logon",
            gated(lambda handlers: handlers.log.move_consumer),
            "Note a consumer's position",
        ),
        Route(
            "DELETE",
            "/v1/log/consumers/{name}",
            "logon",
            gated(lambda handlers: handlers.log.remove_consumer),
            "Forget a consumer",
        ),
        Route(
            "POST",
            "/v1/snapshots",
            "read",
            gated(lambda handlers: handlers.snapshots.take),
            "Take a snapshot of a topic",
            TAKE_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/snapshots/{id}",
            "logon",
            gated(lambda handlers: handlers.snapshots.read),
            "A part of it",
            READ_PARAMETERS,
        ),
        Route(
            "DELETE",
            "/v1/snapshots/{id}",
            "logon",
            gated(lambda handlers: handlers.snapshots.release),
            "Let a snapshot go",
        ),
        Route(
            "POST",
            batch,
            "write",
            gated(lambda handlers: handlers.writes.stage),
            "Stage rows of a batch",
            STAGE_PARAMETERS,
        ),
        Route(
            "POST",
            batch + "/commit",
            "write",
            gated(lambda handlers: handlers.writes.commit),
            "Apply a staged batch, once",
        ),
        Route(
            "DELETE",
            batch,
            "write",
            gated(lambda handlers: handlers.writes.abort),
            "Forget a staged batch",
            ABORT_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/sessions",
            "logon",
            gated(lambda handlers: handlers.sessions.listed),
            "Sessions and their queues",
            SESSIONS_LIST_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/sessions/{id}",
            "logon",
            gated(lambda handlers: handlers.sessions.one),
            "One session, and what it follows",
        ),
        Route(
            "GET",
            "/v1/sessions/{id}/why",
            "logon",
            gated(lambda handlers: handlers.stories.handle),
            "Explain a session: what it does not receive, since when, why, and what to do",
        ),
        Route(
            "POST",
            "/v1/sessions",
            "logon",
            gated(lambda handlers: handlers.sessions.change_some),
            "Conflate or not",
            SESSIONS_PARAMETERS,
        ),
        Route(
            "POST",
            "/v1/sessions/{id}",
            "logon",
            gated(lambda handlers: handlers.sessions.change),
            "Switch a session's conflation",
        ),
        Route(
            "DELETE",
            "/v1/sessions/{id}",
            "logon",
            gated(lambda handlers: handlers.sessions.end),
            "Close a session",
        ),
        Route(
            "GET",
            "/v1/config",
            "admin",
            gated(lambda handlers: handlers.http.config),
            "The configuration as understood",
        ),
        Route(
            "POST",
            "/v1/config/reload",
            "admin",
            gated(lambda handlers: handlers.http.reload),
            "Read config.xml again",
            ("allow_loss",),
        ),
        Route(
            "GET",
            "/v1/config/file",
            "admin",
            gated(lambda handlers: handlers.operations.file),
            "The configuration file as it is now",
        ),
        Route(
            "GET",
            "/v1/pipelines",
            "admin",
            gated(lambda handlers: handlers.operations.pipelines),
            "Pipelines, and how they run",
        ),
        Route(
            "POST",
            "/v1/backup",
            "admin",
            gated(lambda handlers: handlers.backups.backup),
            "A backup of everything, as of one moment",
        ),
        Route(
            "POST",
            "/v1/verify",
            "admin",
            gated(lambda handlers: handlers.backups.verify),
            "Read everything that is stored, and compare checksums",
        ),
        Route(
            "GET",
            WEBSOCKET,
            "nothing",
            gated(lambda handlers: handlers.websocket.handle),
            "WebSocket",
        ),
        Route("GET", "/", "nothing", pages.index, "The console"),
        Route("GET", "/console/{file}", "nothing", pages.file, "A file of the console"),
        Route("GET", "/console/{folder}/{file}", "nothing", pages.file, "A file of the console"),
        Route("GET", "/sow.js", "nothing", ShippedFile("sow.js").handle, "The JavaScript client"),
        Route("GET", "/sow.d.ts", "nothing", ShippedFile("sow.d.ts").handle, "Its types"),
        Route("GET", "/v1/functions", "logon", functions, "The functions of filters and fields"),
        Route("GET", "/openapi.json", "nothing", openapi, "This list, as OpenAPI"),
        Route("GET", "/metrics", "admin", status.metrics, "Prometheus metrics", ("topics",)),
        Route("GET", "/healthz", "nothing", status.alive, "The process is alive"),
        Route("GET", "/readyz", "nothing", status.ready, "Messages are taken"),
        Route("GET", "/v1/status", "logon", status.status, "What this server is"),
    ]
    return table
