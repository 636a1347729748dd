"""A timer for one deadline of the server's clock.

The loop counts its own seconds; deadlines are in microseconds of the server's clock, which may jump
forward meanwhile. So the timer never sleeps longer than `TIMER_S_MAX`; the callback checks what is
due and sets the timer again.
"""

import asyncio
from collections.abc import Callable

from sow.core.clock import Clock

TIMER_S_MAX = 10.0
"""A jump of the clock is noticed after at most this many seconds; a check costs microseconds."""


class DeadlineTimer:
    """Calls `on_due` at the deadline last set, or earlier."""

    def __init__(self, clock: Clock, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_us: int | None = None

    def set(self, due_us: int | None) -> None:
        """Fire at `due_us`, in microseconds of the clock, and at no other time; None: never."""
        if due_us == self._due_us:
            return
        self.cancel()
        self._due_us = due_us
        if due_us is not None:
            delay_s = max(0, due_us - self._clock.now_us()) / 1e6
            self._timer = self._loop.call_later(min(delay_s, TIMER_S_MAX), self._fire)

    def _fire(self) -> None:
        self._timer = self._due_us = None
        self._on_due()

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due_us = None
