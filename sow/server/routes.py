"""Every address of the server, in one table, and what each takes.

Requests are let in by it (`sow.server.route`): a parameter that does not stand here reaches no
handler. `/openapi.json` is made from it, and the documents are compared with it.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import NamedTuple

import orjson
from aiohttp import web

from sow.engine.filters import Filters
from sow.expressions import described_functions
from sow.media_types import JSON
from sow.requests.executor import Executor
from sow.rights import Demand
from sow.server.backups import BackupDoor
from sow.server.doorman import Doorman, rights_of
from sow.server.driver import Driver
from sow.server.entrance import Entrance
from sow.server.http import (
    DELETE_PARAMETERS,
    PUBLISH_PARAMETERS,
    QUERY_PARAMETERS,
    TOPICS_PARAMETERS,
    HttpDoor,
)
from sow.server.log import EXTENT_PARAMETERS, LOG_PARAMETERS, LogDoor
from sow.server.long_filters import compile_beside, guarded_by, long_among, long_guarded
from sow.server.openapi import description
from sow.server.operations import OperationsDoor
from sow.server.pages import Pages
from sow.server.parameters import asked_of
from sow.server.past import PastStates
from sow.server.record import PUT_PARAMETERS, RecordDoor
from sow.server.route import WEBSOCKET, Handler, Route
from sow.server.session_story import SessionStoryDoor
from sow.server.sessions_door import (
    SESSIONS_LIST_PARAMETERS,
    SESSIONS_PARAMETERS,
    SessionsDoor,
)
from sow.server.shipped import ShippedFile
from sow.server.snapshots import READ_PARAMETERS, TAKE_PARAMETERS, SnapshotDoor
from sow.server.sse import STREAM_PARAMETERS, EventDoor
from sow.server.status import StatusDoor
from sow.server.websocket import WebSocketDoor
from sow.server.why import WhyDoor
from sow.server.writes import ABORT_PARAMETERS, STAGE_PARAMETERS, WritesDoor
from sow.store.backup import CopiedStore
from sow.store.staging import Staging

DEMANDED: Mapping[str, Demand] = {
    "POST": "write",
    "PUT": "write",
    "PATCH": "write",
    "DELETE": "delete",
}
"""What a method asks for that does not read a topic."""


class Doors(NamedTuple):
    """Whatever takes requests."""

    http: HttpDoor
    record: RecordDoor
    sessions: SessionsDoor
    log: LogDoor
    snapshots: SnapshotDoor
    writes: WritesDoor
    websocket: WebSocketDoor
    events: EventDoor
    why: WhyDoor
    stories: SessionStoryDoor
    filters: Filters
    operations: OperationsDoor
    backups: BackupDoor


def open_doors(
    driver: Driver,
    executor: Executor,
    reload: Callable[[bool], Awaitable[list[str]]],
    staging: Staging,
    store: CopiedStore,
    doorman: Doorman,
    operations: OperationsDoor | None = None,
) -> Doors:
    """The doors of one server; `reload` reads its configuration again."""
    past = PastStates(driver, executor.engine)
    snapshots = SnapshotDoor(driver, executor.engine, past)
    return Doors(
        HttpDoor(driver, executor, reload, past, snapshots),
        RecordDoor(driver, executor),
        SessionsDoor(driver, executor),
        LogDoor(driver, executor.engine),
        snapshots,
        WritesDoor(driver, executor.engine, staging),
        WebSocketDoor(driver, executor, doorman),
        EventDoor(driver, executor),
        WhyDoor(driver, executor.engine),
        SessionStoryDoor(driver, executor),
        executor.engine.filters,
        operations or OperationsDoor(),
        BackupDoor(store, driver.now_us),
    )


def routes(status: StatusDoor, entrance: Entrance[Doors]) -> list[Route]:
    """All addresses. What asks for `status` is answered at any time, everything else by the doors,
    once the entrance lets through to them."""

    def through(find: Callable[[Doors], Handler]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            doors = await entrance.doors()
            text, filters = asked_of(request).get("filter"), doors.filters
            await compile_beside(filters, long_among(filters, [text]))
            topic = request.match_info.get("topic")
            if topic is not None:
                guard = guarded_by(rights_of(request), DEMANDED.get(request.method, "read"), topic)
                await compile_beside(filters, (), long_guarded(filters, [(guard, text)]))
            return await find(doors)(request)

        return handle

    @cache
    def described() -> bytes:
        # Made once: it takes some milliseconds, and anybody may ask for it.
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
            through(lambda doors: doors.http.topics),
            "All topics, or some by their names",
            TOPICS_PARAMETERS,
        ),
        Route(
            "GET",
            topic,
            "see",
            through(lambda doors: doors.http.topic),
            "One topic: definition, counts, conflation",
            ("expected",),
        ),
        Route(
            "GET",
            records,
            "read",
            through(lambda doors: doors.http.query),
            "Query records",
            QUERY_PARAMETERS,
        ),
        Route(
            "POST",
            records,
            "write",
            through(lambda doors: doors.http.publish),
            "Publish",
            PUBLISH_PARAMETERS,
        ),
        Route(
            "PATCH",
            records,
            "write",
            through(lambda doors: doors.http.delta_publish),
            "Delta publish",
            PUBLISH_PARAMETERS,
        ),
        Route(
            "DELETE",
            records,
            "delete",
            through(lambda doors: doors.http.delete),
            "Delete records",
            DELETE_PARAMETERS,
        ),
        Route(
            "GET",
            records + "/{key}",
            "read",
            through(lambda doors: doors.record.read),
            "One record by SowKey",
        ),
        Route(
            "PUT",
            records + "/{key}",
            "write",
            through(lambda doors: doors.record.put),
            "Publish one record by SowKey",
            PUT_PARAMETERS,
        ),
        Route(
            "PATCH",
            records + "/{key}",
            "write",
            through(lambda doors: doors.record.merge),
            "Merge a message into one record",
            PUT_PARAMETERS,
        ),
        Route(
            "DELETE",
            records + "/{key}",
            "delete",
            through(lambda doors: doors.record.delete),
            "Delete one record by SowKey",
        ),
        Route(
            "GET",
            records + "/{key}/why",
            "read",
            through(lambda doors: doors.why.handle),
            "Why a record is told of as it is: its windows and followers",
        ),
        Route(
            "GET",
            topic + "/stream",
            "read",
            through(lambda doors: doors.events.handle),
            "Server-sent events: query and subscribe",
            STREAM_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/message-types",
            "logon",
            through(lambda doors: doors.http.message_types),
            "The message types of the configuration",
        ),
        Route(
            "GET",
            "/v1/log",
            "logon",
            through(lambda doors: doors.log.handle),
            "A range of the transaction log",
            LOG_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/log/extent",
            "logon",
            through(lambda doors: doors.log.extent),
            "What a range of the log holds",
            EXTENT_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/log/consumers",
            "logon",
            through(lambda doors: doors.log.consumers),
            "Who has read the log how far",
        ),
        Route(
            "PUT",
            "/v1/log/consumers/{name}",
            "logon",
            through(lambda doors: doors.log.move_consumer),
            "Note a consumer's position",
        ),
        Route(
            "DELETE",
            "/v1/log/consumers/{name}",
            "logon",
            through(lambda doors: doors.log.remove_consumer),
            "Forget a consumer",
        ),
        Route(
            "POST",
            "/v1/snapshots",
            "read",
            through(lambda doors: doors.snapshots.take),
            "Take a snapshot of a topic",
            TAKE_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/snapshots/{id}",
            "logon",
            through(lambda doors: doors.snapshots.read),
            "A part of it",
            READ_PARAMETERS,
        ),
        Route(
            "DELETE",
            "/v1/snapshots/{id}",
            "logon",
            through(lambda doors: doors.snapshots.release),
            "Let a snapshot go",
        ),
        Route(
            "POST",
            batch,
            "write",
            through(lambda doors: doors.writes.stage),
            "Stage rows of a batch",
            STAGE_PARAMETERS,
        ),
        Route(
            "POST",
            batch + "/commit",
            "write",
            through(lambda doors: doors.writes.commit),
            "Apply a staged batch, once",
        ),
        Route(
            "DELETE",
            batch,
            "write",
            through(lambda doors: doors.writes.abort),
            "Forget a staged batch",
            ABORT_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/sessions",
            "logon",
            through(lambda doors: doors.sessions.listed),
            "Sessions and their queues",
            SESSIONS_LIST_PARAMETERS,
        ),
        Route(
            "GET",
            "/v1/sessions/{id}",
            "logon",
            through(lambda doors: doors.sessions.one),
            "One session, and what it follows",
        ),
        Route(
            "GET",
            "/v1/sessions/{id}/why",
            "logon",
            through(lambda doors: doors.stories.handle),
            "What a session is not told, since when, why, and what to do",
        ),
        Route(
            "POST",
            "/v1/sessions",
            "logon",
            through(lambda doors: doors.sessions.change_some),
            "Conflate or not",
            SESSIONS_PARAMETERS,
        ),
        Route(
            "POST",
            "/v1/sessions/{id}",
            "logon",
            through(lambda doors: doors.sessions.change),
            "Switch a session's conflation",
        ),
        Route(
            "DELETE",
            "/v1/sessions/{id}",
            "logon",
            through(lambda doors: doors.sessions.end),
            "Close a session",
        ),
        Route(
            "GET",
            "/v1/config",
            "admin",
            through(lambda doors: doors.http.config),
            "The configuration as understood",
        ),
        Route(
            "POST",
            "/v1/config/reload",
            "admin",
            through(lambda doors: doors.http.reload),
            "Read config.xml again",
            ("allow_loss",),
        ),
        Route(
            "GET",
            "/v1/config/file",
            "admin",
            through(lambda doors: doors.operations.file),
            "The configuration file as it is now",
        ),
        Route(
            "GET",
            "/v1/pipelines",
            "admin",
            through(lambda doors: doors.operations.pipelines),
            "Pipelines, and how they run",
        ),
        Route(
            "POST",
            "/v1/backup",
            "admin",
            through(lambda doors: doors.backups.backup),
            "A backup of everything, as of one moment",
        ),
        Route(
            "POST",
            "/v1/verify",
            "admin",
            through(lambda doors: doors.backups.verify),
            "Read everything that is stored, and compare checksums",
        ),
        Route(
            "GET", WEBSOCKET, "nothing", through(lambda doors: doors.websocket.handle), "WebSocket"
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
