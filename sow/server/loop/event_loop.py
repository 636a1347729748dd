"""The event loop: which one runs, a timer for a deadline on it, and warnings of the clock's jumps.

It is uvloop if that is installed, else asyncio's; `sow serve --loop` selects one by name. uvloop
implements the same interface on libuv, and the server depends on neither.

The loop counts its own seconds; deadlines are in microseconds of the server's clock, which may jump
forward meanwhile. So the timer never sleeps longer than `TIMER_S_MAX`; its callback checks what is
due and sets the timer again.

The server's time never goes back (`sow.core.clock`), so setting the machine's clock does not stop
the server; but lifetimes end early, or time passes more slowly, and the log should tell the
operator why.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

from sow.core.clock import Clock
from sow.errors import ClientError

Loop = asyncio.AbstractEventLoop
LOOPS = ("asyncio", "uvloop")
"""The names that --loop accepts."""


def loop_factory(
    name: str | None = None, find: Callable[[str], ModuleType] = import_module
) -> Callable[[], Loop]:
    """The factory of the loop `name`; None: uvloop if it is installed.

    `find` imports a module by name. Raises ClientError if the requested loop is not installed.
    """
    if name != "asyncio":
        try:
            uvloop = find("uvloop").Loop
        except ImportError:
            if name is not None:
                raise ClientError(
                    "uvloop is not installed; install it with pip install 'sow[uvloop]', or leave "
                    "out --loop"
                ) from None
        else:
            return exactly_timed(uvloop)
    return asyncio_loop


def exactly_timed(loop: type[Loop]) -> type[Loop]:
    """uvloop's loop with the time of the clock behind its own, which counts whole milliseconds: of
    a slice of two it would leave one to three."""
    own = {"time": staticmethod(time.monotonic), "__module__": loop.__module__}
    return type(loop.__name__, (loop,), own)


def asyncio_loop() -> Loop:
    """asyncio's own loop. Its time is read some fifty times for each frame, so without the method
    of Python's around the clock."""
    loop = asyncio.new_event_loop()
    vars(loop)["time"] = time.monotonic
    return loop


def loop_name(loop: Loop) -> str:
    """The name of a loop's implementation."""
    return type(loop).__module__.partition(".")[0]


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


log = logging.getLogger("sow")

REPORTED_US_MIN = 1_000_000
"""Smaller corrections are normal: time servers make them."""


class ClockJumps:
    """Watches one clock; call `look` from time to time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_stepped_us = 0
        self._reported_ahead = False

    def ahead_s(self) -> float:
        """Seconds by which the server's time is ahead of the machine's clock, which was set back; 0
        if it is not, or by too little to matter."""
        ahead_us = self._clock.ahead_us()
        return ahead_us / 1e6 if ahead_us > REPORTED_US_MIN else 0.0

    def look(self) -> None:
        """Log a warning about what has changed since the last call."""
        ahead_s, stepped_us = self.ahead_s(), self._clock.stepped_us
        if stepped_us > self._reported_stepped_us:
            log.warning(
                "the machine's clock was set forward by %.0f s, or it slept: the server's time has "
                "followed, and lifetimes that ended meanwhile are over",
                (stepped_us - self._reported_stepped_us) / 1e6,
            )
        if ahead_s and not self._reported_ahead:
            log.warning(
                "the server's time is ahead of the machine's by %.0f s: the machine's clock was "
                "set back. Time goes on from the newest time in the log, a tenth slower until "
                "they agree",
                ahead_s,
            )
        self._reported_stepped_us, self._reported_ahead = stepped_us, bool(ahead_s)
