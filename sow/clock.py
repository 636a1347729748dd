"""Where time comes from.

Nothing below the network edge reads a clock: the engine is handed `now_us`, microseconds since
1970 UTC, with every call. The server hands it `SystemClock`; tests hand it `VirtualClock` and
move it by hand. Both promise one thing: time never goes backwards.
"""

import time
from typing import Protocol

SECOND_US = 1_000_000
# A stepped wall clock is followed at this rate, so that no interval shrinks or stretches visibly.
SLEW_PER_SECOND_US = 500


class Clock(Protocol):
    """Anything that tells the time in microseconds since 1970 UTC, never going backwards."""

    def now_us(self) -> int:
        """The present moment."""
        ...


class SystemClock:
    """The machine's clock, made monotonic: steps of the wall clock are followed slowly."""

    def __init__(self) -> None:
        self._offset_us = self._wall_us() - self._monotonic_us()
        self._slewed_at_us = self._monotonic_us()

    @staticmethod
    def _wall_us() -> int:
        return time.time_ns() // 1000

    @staticmethod
    def _monotonic_us() -> int:
        return time.monotonic_ns() // 1000

    def now_us(self) -> int:
        """Wall-clock time that never steps back."""
        monotonic_us = self._monotonic_us()
        elapsed_us = monotonic_us - self._slewed_at_us
        if elapsed_us > SECOND_US:
            error_us = self._wall_us() - monotonic_us - self._offset_us
            limit_us = elapsed_us * SLEW_PER_SECOND_US // SECOND_US
            self._offset_us += max(-limit_us, min(limit_us, error_us))
            self._slewed_at_us = monotonic_us
        return monotonic_us + self._offset_us


class VirtualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start_us: int = 0) -> None:
        self._now_us = start_us

    def now_us(self) -> int:
        """Where the clock stands."""
        return self._now_us

    def advance(self, by_us: int) -> int:
        """Move forward by `by_us` microseconds and return the new time."""
        if by_us < 0:
            raise ValueError("time does not go backwards")
        self._now_us += by_us
        return self._now_us
