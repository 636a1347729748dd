"""The source of time.

Nothing below the network edge reads a clock: the engine is handed `now_us`, microseconds since 1970
UTC, with every call. The server hands it `SystemClock`; tests hand it one that they move by hand
(`tests/virtual_clock.py`). Both promise one thing: time never goes backwards, also not from one run
of the server to the next (`go_on_from`).

The machine's clock keeps no such promise. `SystemClock` counts on the monotonic clock and lets
itself be corrected by the wall clock:

    the wall clock is ahead     a little: time passes a trifle faster, too little to be seen
                                more: it was set, or the machine slept; time follows at once
    the wall clock is behind    a little: time passes a trifle slower
                                more: it was set back; time passes a tenth slower until they agree
"""

import time
from collections.abc import Callable
from typing import Protocol

SECOND_US = 1_000_000
"""The unit of all times is the microsecond."""
CORRECTED_EVERY_US = SECOND_US
STEP_US = SECOND_US
"""A difference beyond drift: the wall clock was set."""
DRIFT_PPM = 500
"""Followed so slowly, no interval shrinks or stretches visibly."""
SET_BACK_PPM = 100_000
"""An hour is made up for in ten. Conflated records come a tenth later meanwhile, never sooner."""


class Clock(Protocol):
    """A clock in microseconds since 1970 UTC that never goes backwards."""

    def now_us(self) -> int:
        """The present moment."""
        ...

    def go_on_from(self, us: int) -> None:
        """Return no time before `us`, a time that an earlier run of the server has used."""
        ...

    def ahead_us(self) -> int:
        """How far this clock is ahead of the machine's, which was set back; 0: it is not."""
        ...

    @property
    def stepped_us(self) -> int:
        """How far the machine's clock was set forward, in all, while this one has followed."""
        ...


class LogClock:
    """The time of a log that another server writes: as far as that has come."""

    stepped_us = 0

    def __init__(self) -> None:
        self._us = 0

    def now_us(self) -> int:
        """The newest time of the log."""
        return self._us

    def go_on_from(self, us: int) -> None:
        """The log has come so far."""
        self._us = max(self._us, us)

    def ahead_us(self) -> int:
        """It is not compared with the machine's."""
        return 0


def wall_us() -> int:
    """The machine's clock."""
    return time.time_ns() // 1000


def monotonic_us() -> int:
    """Time that passes, from an arbitrary beginning."""
    return time.monotonic_ns() // 1000


class SystemClock:
    """The machine's clock, made monotonic: `wall` in microseconds, `monotonic` in nanoseconds, as
    it is, since this is read some ten times for each frame. It follows no jump of more than
    `jump_us_max`, forth or back, which only counts in `refused_us`; None: it follows any."""

    def __init__(
        self,
        wall: Callable[[], int] = wall_us,
        monotonic: Callable[[], int] = time.monotonic_ns,
        jump_us_max: int | None = None,
    ) -> None:
        self._wall = wall
        self._monotonic_ns = monotonic
        self._jump_us_max = jump_us_max
        self.stepped_us = 0
        self.refused_us = 0
        """How far the wall clock is ahead of what this one follows; below 0: behind."""
        self._since_us = monotonic() // 1000
        self._from_us = wall()
        self._error_us = 0
        """How far the wall clock was ahead of this one at `_since_us`; below 0: behind."""
        self._rate_ppm = 0
        """How fast the error is made up for; so long after `_since_us` that is done."""
        self._made_up_after_us = 0

    def now_us(self) -> int:
        """Wall-clock time that never steps back."""
        elapsed_us = self._monotonic_ns() // 1000 - self._since_us
        made_up_us = self._error_us
        if elapsed_us < self._made_up_after_us:
            made_up_us = elapsed_us * self._rate_ppm // SECOND_US
            if self._error_us < 0:
                made_up_us = -made_up_us
        now_us = self._from_us + elapsed_us + made_up_us
        if elapsed_us < CORRECTED_EVERY_US:
            return now_us
        self._go_on(now_us, self._since_us + elapsed_us)
        return self._from_us

    def _go_on(self, now_us: int, since_us: int) -> None:
        """Continue from here, at the rate that follows the wall clock."""
        error_us = self._wall() - self.refused_us - now_us
        if self._jump_us_max is not None and abs(error_us) > self._jump_us_max:
            self.refused_us += error_us
            error_us = 0
        if error_us > STEP_US:
            now_us += error_us
            self.stepped_us += error_us
            error_us = 0
        self._from_us, self._since_us, self._error_us = now_us, since_us, error_us
        self._rate_ppm = SET_BACK_PPM if error_us < -STEP_US else DRIFT_PPM
        self._made_up_after_us = -(-abs(error_us) * SECOND_US // self._rate_ppm)

    def go_on_from(self, us: int) -> None:
        """Return no time before `us`."""
        self._go_on(max(self.now_us(), us), self._monotonic_ns() // 1000)

    def begin_at(self, us: int) -> None:
        """It is this time now, whatever the wall clock says, which is followed from here."""
        self._go_on(us, self._monotonic_ns() // 1000)

    def ahead_us(self) -> int:
        """How far the wall clock is behind."""
        return max(0, self.now_us() - self._wall() + self.refused_us)


JUMP_US_MAX = 60 * SECOND_US
"""What a node's clock may differ from the time of its log: beyond it is wrong. Clocks that are kept
by a time server differ by milliseconds."""


class SharedLogClock:
    """The time of a log that several nodes write: as far as the log has come and, from `lead` on,
    what passes by this machine's clock. `own` makes that one."""

    def __init__(
        self, own: Callable[[], SystemClock] = lambda: SystemClock(jump_us_max=JUMP_US_MAX)
    ) -> None:
        self._followed = LogClock()
        self._own = own
        self.leading: SystemClock | None = None

    def now_us(self) -> int:
        """The present moment."""
        return (self.leading or self._followed).now_us()

    def lead(self, us: int) -> None:
        """This node writes the log from here on, and it is this time now."""
        own = self._own()
        own.begin_at(max(us, self._followed.now_us()))
        self.leading = own

    def go_on_from(self, us: int) -> None:
        """Return no time before `us`."""
        (self.leading or self._followed).go_on_from(us)

    def ahead_us(self) -> int:
        """How far it is ahead of the machine's clock."""
        return 0 if self.leading is None else self.leading.ahead_us()

    @property
    def stepped_us(self) -> int:
        """How far the machine's clock was set forward, and this one has followed."""
        return 0 if self.leading is None else self.leading.stepped_us
