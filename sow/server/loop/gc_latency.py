"""Measures how long Python's cycle collector blocks the loop.

The collector runs after a number of allocations, in the middle of other work, which is then blamed
for the time. So that an operator can tell one from the other, each run is reported under a name of
its own.
"""

import asyncio
import gc
import time
from typing import Any

from sow.server.loop.loop_latency import LoopLatency

COLLECTIONS = ("garbage, youngest", "garbage, young", "garbage, old")
"""Names of runs by generation; two generations are Python's own, the last is that of
`sow.server.loop.gc_pacing`."""
NOTED_S = 0.001
"""Shorter runs are not reported: most look at young objects only."""


class GcLatency:
    """Reports each run of the collector to `watch`, until it is closed."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > NOTED_S:
            # This may run inside any code and in any thread: not the place to write to a log.
            took_s = now_s - self._began_s
            self._loop.call_soon_threadsafe(
                self._watch.note, COLLECTIONS[info["generation"]], took_s
            )

    def close(self) -> None:
        """Stop reporting."""
        gc.callbacks.remove(self._on_collection)
