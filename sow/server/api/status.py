"""What a server is and how far it is, and what it knows of the other nodes of its log.

`/v1/status` shows the newest bookmark and the state hash (`sow.engine.state_hash`) of one moment.
Requests at the same time share the answer: it takes some milliseconds where there are millions of
records. A client without credentials sees only what the server is called.

`/healthz`, `/readyz` and `/metrics`, for load balancers, orchestrators and Prometheus, answer as
soon as the port is open. During recovery they report its progress, and after that the state of the
engine. A start of more than a few seconds logs its progress from time to time, with an estimate of
the remaining time.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import GaugeMetricFamily as Gauge

from sow.core.clock import SECOND_US
from sow.core.media_types import PLAIN_TEXT
from sow.core.quota import Quota
from sow.engine.engine import Engine
from sow.engine.recovery.redo import Progress
from sow.engine.running_topics import SourceTopic
from sow.engine.state_hash import StateHash
from sow.errors import Replaying
from sow.server.api.metrics import Scrape, exposing, exposition, process_exposition
from sow.server.api.nodes import AS_CHAINED, AS_FOLLOWER, AS_PRIMARY, Nodes, ServerNode
from sow.server.api.response_schemas import ServerStatus
from sow.server.http.connections import Certificate, ConnectionLimiter
from sow.server.http.preconditions import BOOKMARK_HEADER, Heard
from sow.server.http.responses import CHAIN_HEADER, LOG_HEADER, json_response
from sow.server.http.route import operation, parameters_of, read_flag, route
from sow.server.http.server_log import LastError
from sow.server.loop.log_checkpoint import LogMark
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.consumers import ConsumerLags
from sow.sessions.commands.executor import Executor

STALLED_S = 5.0
"""Work overdue for so long is stalled: a busy conflated topic is late by milliseconds, and no step
lasts a second."""


LOGGED_EVERY_S = 5.0
"""Interval of log lines: an operator sees progress, and a start of a few million records logs
nothing."""
GUESSED_FROM_S = 0.5
"""Before that there is no estimate."""


class StartupProgress:
    """Watches `progress` until `end`. The public status names topics and counts only if `public`:
    they may not be for strangers."""

    def __init__(self, progress: Progress, public: bool = True) -> None:
        self.progress = progress
        self._public = public
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, where: str) -> None:
        """Log the progress from time to time; requests to the address `where` wait meanwhile."""
        self._timer = self._loop.call_later(LOGGED_EVERY_S, self._report, where)

    def _report(self, where: str) -> None:
        log.warning("%s; requests to %s wait", self.status(), where)
        self.begin(where)

    def end(self) -> None:
        """The start has ended, or failed."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def public_status(self) -> str:
        """The progress as a sentence, for any client."""
        if self._public:
            return self.status()
        left_s = self.left_s()
        return "replaying" if left_s is None else f"replaying, about {left_s:.0f} s left"

    def status(self) -> str:
        """The progress as a sentence, with topics and counts."""
        progress = self.progress
        if progress.is_settling:
            return f"replaying: making indexes and copies of {progress.topic}"
        if not progress.of:
            return "replaying: opening files"
        text = f"replaying: {progress.topic}, {progress.done} of {progress.of} records"
        left_s = self.left_s()
        return text if left_s is None else f"{text}, about {left_s:.0f} s left"

    def left_s(self) -> float | None:
        """Estimated seconds until all records are restored; None while there is no estimate."""
        progress, taken_s = self.progress, self._loop.time() - self._began_s
        if not progress.done or progress.is_settling or taken_s < GUESSED_FROM_S:
            return None
        return taken_s * (progress.of - progress.done) / progress.done


def replay_exposition(replay: StartupProgress) -> bytes:
    """The progress of the start, for Prometheus."""
    progress = replay.progress
    return exposition(
        Gauge("sow_replaying", "1 until all records are restored.", int(not replay.is_over)),
        Gauge("sow_replay_records", "Records that the start has restored.", progress.done),
        Gauge(
            "sow_replay_records_expected", "Records that the start restores in all.", progress.of
        ),
    )


class RecordSource(Protocol):
    """Where the records of a server are: here, or with its upstream."""

    @property
    def upstream(self) -> str:
        """The address of the upstream server, empty where they are here."""
        ...

    @property
    def chain(self) -> Sequence[str]:
        """The random ids of the servers from this one to the one that has them."""
        ...

    @property
    def log_id(self) -> str:
        """The name of their log where it is another server's, else empty."""
        ...

    @property
    def bookmark(self) -> str:
        """The newest one that its server has named where it is another one, else empty."""
        ...

    def silent_s(self) -> float:
        """For how long its server has not answered; 0 while it answers."""
        ...

    def figures(self) -> Mapping[str, float]:
        """What has come from there, by name (`sow.server.api.metrics`); none where they are
        here."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why they cannot be reached; None if they can."""
        ...


class HealthHandler:
    """`/healthz`, `/readyz` and `/metrics` of one server.

    `replay` is the progress of its start, `crowd` counts connections, `reading` is the memory that
    requests hold, and `certificates` gives those that the server presents and trusts. The time of
    `last_error` is for everybody, its text for clients that `may_administer` accepts. `source` is
    where the records are, `nodes` those below this one, and `heard` what a follower has heard of
    its primary."""

    def __init__(
        self,
        replay: StartupProgress,
        crowd: ConnectionLimiter,
        reading: Quota,
        certificates: Callable[[], Mapping[str, Certificate]],
        last_error: LastError,
        may_administer: Callable[[web.Request], Awaitable[bool]],
        source: RecordSource,
        nodes: Nodes,
        heard: Heard | None = None,
    ) -> None:
        self._nodes = nodes
        self._heard = heard
        self._replay = replay
        self._crowd = crowd
        self._reading = reading
        self._certificates = certificates
        self._last_error = last_error
        self._may_administer = may_administer
        self._source = source
        self._running: Scrape | None = None

    def follow(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        checkpoint_failure: Callable[[], str | None],
    ) -> None:
        """Recovery is done: report the state of these from now on. `checkpoint_failure` gives the
        reason why checkpoints cannot be written, if so."""
        self._running = Scrape(
            runtime,
            executor,
            self._crowd,
            self._reading,
            checkpoint_failure,
            self._certificates,
            ConsumerLags(runtime.engine, runtime.journal),
            lambda: 0.0 if self._heard is None else self._heard.lag_us() / SECOND_US,
            self._source.figures,
            self._nodes,
        )

    @route("GET", "/metrics", "admin", "Prometheus metrics", ("topics",))
    @operation("read_metrics", answers=(PLAIN_TEXT,))
    async def metrics(self, request: web.Request) -> web.Response:
        """`GET /metrics`: text for Prometheus; with `topics=false` without the series of topics."""
        requested = parameters_of(request)
        reports_topics = requested.get("topics") is None or read_flag(requested, "topics")
        if self._running is None:
            page = process_exposition() + replay_exposition(self._replay)
        else:
            # Open files are counted one by one, and each connection has one.
            loop = asyncio.get_running_loop()
            page = await loop.run_in_executor(None, process_exposition)
            page += replay_exposition(self._replay)
            steps = exposing(self._running, reports_topics)
            page += await self._running.runtime.turns.run("metrics", steps)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})

    @route("GET", "/healthz", "nothing", "The process is alive")
    @operation("is_alive", answers=(PLAIN_TEXT,))
    async def alive(self, _request: web.Request) -> web.Response:
        """`GET /healthz`: the process runs."""
        return web.Response(text="ok\n")

    @route("GET", "/readyz", "nothing", "Messages are taken")
    @operation("is_ready", answers=(PLAIN_TEXT,), also=(503,))
    async def ready(self, request: web.Request) -> web.Response:
        """`GET /readyz`: whether clients should use this server; 503 and the reason if not."""
        refusal = self._refusal()
        parts = ["ok", *self._remarks()] if refusal is None else [refusal]
        if self._last_error.is_there:
            parts.append(self._last_error.summary(await self._may_administer(request)))
        status = 200 if refusal is None else 503
        headers = {CHAIN_HEADER: ",".join(self._source.chain), **self._moment()}
        return web.Response(status=status, text="; ".join(parts) + "\n", headers=headers)

    def _moment(self) -> dict[str, str]:
        """The name of the log and its newest bookmark, once they are known."""
        if self._running is None:
            return {}
        seq = self._running.runtime.engine.sequencer.durable_seq
        bookmark = self._source.bookmark if self._source.upstream else str(seq)
        moment = {BOOKMARK_HEADER: bookmark} if bookmark else {}
        return {LOG_HEADER: self._log_id(self._running), **moment}

    def _log_id(self, running: Scrape) -> str:
        return self._source.log_id or running.runtime.journal.log_id

    def _serving(self) -> Scrape:
        """The running server, once recovery is done; raises Replaying."""
        if self._running is None:
            raise Replaying(self._replay.public_status())
        return self._running

    def _refusal(self) -> str | None:
        """Why clients should not use this server at the moment; None if they should."""
        if (lost := self._source.refusal) is not None:
            return lost
        if self._running is None:
            return self._replay.public_status()
        stale_s = None if self._heard is None else self._heard.stale_s()
        if stale_s is not None:
            return f"stale: {stale_s} s behind the primary, more than Follower/MaxLag"
        runtime = self._running.runtime
        capacity = self._running.executor.engine.capacity
        if runtime.refusal is None and capacity.is_full:
            return f"memory full: {capacity.warning}"
        if runtime.refusal is not None:
            return runtime.refusal
        if (late_s := runtime.late_s()) > STALLED_S:
            return f"conflation stalled: work due {late_s:.0f} s ago is not done"
        # Names of topics are not for unauthenticated clients.
        return (
            None
            if self._running.checkpoint_failure() is None
            else "checkpoint failed: the log says why"
        )

    def _remarks(self) -> list[str]:
        """What an operator should know although the server is ready."""
        runtime, executor = self._serving()[:2]
        ahead_s, full = runtime.clock_ahead_s(), executor.engine.capacity.warning
        remarks = [f"time is ahead of the machine's by {ahead_s:.0f} s"] if ahead_s else []
        stopped = sum(
            not isinstance(topic, SourceTopic) and bool(topic.stopped)
            for topic in executor.engine.catalog.listed()
        )
        remarks += [f"{stopped} views or conflated topics have stopped"] if stopped else []
        if (scarce_bytes := runtime.scarce_bytes) is not None:
            remarks.append(f"disk nearly full: publishes over {scarce_bytes >> 20} MiB are refused")
        groups = executor.subscriptions.aggregations.memory.warning("group memory")
        return remarks + [one for one in (full, executor.sessions.memory.warning, groups) if one]


Above = Callable[[web.Request], Awaitable[Sequence[ServerNode]]]
"""What the server above this one knows of all nodes, requested for a client's request."""


async def alone(_request: web.Request) -> Sequence[ServerNode]:
    """There is no server above."""
    return ()


class StatusHandler:
    """`/v1/status` of the server at `address`. `is_known` says whether a client may see more than
    its name, `nodes` are those below it, `heard` is what it follows itself, if anything, and
    `source` where its records are. `sessions` counts them, and `above` says what the server above
    knows."""

    def __init__(
        self,
        runtime: ServerRuntime,
        engine: Engine,
        address: str,
        is_known: Callable[[web.Request], Awaitable[bool]],
        nodes: Nodes,
        heard: Heard | None,
        source: RecordSource,
        sessions: Callable[[], int] = lambda: 0,
        above: Above = alone,
    ) -> None:
        self._address = address
        self._source = source
        self._sessions = sessions
        self._above = above
        self._runtime = runtime
        self._engine = engine
        self._is_known = is_known
        self._nodes = nodes
        self._heard = heard
        self._hashes = StateHash(engine)
        self._hashing: asyncio.Task[tuple[int, str]] | None = None
        self._mark: Callable[[], LogMark | None] = lambda: None

    @route("GET", "/v1/status", "nothing", "What this server is, and how far it is")
    @operation("read_status", ServerStatus)
    async def status(self, request: web.Request) -> web.Response:
        """`GET /v1/status`: the role, the newest bookmark, the state hash, the other nodes."""
        configuration = self._engine.configuration
        answer: dict[str, Any] = {
            "name": configuration.name,
            "environment": configuration.environment,
            "colour": configuration.colour,
        }
        if not await self._is_known(request):
            return json_response(answer)
        own = await self.own()
        answer |= {
            "role": own.role,
            "upstream": own.upstream,
            "log": self._source.log_id or self._runtime.journal.log_id,
            "bookmark": own.bookmark,
            "state_hash": own.state_hash,
            "lag_ms": own.lag_ms,
            "nodes": msgspec.to_builtins(await self._all(own, request)),
        }
        return json_response(answer, {BOOKMARK_HEADER: own.bookmark or "0"})

    def be_listed_as(self, address: str, mark: Callable[[], LogMark | None] = lambda: None) -> None:
        """The server above lists this one under an address: nobody calls one that listens on all
        addresses of its machine by its own. `mark` is what a node of a shared log needs of it."""
        self._address, self._mark = address, mark

    async def _all(self, own: ServerNode, request: web.Request) -> list[ServerNode]:
        """This server, those below it, and all else that the server above knows; what others say
        of one that is there already does not count."""
        found: dict[tuple[str, int | None], ServerNode] = {}
        for one in (own, *self._nodes.all(), *await self._above(request)):
            found.setdefault((one.url, one.pid), one)
        return [*found.values()]

    async def own(self) -> ServerNode:
        """This server: its bookmark and its state hash are of one moment, and durable. A chained
        one has no state, and the bookmark that upstream had when it last answered."""
        source, sessions = self._source, self._sessions()
        if source.upstream:
            seen, lag_ms = source.bookmark or None, int(source.silent_s() * 1000)
            above = source.upstream
            return ServerNode(
                self._address, AS_CHAINED, seen, None, lag_ms, os.getpid(), above, sessions
            )
        if self._hashing is None:
            self._hashing = self._runtime.begin(self._hash())
        bookmark, state_hash = await asyncio.shield(self._hashing)
        role, lag_ms, above = AS_PRIMARY, 0, ""
        if self._heard is not None and not self._heard.leads:
            role, lag_ms, above = AS_FOLLOWER, self._heard.lag_us() // 1000, self._heard.primary
        moment, pid = (str(bookmark), state_hash), os.getpid()
        return ServerNode(
            self._address, role, *moment, lag_ms, pid, above or None, sessions, self._mark()
        )

    async def _hash(self) -> tuple[int, str]:
        try:
            found = await self._runtime.turns.run("state hash", self._hashes.at_now())
            await self._runtime.settled()
            return found
        finally:
            self._hashing = None


log = logging.getLogger("sow")
