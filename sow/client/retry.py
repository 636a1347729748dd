"""How a client comes back: soon at first, then more and more patiently, and not for ever.

Sleep and chance are parameters, so that tests need neither.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

FACTOR = 2
"""Each wait is so much longer than the last: a minute is a dozen attempts, not six hundred."""
JITTER = 0.5
"""So much of a wait is left to chance: the fewest that spreads many clients over the whole of it
while each still waits for at least half."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Waits of `first_s`, doubling up to `longest_s`, for `give_up_s` in all; 0 does not retry.

    All are seconds. Each wait is shortened by up to half, so that many clients do not come back at
    one moment. The server keeps a session for a minute by default (`ReconnectTimeout`), so trying
    for longer seldom takes one up. `sleep` waits for so many seconds, `chance` gives a number from
    0 to 1.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    give_up_s: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def attempts(self) -> AsyncIterator[float]:
        """One step for each attempt, after its wait: the seconds waited in all; ends when it is
        time to give up."""
        wait_s, waited_s = self.first_s, 0.0
        while waited_s < self.give_up_s:
            pause_s = wait_s * (1 - JITTER * self.chance())
            await self.sleep(pause_s)
            waited_s += pause_s
            yield waited_s
            wait_s = min(self.longest_s, wait_s * FACTOR)
