"""Requests that wait until the server has reached a bookmark, or a time of its log.

They are released in order, some at a time, as commits become durable and time passes. When the
server stops they are refused at once: what they wait for may never come, and the end of a server
waits for its requests. Who may wait, and for how long, is decided by the request
(`sow.server.http.preconditions`).
"""

import asyncio
import itertools
from bisect import bisect_left, insort

from sow.engine.engine import Engine
from sow.errors import Busy, NotReached

RELEASED_AT_ONCE = 32
"""Requests that go on in one iteration of the loop: some milliseconds."""

Sought = list[tuple[int, int, asyncio.Future[None]]]
"""What waits for a number: that, a count that no other one has, and what is done then; in order."""


class BookmarkWaits:
    """What waits for `engine` to reach a bookmark or a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._by_seq: Sought = []
        self._by_time: Sought = []
        self._count = itertools.count()
        self._stops = ""
        """Why nothing waits any more."""

    async def reached(self, seq: int, wait_s: float, time_us: int = 0) -> None:
        """Return when all is durable up to bookmark `seq`, and the engine's time is `time_us`;
        raises NotReached after `wait_s`, Busy if the server stops before. A follower's time stands
        still while its primary is away."""
        began_s, engine = self._loop.time(), self._engine
        if engine.sequencer.durable_seq < seq:
            await self._in_order(self._by_seq, seq, wait_s)
        if engine.sequencer.durable_seq >= seq and engine.now_us < time_us:
            left_s = wait_s - (self._loop.time() - began_s)
            await self._in_order(self._by_time, time_us, max(0.0, left_s))
        newest = engine.sequencer.durable_seq
        if newest < seq or engine.now_us < time_us:
            named = f"{seq}.{time_us}" if time_us else str(seq)
            now = f"{newest}, at {engine.now_us}" if time_us else str(newest)
            raise NotReached(
                f"bookmark {named} is not reached within {wait_s:g} s; the newest here is {now}. "
                "Send this again, with a longer wait, or to another server"
            )

    async def _in_order(self, sought: Sought, number: int, wait_s: float) -> None:
        """Wait until a number is reached, for so long at most."""
        if self._stops:
            raise Busy(self._stops)
        waiter: asyncio.Future[None] = self._loop.create_future()
        one = number, next(self._count), waiter
        insort(sought, one)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            return
        finally:
            at = bisect_left(sought, one[:2])
            if at < len(sought) and sought[at] is one:
                del sought[at]

    def release(self) -> None:
        """Let those go on whose bookmark or time is reached, some at a time and the earliest first;
        to be called after each commit, and when time has passed without one."""
        if self._by_seq:
            self._release_up_to(self._engine.sequencer.durable_seq, self._by_seq)
        if self._by_time:
            self._release_up_to(self._engine.now_us, self._by_time)

    def _release_up_to(self, reached: int, sought: Sought) -> None:
        for _ in range(min(RELEASED_AT_ONCE, len(sought))):
            if sought[0][0] > reached:
                return
            waiter = sought.pop(0)[-1]
            if not waiter.done():
                waiter.set_result(None)
        if sought and sought[0][0] <= reached:
            self._loop.call_soon(self.release)

    def end(self, why: str) -> None:
        """The server stops: refuse all with Busy and the reason `why`."""
        self._stops = why
        for _, _, waiter in [*self._by_seq, *self._by_time]:
            if not waiter.done():
                waiter.set_exception(Busy(why))
