"""WebSocket pings: detect clients that have vanished.

A client that vanished without closing is detected by the ping that it does not answer. Nothing
arrives from a client whose socket is paused because its earlier messages are still being executed:
its pong is behind them. So silence counts only while the socket is read, which aiohttp's own pings
do not consider.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

CHECK_S = 15.0
"""Interval of checks whether anything has arrived; a ping has as long to be answered."""
SILENT_CHECKS = 2
"""Silent checks before a ping: routers that forget idle connections see traffic, and a vanished
client is detected within the idle time of a minute."""


class ReceiveActivity(Protocol):
    """The input of one client (`sow.server.net.ws_memory_accounting`)."""

    @property
    def received(self) -> int:
        """How often bytes have arrived."""

    @property
    def is_read(self) -> bool:
        """Whether the socket is read."""


class Pings:
    """The pings of one client, until `stop`; `lose` disconnects a client that answers none."""

    def __init__(
        self,
        activity: ReceiveActivity,
        ping: Callable[[], Awaitable[None]],
        lose: Callable[[], None],
    ) -> None:
        self._activity = activity
        self._ping = ping
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._received = activity.received
        self._silent = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(CHECK_S, self._check)

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_S, self._check)
        if self._activity.received != self._received or not self._activity.is_read:
            self._received, self._silent = self._activity.received, 0
            return
        self._silent += 1
        if self._silent == SILENT_CHECKS:
            self._task = self._loop.create_task(self._send())
        elif self._silent > SILENT_CHECKS:
            self.stop()
            self._lose()

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._ping()

    def stop(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
