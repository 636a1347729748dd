"""Pings: whether the client of a WebSocket is there still, asked when nothing has come for a while.

A client that has vanished without a word is noticed by the ping that it does not answer. Nothing
can be heard of one whose socket the server does not read, because what it has sent before is not
carried out yet: its pong stands behind that. So silence counts only while the server listens, which
aiohttp's own pings do not know.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

LOOK_S = 15.0
"""How often it is looked whether anything has come; a ping has as long to be answered."""
SILENT_LOOKS = 2
"""So many looks without a word are followed by a ping: routers that forget what is silent see
something, and who does not answer is gone within the idle time of a minute."""


class Audible(Protocol):
    """What comes of one client (`sow.server.net.ws_memory_accounting`)."""

    @property
    def received(self) -> int:
        """How often bytes have come."""

    @property
    def listens(self) -> bool:
        """Whether what comes is read."""


class Pings:
    """The pings of one client, from now on until `stop`; `lose` ends one that answers none."""

    def __init__(
        self, heard: Audible, ping: Callable[[], Awaitable[None]], lose: Callable[[], None]
    ) -> None:
        self._heard = heard
        self._ping = ping
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._received = heard.received
        self._silent = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        if self._heard.received != self._received or not self._heard.listens:
            self._received, self._silent = self._heard.received, 0
            return
        self._silent += 1
        if self._silent == SILENT_LOOKS:
            self._task = self._loop.create_task(self._ask())
        elif self._silent > SILENT_LOOKS:
            self.stop()
            self._lose()

    async def _ask(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._ping()

    def stop(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
