"""Exchanges: the body and the answer of each route, in addition to the table of routes.

An exchange has an operation id, the media types of its body and of its answer, and, for JSON, their
types (`sow.server.api.response_schemas`). `/openapi.json` is generated from both tables, and a test
requires one exchange for each route.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sow.core.media_types import (
    ARROW,
    BSON,
    BYTES,
    CSV,
    EVENT_STREAM,
    FRAMES,
    JSON,
    MSGPACK,
    NDJSON,
    PLAIN_TEXT,
    XML,
)
from sow.server.api.batch_commit import Commit
from sow.server.api.log import Position
from sow.server.api.response_schemas import (
    Aborted,
    Committed,
    ConfigurationFile,
    Conflated,
    ConsumerDescribed,
    ConsumerMoved,
    Deleted,
    FunctionDescribed,
    LogExtent,
    Published,
    QueryExplained,
    RecordStory,
    Released,
    Reloaded,
    Removed,
    RowsStaged,
    ServerStatus,
    SessionClosed,
    SessionDescribed,
    SessionsChanged,
    SnapshotDescribed,
    TopicDescribed,
    Verified,
)
from sow.server.api.static_files import SHIPPED_TYPES

MESSAGES = (JSON, NDJSON, CSV, PLAIN_TEXT, XML, BSON, MSGPACK, BYTES, FRAMES)
"""Formats of messages; the format of a message type is for topics of that type."""
ONE_RECORD = (JSON, PLAIN_TEXT, XML, BSON, MSGPACK, BYTES)
SHIPPED_FORMS = tuple(sorted({*SHIPPED_TYPES.values()}))
ROWS, TABLES = (JSON, NDJSON, CSV, ARROW, FRAMES), (NDJSON, ARROW, CSV)


class Exchange(NamedTuple):
    """The body and answer of a route: `answer` and `body` are the types of JSON, `answers` and
    `takes` the media types, the usual one first (none: no body). `also` are further statuses of the
    answer beside 200, `requires` are the required parameters, `tagged` answers have an ETag, and
    `refusals` are statuses of problems that do not follow from the rest of the exchange
    (`sow.server.api.openapi`).
    """

    operation: str
    answer: Any = Any
    answers: tuple[str, ...] = (JSON,)
    body: Any = Any
    takes: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    needs_body: bool = True
    requires: tuple[str, ...] = ()
    tagged: bool = False
    refusals: tuple[int, ...] = ()


_RECORDS = "/v1/topics/{topic}/records"
_RECORD = _RECORDS + "/{key}"
_BATCH = "/v1/writes/{writer}/{epoch}"
EXCHANGES: Mapping[str, Exchange] = {
    "GET /v1/topics": Exchange("list_topics", list[TopicDescribed | str], tagged=True),
    "GET /v1/topics/{topic}": Exchange("describe_topic", TopicDescribed),
    f"GET {_RECORDS}": Exchange(
        "query", list[Any] | QueryExplained, ROWS, tagged=True, refusals=(507,)
    ),
    f"POST {_RECORDS}": Exchange("publish", Published, takes=MESSAGES),
    f"PATCH {_RECORDS}": Exchange("delta_publish", Published, takes=MESSAGES),
    f"DELETE {_RECORDS}": Exchange("delete_records", Deleted, takes=MESSAGES, needs_body=False),
    f"GET {_RECORD}": Exchange("get_record", Any, ONE_RECORD, tagged=True),
    f"PUT {_RECORD}": Exchange("put_record", Published, takes=MESSAGES, also=(201,)),
    f"PATCH {_RECORD}": Exchange("merge_record", Published, takes=MESSAGES, also=(201,)),
    f"DELETE {_RECORD}": Exchange("delete_record", Deleted, refusals=(507,)),
    f"GET {_RECORD}/why": Exchange("explain_record", RecordStory),
    "GET /v1/topics/{topic}/stream": Exchange("follow", Any, (EVENT_STREAM,), refusals=(507,)),
    "GET /v1/message-types": Exchange("list_message_types", list[dict[str, Any]]),
    "GET /v1/log": Exchange("read_log", Any, TABLES, tagged=True),
    "GET /v1/log/extent": Exchange("measure_log", LogExtent),
    "GET /v1/log/consumers": Exchange("list_consumers", list[ConsumerDescribed]),
    "PUT /v1/log/consumers/{name}": Exchange(
        "move_consumer", ConsumerMoved, body=Position, takes=(JSON,), refusals=(409,)
    ),
    "DELETE /v1/log/consumers/{name}": Exchange("remove_consumer", Removed, refusals=(507,)),
    "POST /v1/snapshots": Exchange("take_snapshot", SnapshotDescribed, requires=("topic",)),
    "GET /v1/snapshots/{id}": Exchange("read_snapshot", Any, (ARROW,)),
    "DELETE /v1/snapshots/{id}": Exchange("release_snapshot", Released),
    f"POST {_BATCH}": Exchange(
        "stage_rows", RowsStaged, takes=(ARROW,), requires=("topic",), refusals=(409,)
    ),
    f"POST {_BATCH}/commit": Exchange(
        "commit_batch", Committed, body=Commit, takes=(JSON,), refusals=(409,)
    ),
    f"DELETE {_BATCH}": Exchange("abort_batch", Aborted, refusals=(409,)),
    "GET /v1/sessions": Exchange("list_sessions", list[SessionDescribed], tagged=True),
    "GET /v1/sessions/{id}": Exchange("describe_session", SessionDescribed),
    "GET /v1/sessions/{id}/why": Exchange("explain_session", dict[str, Any]),
    "POST /v1/sessions": Exchange(
        "change_sessions", SessionsChanged, body=Conflated, takes=(JSON,), requires=("filter",)
    ),
    "POST /v1/sessions/{id}": Exchange(
        "change_session", SessionDescribed, body=Conflated, takes=(JSON,)
    ),
    "DELETE /v1/sessions/{id}": Exchange("end_session", SessionClosed),
    "GET /v1/config": Exchange("read_configuration", dict[str, Any]),
    "POST /v1/config/reload": Exchange("reload", Reloaded, refusals=(507,)),
    "GET /v1/config/file": Exchange("read_configuration_file", ConfigurationFile),
    "GET /v1/pipelines": Exchange("list_pipelines", list[dict[str, Any]]),
    "POST /v1/backup": Exchange("back_up", Any, (FRAMES,)),
    "POST /v1/verify": Exchange("verify", Verified),
    "GET /v1/ws": Exchange("open_websocket", Any, ()),
    "GET /": Exchange("open_console", Any, ("text/html",), tagged=True),
    "GET /console/{file}": Exchange("read_console_file", Any, SHIPPED_FORMS, tagged=True),
    "GET /console/{folder}/{file}": Exchange("read_console_page", Any, SHIPPED_FORMS, tagged=True),
    "GET /sow.js": Exchange("read_javascript_client", Any, ("text/javascript",), tagged=True),
    "GET /sow.d.ts": Exchange(
        "read_javascript_types", Any, ("application/typescript",), tagged=True
    ),
    "GET /v1/functions": Exchange("list_functions", list[FunctionDescribed]),
    "GET /openapi.json": Exchange("read_openapi", dict[str, Any]),
    "GET /metrics": Exchange("read_metrics", Any, (PLAIN_TEXT,)),
    "GET /healthz": Exchange("is_alive", Any, (PLAIN_TEXT,)),
    "GET /readyz": Exchange("is_ready", Any, (PLAIN_TEXT,), also=(503,)),
    "GET /v1/status": Exchange("read_status", ServerStatus),
}
"""By method and path."""
