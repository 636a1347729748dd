"""Sweeping: what was made of texts that nobody sends any more is let go within a minute.

Two sweeps let go what nobody has asked for between them (`sow.core.cache`). Each is made in steps,
between which everybody else has a turn.
"""

import asyncio
from collections.abc import Iterator

from sow.core.cache import sweep
from sow.server.loop.loop_latency import LoopLatency

SWEEP_S = 25.0
"""Between two sweeps: with two of them what is unused goes within a minute."""


class CacheSweeper:
    """Sweeps until it is closed, and tells `watch` how long each step takes."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(SWEEP_S, self._begin)

    def _begin(self) -> None:
        self._go_on(sweep())

    def _go_on(self, steps: Iterator[None]) -> None:
        began_s = self._loop.time()
        if next(steps, self) is self:
            self._next = self._loop.call_later(SWEEP_S, self._begin)
        else:
            self._next = self._loop.call_later(0, self._go_on, steps)
        self._watch.note("letting go of filters", self._loop.time() - began_s)

    def close(self) -> None:
        """Sweep no more."""
        self._next.cancel()
