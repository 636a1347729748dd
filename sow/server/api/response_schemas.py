"""The types of all JSON answers.

`/openapi.json` is generated from them, and the tests compare actual answers with them field by
field, so that generated clients fit. Bookmarks and SowKeys are strings: they have 64 bits, more
than a number in JavaScript holds.
"""

from typing import Any, Literal

import msgspec

from sow.server.loop.log_checkpoint import LogCheckpoint, LogMark

Kind = Literal["topic", "pattern", "conflated", "view", "queue"]


class ResponseModel(msgspec.Struct):
    """A JSON object; a field with a default is optional."""


class Problem(ResponseModel):
    """An error (RFC 9457)."""

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
    """The result of a publish."""

    published: int
    bookmark: str
    applied: int | msgspec.UnsetType = msgspec.UNSET


class Deleted(ResponseModel):
    """The result of a delete."""

    deleted: int


class Leased(ResponseModel):
    """A message of a queue: its lease, whose id acknowledges it, until when, and how often it was
    delivered."""

    lease: str
    bm: str
    k: str
    d: Any
    deliveries: int
    until: str
    enc: str | msgspec.UnsetType = msgspec.UNSET


class LeaseChange(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of a lease: it is given back, or lasts so long from now on."""

    cancel: bool = False
    extend: str = ""


class EventAnswered(ResponseModel):
    """One event of a record of a series."""

    seq: int
    ts: str
    author: str
    d: Any
    enc: str | msgspec.UnsetType = msgspec.UNSET


class Edited(ResponseModel):
    """The result of an edit: the number of the event, and the bookmark of the change."""

    edited: int
    bookmark: str


class SeriesDescribed(ResponseModel):
    """What a series retains of each record, and its events: None where a row policy hides them."""

    limit: int | None
    last_ms: float | None
    events: int | None
    bytes: int | None


class TermExplained(ResponseModel):
    """A term of a query, its access path, and the number of records left after it."""

    expression: str
    index: str
    rows: int


class QueryExplained(ResponseModel):
    """The plan of a query."""

    terms: list[TermExplained]
    rows_touched: int
    advice: str
    why: list[str]


class QueueDescribed(ResponseModel):
    """What the queues of sessions may do with a topic's updates."""

    conflation_policy: str
    placement: str
    match: list[str]
    merges: list[dict[str, str]]
    merger: str | None


class TopicDescribed(ResponseModel):
    """A topic, a pattern of topics, a conflated topic, a view or a queue, and its state."""

    name: str
    kind: Kind
    message_type: str
    indexes: list[list[str]]
    records: int
    keys: list[str] | msgspec.UnsetType = msgspec.UNSET
    key_domain: str | msgspec.UnsetType = msgspec.UNSET
    batch_bytes: int | msgspec.UnsetType = msgspec.UNSET
    may: list[Literal["read", "write", "delete"]] | msgspec.UnsetType = msgspec.UNSET
    series: SeriesDescribed | msgspec.UnsetType = msgspec.UNSET
    queue: QueueDescribed | msgspec.UnsetType = msgspec.UNSET
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
    waiting: int | msgspec.UnsetType = msgspec.UNSET
    leased: int | msgspec.UnsetType = msgspec.UNSET
    updates_in: int | msgspec.UnsetType = msgspec.UNSET
    updates_out: int | msgspec.UnsetType = msgspec.UNSET
    executions: int | msgspec.UnsetType = msgspec.UNSET
    conflation_ratio: float | msgspec.UnsetType = msgspec.UNSET
    stopped: str | msgspec.UnsetType | None = msgspec.UNSET


class RatesAnswered(ResponseModel, rename={"taken": "in", "given": "out"}):
    """Updates in and out in each of the last seconds, the newest last."""

    step_ms: int
    end: str
    taken: list[int]
    given: list[int]


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
    """A session and its queue, or a closed one."""

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
    client_bytes: int | msgspec.UnsetType = msgspec.UNSET
    conflated: bool | msgspec.UnsetType = msgspec.UNSET
    lag_ms: float | msgspec.UnsetType = msgspec.UNSET
    closed_ms: float | msgspec.UnsetType = msgspec.UNSET
    following: list[FollowedDescribed] | msgspec.UnsetType = msgspec.UNSET


class SessionsChanged(ResponseModel):
    """The sessions whose conflation was switched."""

    changed: list[str]


class SessionClosed(ResponseModel):
    """A session that was closed."""

    closed: str


class Conflated(ResponseModel):
    """Whether the queue may be conflated."""

    conflated: bool


class LogExtent(ResponseModel):
    """The bounds and size of a range of the log."""

    from_: str = msgspec.field(name="from")
    to: str
    rows: int
    since_us: int | None
    oldest: str
    newest: str
    ts: str
    ts_us: int
    log: str


class ConsumerDescribed(ResponseModel):
    """A named reader of the log."""

    name: str
    bookmark: str
    behind: int
    idle_s: int


class ConsumerMoved(ResponseModel):
    """The new position of a consumer."""

    name: str
    bookmark: str


class PipelineRestarted(ResponseModel):
    """The run of a pipeline that follows."""

    name: str
    run: int


class Removed(ResponseModel):
    """A consumer that was removed."""

    removed: str


class SnapshotDescribed(ResponseModel):
    """Records pinned as of one bookmark."""

    snapshot: str
    topic: str
    bookmark: str
    rows: int
    parts: int
    expires_s: int


class Released(ResponseModel):
    """A snapshot that was released."""

    released: str


class RowRejected(ResponseModel):
    """A row that cannot be applied."""

    index: int
    reason: str


class RowsStaged(ResponseModel):
    """Rows staged for a commit."""

    staged: int
    rejected: list[RowRejected]


class Committed(ResponseModel):
    """A batch that was applied."""

    bookmark: str
    duplicate: bool


class Aborted(ResponseModel):
    """A batch that was discarded."""

    aborted: int


class Reloaded(ResponseModel):
    """The changes of a reload."""

    changes: list[str]


class FindingDescribed(ResponseModel):
    """A finding in the configuration file."""

    file: str
    line: int
    element: str
    severity: str
    message: str
    instead: str


class ConfigurationFile(ResponseModel):
    """The current configuration file."""

    file: str | None
    text: str
    findings: list[FindingDescribed]
    values: dict[str, Any] | None


class NodeStatus(ResponseModel):
    """One server of a log; what was not heard of it is null."""

    url: str
    role: str
    bookmark: str | None
    state_hash: str | None
    lag_ms: int | None
    pid: int | None
    upstream: str | None
    sessions: int | None
    checkpoint: LogMark | None


class FailOverStatus(ResponseModel):
    """When a node began to lead in place of another, and why."""

    at: str
    before: str
    after: str
    why: str


class SharedLogStatus(ResponseModel):
    """How a node stands in the shared log, and what it knows of all nodes; a server with a log of
    its own has an engine and a role."""

    engine: str
    role: str
    node: str | None = None
    address: str | None = None
    leader: str | None = None
    leader_address: str | None = None
    term: int | None = None
    position: int | None = None
    lease_ms: int | None = None
    silent_ms: int | None = None
    stale: bool | None = None
    void: int | None = None
    failover: FailOverStatus | None = None
    checkpoint: LogCheckpoint | None = None
    nodes: list[NodeStatus] = msgspec.field(default_factory=list)


class NodeCompared(ResponseModel):
    """A node, and whether its records are those of the one that verifies; null where they are not
    at one bookmark."""

    url: str
    bookmark: str | None
    state_hash: str | None
    same: bool | None


class LogVerified(ResponseModel):
    """What was read again of the shared log, and what nodes have made of it."""

    first: int
    last: int
    hash: str
    groups: int
    void: int
    equal: bool
    nodes: list[NodeCompared]


class SteppedDown(ResponseModel):
    """The node that leads no more."""

    node: str


class LogCut(ResponseModel):
    """Up to where the shared log was trimmed."""

    before: str
    position: int


class ServerStatus(ResponseModel):
    """What a server is, and how far it is; without credentials `name`, `environment` and `colour`
    alone."""

    name: str
    environment: str | None
    colour: str | None
    role: str | None = None
    upstream: str | None = None
    log: str | None = None
    bookmark: str | None = None
    state_hash: str | None = None
    lag_ms: int | None = None
    nodes: list[NodeStatus] | None = None


class FileVerified(ResponseModel):
    """A file of the data directory."""

    file: str
    size_bytes: int
    problem: str


class Verified(ResponseModel):
    """The result of a verification of the store."""

    whole: bool
    files: list[FileVerified]


class FunctionDescribed(ResponseModel):
    """A function of the expression language."""

    name: str
    signature: str
    description: str
    null: str
    example: str
    result: Any


class MomentDescribed(ResponseModel):
    """The bookmark and time of an update."""

    bookmark: str
    ts: str


class WindowDescribed(ResponseModel):
    """A conflation window of a record."""

    opened: str
    ends: str
    updates: int
    bookmarks: list[str]


class LastLine(ResponseModel):
    """The last line that a subscriber had been sent of a record."""

    c: str
    reason: str | None
    d: Any
    bm: str
    at: str


class FollowerDescribed(ResponseModel):
    """A subscription to the topic of a record; `told` says whether it gets the record."""

    session: str
    client: str | None
    s: str
    filter: str | None
    interval_ms: float | None
    auto: bool
    told: bool


class RecordStory(ResponseModel):
    """The explanation of a record's state."""

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
    told: LastLine | msgspec.UnsetType | None = msgspec.UNSET
    window: WindowDescribed | msgspec.UnsetType | None = msgspec.UNSET
    waiting: bool | msgspec.UnsetType = msgspec.UNSET
