"""Answers: what the documents that the server answers with hold, as types.

`/openapi.json` is made of them, and the tests hold what is answered against them, field by field,
so that a client that is generated from the one understands the other. Bookmarks and SowKeys are
text, since they are 64 bits and more than a number of JavaScript holds.
"""

from typing import Any, Literal

import msgspec

Kind = Literal["topic", "pattern", "conflated", "view"]


class ResponseModel(msgspec.Struct):
    """A document; a field with a default need not be there."""


class Problem(ResponseModel):
    """What is wrong with a request (RFC 9457)."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
    position: int | msgspec.UnsetType = msgspec.UNSET
    expected: str | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET
    field: str | msgspec.UnsetType = msgspec.UNSET


class Published(ResponseModel):
    """Messages are stored."""

    published: int
    bookmark: str


class Deleted(ResponseModel):
    """Records are gone."""

    deleted: int


class TermExplained(ResponseModel):
    """A part of a query, what served it, and how many records were left."""

    expression: str
    index: str
    rows: int


class QueryExplained(ResponseModel):
    """How a query was answered."""

    terms: list[TermExplained]
    rows_touched: int
    advice: str
    why: list[str]


class TopicDescribed(ResponseModel):
    """A topic, a pattern of topics, a conflated topic or a view, and how it stands."""

    name: str
    kind: Kind
    message_type: str
    indexes: list[list[str]]
    records: int
    keys: list[str] | msgspec.UnsetType = msgspec.UNSET
    key_domain: str | msgspec.UnsetType = msgspec.UNSET
    memos: list[str] | msgspec.UnsetType = msgspec.UNSET
    bytes: int | msgspec.UnsetType | None = msgspec.UNSET
    subscriptions: int | msgspec.UnsetType = msgspec.UNSET
    updates: int | msgspec.UnsetType | None = msgspec.UNSET
    of_pattern: str | msgspec.UnsetType = msgspec.UNSET
    pattern: str | msgspec.UnsetType | None = msgspec.UNSET
    topics: int | msgspec.UnsetType = msgspec.UNSET
    underlying: str | msgspec.UnsetType | None = msgspec.UNSET
    underlyings: list[str] | msgspec.UnsetType = msgspec.UNSET
    projection: list[str] | msgspec.UnsetType = msgspec.UNSET
    grouping: list[str] | msgspec.UnsetType = msgspec.UNSET
    interval_ms: float | msgspec.UnsetType = msgspec.UNSET
    filter: str | msgspec.UnsetType | None = msgspec.UNSET
    engine: str | msgspec.UnsetType = msgspec.UNSET
    filled_bookmark: str | msgspec.UnsetType = msgspec.UNSET
    pending: int | msgspec.UnsetType = msgspec.UNSET
    oldest_pending_ms: float | msgspec.UnsetType = msgspec.UNSET
    left_out: int | msgspec.UnsetType = msgspec.UNSET
    updates_in: int | msgspec.UnsetType = msgspec.UNSET
    updates_out: int | msgspec.UnsetType = msgspec.UNSET
    executions: int | msgspec.UnsetType = msgspec.UNSET
    conflation_ratio: float | msgspec.UnsetType = msgspec.UNSET
    stopped: str | msgspec.UnsetType | None = msgspec.UNSET


class FollowedDescribed(ResponseModel):
    """One subscription of a session."""

    s: str
    topic: str | None
    filter: str | None
    interval_ms: float | None
    auto: bool
    window: bool
    pending: int | msgspec.UnsetType = msgspec.UNSET
    oldest_pending_ms: float | msgspec.UnsetType = msgspec.UNSET
    updates_in: int | msgspec.UnsetType = msgspec.UNSET
    updates_out: int | msgspec.UnsetType = msgspec.UNSET


class SessionDescribed(ResponseModel):
    """A session and its queue, or one that is gone."""

    id: str
    client: str | None
    user: str | None
    address: str
    since: str
    connected: bool
    connected_ms: float
    conflated_messages: int
    dropped_messages: int
    reason: str | None
    subscriptions: int | msgspec.UnsetType = msgspec.UNSET
    queue_messages: int | msgspec.UnsetType = msgspec.UNSET
    queue_bytes: int | msgspec.UnsetType = msgspec.UNSET
    conflated: bool | msgspec.UnsetType = msgspec.UNSET
    lag_ms: float | msgspec.UnsetType = msgspec.UNSET
    closed_ms: float | msgspec.UnsetType = msgspec.UNSET
    following: list[FollowedDescribed] | msgspec.UnsetType = msgspec.UNSET


class SessionsChanged(ResponseModel):
    """Sessions whose queues are conflated from now on, or not."""

    changed: list[str]


class SessionClosed(ResponseModel):
    """A session that is ended."""

    closed: str


class Conflated(ResponseModel):
    """Whether queues may be conflated."""

    conflated: bool


class LogExtent(ResponseModel):
    """What a range of the log holds."""

    from_: str = msgspec.field(name="from")
    to: str
    rows: int
    oldest: str
    newest: str
    ts: str
    ts_us: int
    log: str


class ConsumerDescribed(ResponseModel):
    """A reader of the log that has a name."""

    name: str
    bookmark: str
    behind: int
    idle_s: int


class ConsumerMoved(ResponseModel):
    """How far a reader has come."""

    name: str
    bookmark: str


class Removed(ResponseModel):
    """A reader that is forgotten."""

    removed: str


class SnapshotDescribed(ResponseModel):
    """Records that are held as they are at one bookmark."""

    snapshot: str
    topic: str
    bookmark: str
    rows: int
    parts: int
    expires_s: int


class Released(ResponseModel):
    """A snapshot that is let go."""

    released: str


class RowRejected(ResponseModel):
    """A row that cannot be carried out."""

    index: int
    reason: str


class RowsStaged(ResponseModel):
    """Rows of a batch that are kept for its commit."""

    staged: int
    rejected: list[RowRejected]


class Committed(ResponseModel):
    """A batch that is applied."""

    bookmark: str
    duplicate: bool


class Aborted(ResponseModel):
    """A batch that is forgotten."""

    aborted: int


class Reloaded(ResponseModel):
    """What a reload has changed."""

    changes: list[str]


class FindingDescribed(ResponseModel):
    """A remark on the configuration file."""

    file: str
    line: int
    element: str
    severity: str
    message: str
    instead: str


class ConfigurationFile(ResponseModel):
    """The configuration file as it is now."""

    file: str | None
    text: str
    findings: list[FindingDescribed]
    values: dict[str, Any] | None


class ServerStatus(ResponseModel):
    """What a server is."""

    log: str


class FileVerified(ResponseModel):
    """A file of the data directory."""

    file: str
    size_bytes: int
    problem: str


class Verified(ResponseModel):
    """Whether what is stored is what was written."""

    whole: bool
    files: list[FileVerified]


class FunctionDescribed(ResponseModel):
    """A function of filters and fields."""

    name: str
    signature: str
    description: str
    null: str
    example: str
    result: Any


class MomentDescribed(ResponseModel):
    """An update: its bookmark and its time."""

    bookmark: str
    ts: str


class WindowDescribed(ResponseModel):
    """A window of a conflated record."""

    opened: str
    ends: str
    updates: int
    bookmarks: list[str]


class FollowerDescribed(ResponseModel):
    """Who follows a record."""

    session: str
    client: str | None
    s: str
    filter: str | None
    interval_ms: float | None
    auto: bool
    told: bool


class RecordStory(ResponseModel):
    """Why a record is told of as it is."""

    topic: str
    key: str
    kind: Kind
    held: MomentDescribed | None
    why: list[str]
    followers: list[FollowerDescribed]
    interval_ms: float | msgspec.UnsetType = msgspec.UNSET
    schedule: str | msgspec.UnsetType = msgspec.UNSET
    underlying: str | msgspec.UnsetType | None = msgspec.UNSET
    newest: MomentDescribed | msgspec.UnsetType | None = msgspec.UNSET
    waits: bool | msgspec.UnsetType = msgspec.UNSET
    windows: list[WindowDescribed] | msgspec.UnsetType | None = msgspec.UNSET
