"""An alarm: one moment at which something is due, on an event loop.

The loop counts its own seconds, and what is due stands in microseconds of the server's clock, which
may be set forward meanwhile. So the alarm never sleeps longer than `ALARM_S_MAX`; whoever is rung
looks what is due, and sets it anew.
"""

import asyncio
from collections.abc import Callable

from sow.core.clock import Clock

ALARM_S_MAX = 10.0
"""A clock that was set forward is noticed after so many seconds; a look costs microseconds."""


class DeadlineTimer:
    """Calls `ring` when the moment it was last set to has come, or earlier."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due_us: int | None = None

    def set(self, due_us: int | None) -> None:
        """Ring at `due_us`, in microseconds of the clock, and at no other time; None: never."""
        if due_us == self._due_us:
            return
        self.cancel()
        self._due_us = due_us
        if due_us is not None:
            delay_s = max(0, due_us - self._clock.now_us()) / 1e6
            self._timer = self._loop.call_later(min(delay_s, ALARM_S_MAX), self._go_off)

    def _go_off(self) -> None:
        self._timer = self._due_us = None
        self._ring()

    def cancel(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._due_us = None
