"""Health and metrics, for load balancers, orchestrators and Prometheus.

`/healthz`, `/readyz` and `/metrics` answer as soon as the port is open. During recovery they report
its progress, and after that the state of the engine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from sow.core.quota import Quota
from sow.engine.running_topics import SourceTopic
from sow.errors import Replaying
from sow.server.api.metrics import exposing, process_exposition, replay_exposition
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.parameters import parameters_of, read_flag
from sow.server.http.responses import LOG_HEADER, json_response
from sow.server.http.tls import Certificate
from sow.server.loop.log_lines import LastError
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.startup_progress import StartupProgress
from sow.sessions.commands.executor import Executor

STALLED_S = 5.0
"""Work overdue for so long is stalled: a busy conflated topic is late by milliseconds, and no step
lasts a second."""


async def _anybody(_request: web.Request) -> bool:
    return True


class HealthHandler:
    """`/healthz`, `/readyz`, `/v1/status` and `/metrics` of one server.

    `replay` is the progress of its start, `crowd` counts connections, `reading` is the memory that
    requests hold, and `certificates` gives those that the server presents and trusts."""

    def __init__(
        self,
        replay: StartupProgress,
        crowd: ConnectionLimiter,
        reading: Quota,
        certificates: Callable[[], Mapping[str, Certificate]] = dict,
    ) -> None:
        self._replay = replay
        self._crowd = crowd
        self._reading = reading
        self._certificates = certificates
        self._running: tuple[ServerRuntime, Executor] | None = None
        self._checkpoint_failure: Callable[[], str | None] = lambda: None
        self._last_error = LastError()
        self._may_administer: Callable[[web.Request], Awaitable[bool]] = _anybody

    def know_errors(
        self, last_error: LastError, may_administer: Callable[[web.Request], Awaitable[bool]]
    ) -> None:
        """Report the last error of the log: its time to everybody, its text to clients that
        `may_administer` accepts."""
        self._last_error, self._may_administer = last_error, may_administer

    def follow(
        self,
        driver: ServerRuntime,
        executor: Executor,
        checkpoint_failure: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Recovery is done: report the state of these from now on. `checkpoint_failure` gives the
        reason why checkpoints cannot be written, if so."""
        self._running = driver, executor
        self._checkpoint_failure = checkpoint_failure

    async def alive(self, _request: web.Request) -> web.Response:
        """`GET /healthz`: the process runs."""
        return web.Response(text="ok\n")

    async def ready(self, request: web.Request) -> web.Response:
        """`GET /readyz`: whether clients should use this server; 503 and the reason if not."""
        refusal = self._refusal()
        parts = ["ok", *self._remarks()] if refusal is None else [refusal]
        if self._last_error.is_there:
            parts.append(self._last_error.summary(await self._may_administer(request)))
        status = 200 if refusal is None else 503
        return web.Response(status=status, text="; ".join(parts) + "\n", headers=self._log_header())

    def _log_header(self) -> dict[str, str]:
        """The name of the log, once it is known."""
        return {LOG_HEADER: self._running[0].journal.log_id} if self._running else {}

    async def status(self, _request: web.Request) -> web.Response:
        """`GET /v1/status`: the name of the log; raises Replaying."""
        driver, _ = self._serving()
        return json_response({"log": driver.journal.log_id})

    def _serving(self) -> tuple[ServerRuntime, Executor]:
        """The runtime and the executor, once recovery is done; raises Replaying."""
        if self._running is None:
            raise Replaying(self._replay.public_status())
        return self._running

    def _refusal(self) -> str | None:
        """Why clients should not use this server at the moment; None if they should."""
        if self._running is None:
            return self._replay.public_status()
        driver, executor = self._running
        capacity = executor.engine.capacity
        if driver.refusal is None and capacity.is_full:
            return f"memory full: {capacity.warning}"
        if driver.refusal is not None:
            return driver.refusal
        if (late_s := driver.late_s()) > STALLED_S:
            return f"conflation stalled: work due {late_s:.0f} s ago is not done"
        # Names of topics are not for unauthenticated clients.
        return None if self._checkpoint_failure() is None else "checkpoint failed: the log says why"

    def _remarks(self) -> list[str]:
        """What an operator should know although the server is ready."""
        driver, executor = self._serving()
        ahead_s, full = driver.clock_ahead_s(), executor.engine.capacity.warning
        remarks = [f"time is ahead of the machine's by {ahead_s:.0f} s"] if ahead_s else []
        stopped = sum(
            not isinstance(topic, SourceTopic) and bool(topic.stopped)
            for topic in executor.engine.catalog.listed()
        )
        remarks += [f"{stopped} views or conflated topics have stopped"] if stopped else []
        if (scarce_bytes := driver.scarce_bytes) is not None:
            remarks.append(f"disk nearly full: publishes over {scarce_bytes >> 20} MiB are refused")
        return remarks + ([full] if full else [])

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
            driver, executor = self._running
            steps = exposing(
                driver,
                executor,
                self._crowd,
                self._reading,
                self._checkpoint_failure,
                self._certificates(),
                reports_topics,
            )
            page += await driver.turns.run("metrics", steps)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})
