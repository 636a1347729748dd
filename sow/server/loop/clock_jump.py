"""Warnings about changes to the machine's clock, each logged once.

The server's time never goes back (`sow.core.clock`), so setting the machine's clock does not stop
the server; but lifetimes end early, or time passes more slowly, and the log should tell the
operator why.
"""

import logging

from sow.core.clock import Clock

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
