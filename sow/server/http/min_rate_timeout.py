"""How long to wait for somebody who is in the middle of saying something.

Time is earned by bytes: whoever begins may take as long as an idle client may be silent, and every
byte that comes buys a little more, never beyond that. So a slow line may take the minutes that a
large body needs, a silent one is given up after one idle time, and bytes that trickle in to keep
what was sent so far alive buy less than they cost. Pure: the time is given.
"""

BYTES_PER_S_MIN = 16 * 1024
"""Slower than this on the whole is not waited for. A bad line of a telephone has so much."""


class MinRateDeadline:
    """The patience with one body or one message, begun at `now_s`."""

    __slots__ = ("_idle_s", "until_s")

    def __init__(self, now_s: float, idle_s: float) -> None:
        self._idle_s = idle_s
        self.until_s = now_s + idle_s
        """When it ends if nothing more comes."""

    def hear(self, now_s: float, size_bytes: int) -> None:
        """So much has come."""
        self.until_s = min(self.until_s + size_bytes / BYTES_PER_S_MIN, now_s + self._idle_s)
