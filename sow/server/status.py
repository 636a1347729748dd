"""Status: what watches a server, and asks whether it lives and takes messages.

`/healthz`, `/readyz` and `/metrics` answer from the moment at which the port is open. Until all
records are there they say how far the start has got, and after that what the engine knows.
"""

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from sow.budget import Budget
from sow.requests.executor import Executor
from sow.server.crowd import Crowd
from sow.server.driver import Driver
from sow.server.metrics import exposing, replay_exposition
from sow.server.replay_watch import ReplayWatch


class StatusDoor:
    """Answers for one server: `replay` watches its start, `crowd` counts its connections, and
    `reading` is what its requests hold."""

    def __init__(self, replay: ReplayWatch, crowd: Crowd, reading: Budget) -> None:
        self._replay = replay
        self._crowd = crowd
        self._reading = reading
        self._running: tuple[Driver, Executor] | None = None

    def follow(self, driver: Driver, executor: Executor) -> None:
        """All records are there: answer for what these do from now on."""
        self._running = driver, executor

    async def alive(self, _request: web.Request) -> web.Response:
        """`GET /healthz`."""
        return web.Response(text="ok\n")

    async def ready(self, _request: web.Request) -> web.Response:
        """`GET /readyz`."""
        refusal = self._refusal()
        if refusal is not None:
            return web.Response(status=503, text=f"{refusal}\n")
        return web.Response(text="; ".join(["ok", *self._remarks()]) + "\n")

    def _refusal(self) -> str | None:
        """Why nothing is taken at the moment, if so."""
        if self._running is None:
            return self._replay.told()
        driver, executor = self._running
        capacity = executor.engine.capacity
        if driver.refusal is None and capacity.is_full:
            return f"memory full: {capacity.told}"
        return driver.refusal

    def _remarks(self) -> list[str]:
        """What an operator should know though everything is taken."""
        assert self._running is not None
        driver, executor = self._running
        ahead_s, full = driver.clock_ahead_s(), executor.engine.capacity.told
        told = [f"time is ahead of the machine's by {ahead_s:.0f} s"] if ahead_s else []
        return told + ([full] if full else [])

    async def metrics(self, _request: web.Request) -> web.Response:
        """`GET /metrics`."""
        page = replay_exposition(self._replay)
        if self._running is not None:
            driver, executor = self._running
            steps = exposing(driver, executor, self._crowd, self._reading)
            page += await driver.turns.take("metrics", steps)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})
