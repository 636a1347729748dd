"""Reconnection with exponential backoff, jitter and a deadline.

Sleep and randomness are parameters, so that tests need neither.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

FACTOR = 2
"""Factor from one wait to the next: a minute is a dozen attempts, not six hundred."""
JITTER = 0.5
"""The random part of a wait: spreads many clients, while each waits for at least half of it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Waits of `first_s`, doubling up to `longest_s`, for `give_up_s` in all; 0 does not retry.

    All are seconds. Each wait is shortened by up to half at random, so that many clients do not
    reconnect at one moment. The server keeps a session for a minute by default
    (`ReconnectTimeout`), so a later attempt seldom resumes it. `sleep` waits for so many seconds,
    `chance` returns a number from 0 to 1.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    give_up_s: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def attempts(self) -> AsyncIterator[float]:
        """Yields before each attempt, after its wait, the seconds waited in all; ends when it is
        time to give up."""
        wait_s, waited_s = self.first_s, 0.0
        while waited_s < self.give_up_s:
            pause_s = wait_s * (1 - JITTER * self.chance())
            await self.sleep(pause_s)
            waited_s += pause_s
            yield waited_s
            wait_s = min(self.longest_s, wait_s * FACTOR)
