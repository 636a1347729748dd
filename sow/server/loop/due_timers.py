"""What falls due, as work on the loop: a step at a time, in turn with everybody else.

A million records may expire at one moment, or be released to a conflated topic. The engine does a
bounded part of it at each step; what is left is due again when everything else that is due has had
its step.
"""

import asyncio
from collections.abc import Callable

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.server.loop.scheduler import FairScheduler


class DueTimers:
    """Has what is due in `engine` done in `turns`; `now_us` gives the time."""

    name = "what falls due"

    def __init__(self, engine: Engine, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._steps: Task[None] | None = None
        self._in_line = False

    def begin(self) -> None:
        """Something is due; it may be in line already."""
        if not self._in_line:
            self._in_line = True
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Do some of it, until `until_s` by the loop's time; whether there is more."""
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
