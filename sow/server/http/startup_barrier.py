"""The entrance: where requests wait until the server has its records.

The port is open before the records are there, so that whoever watches the process hears that it
lives and how far it has got. Whatever else is asked waits here: nothing is answered by half of the
records, and nothing is taken whose place is not known yet. Who would wait for too long, or as one
of too many, is asked to come again. Nothing here knows what a request wants.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from sow.errors import Busy, Replaying

Doors = TypeVar("Doors")

WAIT_S_MAX = 20.0
"""Proxies and clients give up after 30 s or more without knowing why: they are told before."""
WAITING_MAX = 1000
"""Requests that wait. Each may have sent 128 KB that nobody reads: these take what requests may
hold together (`RequestMemory`) about half."""
LET_IN_AT_ONCE = 32
"""Requests that go on in one round of the loop, once they may: some milliseconds of work."""


class ReadinessGate(Generic[Doors]):
    """Lets requests through to the doors once they are open; `told` says how far the start is."""

    def __init__(self, told: Callable[[], str]) -> None:
        self._sent = told
        self._loop = asyncio.get_running_loop()
        self._doors: Doors | None = None
        self._closed = ""
        self._waiting: dict[asyncio.Future[None], None] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def doors(self) -> Doors:
        """The doors, once they are open. Raises Replaying where that takes too long, or too many
        wait already, and Busy if the server stops before."""
        if self._doors is None and not self._closed:
            await self._wait()
        if self._doors is None:
            raise Busy(self._closed) if self._closed else Replaying(self._sent())
        return self._doors

    async def _wait(self) -> None:
        if self.waiting >= WAITING_MAX:
            raise Replaying(f"{self._sent()}; {WAITING_MAX:,} requests wait already")
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting[turn] = None
        try:
            async with asyncio.timeout(WAIT_S_MAX):
                await turn
        except TimeoutError:
            pass  # the doors may have been opened in this very moment
        finally:
            self._waiting.pop(turn, None)

    def open(self, doors: Doors) -> None:
        """Let in who waits, some at a time and in the order in which they came, and all who come
        from now on."""
        self._doors = doors
        self._let_go_on()

    def close(self, why: str) -> None:
        """Let nobody in who has not been; those who wait are told `why`."""
        self._closed = self._closed or why
        self._let_go_on()

    def _let_go_on(self) -> None:
        for turn in list(islice(self._waiting, LET_IN_AT_ONCE)):
            del self._waiting[turn]
            if not turn.done():
                turn.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._let_go_on)
