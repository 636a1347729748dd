"""Routes for other nodes of a log: the growing log and the reports of followers, and a shared log.

A follower reads one endless answer in the frames of `sow.store.backup`. The server sends durable
blocks in their stored form, so it decodes and encodes nothing for a follower. A beat carries the
time: followers have no other clock. The server sends one after each commit, whenever a window may
end here, and otherwise at the interval that the follower requests.

The server keeps the log for a follower while it reads and for an hour after that, unless the disk
is full. A follower that is away for longer copies everything again. Followers report their state
at intervals; `/v1/status` shows the reports.

Of a shared log, for nodes and operators, by `sow.server.loop.log_checkpoint`:

    GET  /v1/log/status      how the node stands in the log, what it keeps of it, and the others
    POST /v1/log/step-down   another node is to lead
    POST /v1/log/verify      the log is read again, and compared with what the node has applied
    POST /v1/log/trim        what all nodes have goes

A server with a log of its own refuses them.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta

from sow.core.addresses import authority
from sow.core.clock import SECOND_US
from sow.core.definitions import CONFIGURATIONS, KNOWN_COLUMNS
from sow.core.media_types import FRAMES, JSON
from sow.engine.engine import Engine
from sow.engine.following import windows_of
from sow.errors import Busy, ClientError, NotEntitled, NotKept, clipped, invalid_bookmark
from sow.history.bookmarks import number_of
from sow.server.api.admin import gathered_frames
from sow.server.api.nodes import AS_CHAINED, NODES_MAX, URL_CHARS_MAX, Nodes, ServerNode
from sow.server.api.response_schemas import (
    LogCut,
    LogVerified,
    NodeStatus,
    SharedLogStatus,
    SteppedDown,
)
from sow.server.api.status import StatusHandler
from sow.server.http.authn_middleware import permissions_of, reauthorize_stream
from sow.server.http.body_reading import read_body
from sow.server.http.chunked_response import write_part
from sow.server.http.negotiation import CODING
from sow.server.http.request_origin import client_address
from sow.server.http.responses import LOG_HEADER, json_response
from sow.server.http.route import operation, parameters_of, read_flag, read_seconds, route
from sow.server.loop.log_checkpoint import LogMark, LogOperations
from sow.server.loop.runtime import ServerRuntime
from sow.store.backup import (
    Beat,
    account_frame,
    beat_frame,
    block_frame,
    windows_frame,
)
from sow.store.protocols import LogEntry, OpenWindows

BEAT_S = 1.0
"""The longest time between two beats, unless the follower requests another."""
BEAT_S_MIN = 0.05
"""The shortest interval that a follower may request: a beat takes some fifty microseconds."""
BEAT_S_MAX = 60.0
"""The longest one: many routers close a connection that is silent for a minute."""
GATHERED_S = 0.005
"""Commits within this time leave together: a busy server makes hundreds a second."""
FEED_ACCOUNTS = (CONFIGURATIONS, KNOWN_COLUMNS)
"""The system topics that a follower needs: what was in force, and the types of columns."""


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class NodeFigures(msgspec.Struct, forbid_unknown_fields=True):
    """How far a node is; a chained server has no state."""

    bookmark: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")] | None
    state_hash: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")] | None
    lag_ms: Count
    pid: Count
    role: Literal["follower", "chained"] = "follower"
    upstream: Annotated[str, Meta(max_length=URL_CHARS_MAX)] | None = None
    sessions: Count | None = None
    checkpoint: LogMark | None = None


class NodeBelow(NodeFigures, kw_only=True):
    """The same of a node that has reported to the one that reports."""

    url: str


class NodeReport(NodeFigures):
    """What a node says of itself, and of those below it."""

    below: Annotated[list[NodeBelow], Meta(max_length=NODES_MAX)] = msgspec.field(
        default_factory=list
    )


class FollowersHandler:
    """`/v1/log/entries` and `/v1/nodes` of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, nodes: Nodes) -> None:
        self._runtime = runtime
        self._engine = engine
        self._nodes = nodes
        self._stopping = asyncio.Event()

    @route(
        "GET",
        "/v1/log/entries",
        "admin",
        "The log as a follower reads it",
        ("from", "beat", "node", "windows"),
    )
    @operation("read_entries", answers=(FRAMES,))
    async def entries(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/log/entries`: the log after the bookmark `from`, without an end, with a beat
        every `beat` seconds at least. `node` is the follower's own address. With `windows` the
        answer begins with the open windows. Raises ClientError, NotKept, AnotherLog."""
        if not permissions_of(request).reads_everything:
            raise NotEntitled(
                "the log holds all records of all topics; beside Admin it takes an Allow of Read "
                "with <Topic>.*</Topic>, without Filter and Select"
            )
        requested = parameters_of(request)
        beat_s = min(max(BEAT_S_MIN, read_seconds(requested, "beat") or BEAT_S), BEAT_S_MAX)
        after = self._after(requested.get("from", "0"))
        node = node_address(requested.get("node", ""), client_address(request))
        with_windows = read_flag(requested, "windows")
        response = web.StreamResponse(headers={LOG_HEADER: self._runtime.journal.log_id})
        response.content_type = FRAMES
        request.pop(CODING, None)  # blocks leave as they are stored
        await response.prepare(request)
        if request.method == hdrs.METH_HEAD:
            return response
        with self._nodes.reading(node, after) as reading:
            feed = _Feed(self._runtime, self._engine, after)
            if with_windows:
                await write_part(response, memoryview(await self._windows()))
            while not self._stopping.is_set():
                await reauthorize_stream(request)
                await feed.send(response)
                reading.reached(feed.after)
                await feed.wait(self._stopping, beat_s)
        return response

    async def _windows(self) -> bytes:
        """The windows that are open now, as a frame."""
        engine, runtime = self._engine, self._runtime
        while engine.atomic.topic is not None:
            await runtime.turns.run("open windows", engine.atomic.finish_any())
        time_us = engine.sequencer.moment(runtime.now_us())
        found = OpenWindows(engine.seq, time_us, [*windows_of(engine)])
        runtime.wake()
        return windows_frame(found)

    def _after(self, text: str) -> int:
        journal = self._runtime.journal
        after = number_of(text, journal.log_id)
        if after is None:
            raise invalid_bookmark(f"from={clipped(text)} is not a bookmark")
        if not journal.first_seq - 1 <= after <= journal.last_seq:
            raise NotKept(
                f"the log has records {journal.first_seq} to {journal.last_seq}, and not what "
                f"follows {after}; take a copy of everything: POST /v1/backup"
            )
        return after

    @route("PUT", "/v1/nodes/{node}", "logon", "What a node says of itself")
    @operation("report_node", NodeStatus, body=NodeReport, takes=(JSON,))
    async def report(self, request: web.Request) -> web.Response:
        """`PUT /v1/nodes/{node}`: note how far a follower or a chained server is; `node` is its
        address, and the answer has the one that it is listed under."""
        # Not declared on the route: the audit would get a line each second.
        rights = permissions_of(request)
        if not rights.may("impersonate"):
            rights.check("admin")
        try:
            report = msgspec.json.decode(await read_body(request), type=NodeReport)
        except msgspec.MsgspecError as error:
            raise ClientError(f"the body is no report of a node: {clipped(str(error))}") from None
        if report.below or report.role != AS_CHAINED:
            rights.check("admin")
        found = msgspec.structs.asdict(report)
        below = [ServerNode(**msgspec.structs.asdict(one)) for one in found.pop("below")]
        url = node_address(request.match_info["node"], client_address(request))
        if report.role == AS_CHAINED:  # it has no records, and no say in what nodes of a log have
            found |= {"state_hash": None, "checkpoint": None}
        node = ServerNode(url=url, **found)
        self._nodes.note(*below, node)
        return json_response(msgspec.to_builtins(node))

    def close(self) -> None:
        """End every answer: the server stops."""
        self._stopping.set()


def node_address(url: str, caller: str) -> str:
    """The address of a node that calls from `caller`. A node that listens on all addresses of its
    machine is given the caller's, so that two such nodes differ."""
    try:
        parts = urlsplit(url)
        if not (caller and ip_address(parts.hostname or "").is_unspecified):
            return url
        return f"{parts.scheme}://{authority(caller, parts.port or 0)}"
    except ValueError:
        return url


class _Feed:
    """The frames for one follower, from the record after `after` on."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, after: int) -> None:
        self._runtime = runtime
        self._engine = engine
        self.after = after
        """The last record that was sent."""
        self._updates = -1
        self._sent: set[tuple[str, int, int]] = set()
        """Accounts that were sent: their names, numbers and times."""
        self._committed = runtime.commit.next()

    async def send(self, response: web.StreamResponse) -> None:
        """Send all records that have become durable, and a beat."""
        engine = self._engine
        self._committed = self._runtime.commit.next()
        topics = [engine.catalog.account(one) for one in FEED_ACCOUNTS]
        while (updates := sum(topic.updates for topic in topics)) != self._updates:
            self._updates = updates
            accounts = b"".join(map(account_frame, self._accounts()))
            await self._runtime.settled()
            if accounts:
                await write_part(response, memoryview(accounts))
        # In the same step: accounts that are noted from now on come after this record.
        until = self._runtime.journal.last_seq
        if until > self.after:
            pieces = gathered_frames(self._blocks(until))
            try:
                while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                    await write_part(response, memoryview(piece))
            finally:
                await asyncio.to_thread(pieces.close)
            self.after = until
        await write_part(response, memoryview(beat_frame(self._beat())))

    def _blocks(self, until: int) -> Generator[bytes, None, None]:
        journal = self._runtime.journal
        with closing(journal.blocks(self.after, until)) as blocks:
            for block in blocks:
                yield block_frame(block)

    def _accounts(self) -> Iterator[LogEntry]:
        """Accounts that were not sent yet, ordered by number and time."""
        found = []
        for definition in FEED_ACCOUNTS:
            table = self._engine.catalog.account(definition).records.table
            for identity, slot in table.slots.items():
                stamp = int(table.seqs[slot]), int(table.ts_us[slot])
                if (identity, *stamp) not in self._sent:
                    self._sent.add((identity, *stamp))
                    body = table.bodies[slot] or b""
                    found.append(
                        LogEntry(
                            "publish", definition.name, *stamp, [identity], [body], account=True
                        )
                    )
        return iter(sorted(found, key=lambda entry: (entry.seq, entry.ts_us)))

    def _beat(self) -> Beat:
        """The time up to which nothing is outstanding; 0 while something is."""
        sequencer = self._engine.sequencer
        if (began := self._turn()) and began <= self.after:
            return Beat(began - 1, 0)
        if self.after < sequencer.seq or self._engine.atomic.topic is not None:
            return Beat(self.after, 0)
        return Beat(self.after, sequencer.moment(self._runtime.now_us()))

    def _turn(self) -> int:
        """The record with which the oldest turn of views began that goes on behind `after`, as far
        as is known; 0: none."""
        coming = (one.turn for one in self._engine.sequencer.in_flight() if one.seq > self.after)
        return min(filter(None, (self._engine.views.turn(), *coming)), default=0)

    async def wait(self, ended: asyncio.Event, beat_s: float) -> None:
        """Wait for the next commit, or until a timer may be due."""
        due_us, wait_s = self._engine.due_us(), beat_s
        if due_us is not None:
            wait_s = min(wait_s, max(GATHERED_S, (due_us - self._runtime.now_us()) / SECOND_US))
        if self._engine.views.turn():
            wait_s = GATHERED_S  # the turn may end without a commit
        ending = asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait(
                (self._committed, ending), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self._committed.done():
                await asyncio.sleep(GATHERED_S)
        finally:
            ending.cancel()


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
