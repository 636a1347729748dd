"""The readiness gate: requests wait until the server has restored its records.

The port is open before that, so that supervisors see that the process lives and how far it is. All
other requests wait here: nothing is answered from half of the records, and nothing is accepted
whose place is not known yet. A request that would wait too long, or as one of too many, gets an
error with `Retry-After`. The gate does not look at requests.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from sow.errors import Busy, Replaying

Handlers = TypeVar("Handlers")

WAIT_S_MAX = 20.0
"""Proxies and clients time out after 30 s or more without a reason: they get one before."""
WAITING_MAX = 1000
"""Waiting requests. Each may have sent 128 KB that nobody reads: these take about half of what
requests may hold together (`RequestMemory`)."""
RELEASED_AT_ONCE = 32
"""Requests released in one iteration of the loop: some milliseconds of work."""


class ReadinessGate(Generic[Handlers]):
    """Passes the handlers to requests once they are ready; `progress` describes the start until
    then."""

    def __init__(self, progress: Callable[[], str]) -> None:
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._handlers: Handlers | None = None
        self._closed = ""
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    async def handlers(self) -> Handlers:
        """The handlers, once the gate is open. Raises Replaying if that takes too long, or too many
        wait already, and Busy if the server stops before."""
        if self._handlers is None and not self._closed:
            await self._wait()
        if self._handlers is None:
            raise Busy(self._closed) if self._closed else Replaying(self._progress())
        return self._handlers

    async def _wait(self) -> None:
        if self.waiting >= WAITING_MAX:
            raise Replaying(f"{self._progress()}; {WAITING_MAX:,} requests wait already")
        opened: asyncio.Future[None] = self._loop.create_future()
        self._waiting[opened] = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await opened
        except TimeoutError:
            pass  # the gate may have opened in this very moment
        finally:
            self._waiting.pop(opened, None)

    def open(self, handlers: Handlers) -> None:
        """Release the waiting requests, some at a time and in the order of their arrival, and let
        all later ones pass."""
        self._handlers = handlers
        self._release()

    def close(self, why: str) -> None:
        """Refuse requests with Busy and the reason `why`, waiting ones included."""
        self._closed = self._closed or why
        self._release()

    def _release(self) -> None:
        for opened in list(islice(self._waiting, RELEASED_AT_ONCE)):
            del self._waiting[opened]
            if not opened.done():
                opened.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._release)
