"""Due timers of the engine as background work on the loop.

A million records may expire at one moment, or be released to a conflated topic. The engine
processes a bounded part in each step; the rest becomes due again after other work has run.
"""

import asyncio
from collections.abc import Callable

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.server.loop.scheduler import FairScheduler


class DueTimers:
    """Processes what is due in `engine` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "what falls due"

    def __init__(self, engine: Engine, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._steps: Task[None] | None = None
        self._in_line = False

    def begin(self) -> None:
        """Something is due; a run may be queued already."""
        if not self._in_line:
            self._in_line = True
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Process timers until `until_s` (loop time); returns whether there is more."""
        self._in_line = False
        while True:
            steps, self._steps = self._steps or self._engine.fall_due(self._now_us()), None
            for _ in steps:
                if self._loop.time() >= until_s:
                    self._steps, self._in_line = steps, True
                    return True
            due_us = self._engine.due_us()
            if due_us is None or due_us > self._engine.now_us:
                return False
