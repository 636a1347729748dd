"""Periodic cache sweeps: compiled forms of texts that nobody sends any more are freed within a
minute.

An entry that is not used between two sweeps is evicted (`sow.core.cache`). Each sweep runs in
steps, with other work in between.
"""

import asyncio
from collections.abc import Iterator

from sow.core.cache import sweep
from sow.server.loop.loop_latency import LoopLatency

SWEEP_S = 25.0
"""Time between two sweeps: with two of them an unused entry is freed within a minute."""


class CacheSweeper:
    """Sweeps until it is closed; reports the duration of each step to `watch`."""

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
        """Stop sweeping."""
        self._next.cancel()
