"""The garbage watch: how long Python's collector of cycles keeps everybody waiting.

It runs whenever so many objects have been made, in the middle of whatever is being done, which is
then blamed for the time it takes. So that an operator can tell one from the other, each run is
told to the step watch by a name of its own.
"""

import asyncio
import gc
import time
from typing import Any

from sow.server.loop.loop_latency import LoopLatency

COLLECTIONS = ("garbage, youngest", "garbage, young", "garbage, old")
"""What a run that looks through objects of so many generations is called; two of them are Python's
own, the last is of `sow.server.loop.gc_pacing`."""
NOTED_S = 0.001
"""Most runs look at young objects only and are over sooner: nothing worth a word."""


class GcLatency:
    """Tells `watch` of each run of the collector, until it is closed."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._began_s = 0.0
        gc.callbacks.append(self._hear)

    def _hear(self, phase: str, info: dict[str, Any]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > NOTED_S:
            # Within anything, and in any thread: no moment to write to a log.
            took_s = now_s - self._began_s
            self._loop.call_soon_threadsafe(
                self._watch.note, COLLECTIONS[info["generation"]], took_s
            )

    def close(self) -> None:
        """Hear of no more."""
        gc.callbacks.remove(self._hear)
