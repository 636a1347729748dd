"""What somebody has done to the machine's clock, said once.

The server's time never goes back (`sow.core.clock`), so whoever sets the machine's clock does not
stop it; but lifetimes end early, or time passes more slowly, and an operator should be able to read
why.
"""

import logging

from sow.core.clock import Clock

log = logging.getLogger("sow")

TELLING_US_MIN = 1_000_000
"""A clock that was set by less is nobody's concern: time servers correct as much."""


class ClockJumps:
    """Watches one clock for as long as somebody looks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_stepped_us = 0
        self._sent_ahead = False

    def ahead_s(self) -> float:
        """How many seconds the server's time is ahead of the machine's, which was set back; 0: it
        is not, or by so little that nobody is concerned."""
        ahead_us = self._clock.ahead_us()
        return ahead_us / 1e6 if ahead_us > TELLING_US_MIN else 0.0

    def look(self) -> None:
        """Write a warning of what is new since the last look."""
        ahead_s, stepped_us = self.ahead_s(), self._clock.stepped_us
        if stepped_us > self._reported_stepped_us:
            log.warning(
                "the machine's clock was set forward by %.0f s, or it slept: the server's time has "
                "followed, and lifetimes that ended meanwhile are over",
                (stepped_us - self._reported_stepped_us) / 1e6,
            )
        if ahead_s and not self._sent_ahead:
            log.warning(
                "the server's time is ahead of the machine's by %.0f s: the machine's clock was "
                "set back. Time goes on from the newest time in the log, a tenth slower until "
                "they agree",
                ahead_s,
            )
        self._reported_stepped_us, self._sent_ahead = stepped_us, bool(ahead_s)
