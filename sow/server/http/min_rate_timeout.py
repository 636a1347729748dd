"""A deadline that bytes extend: a minimum data rate.

A client may begin with one idle time of silence; each byte extends the deadline a little, never
beyond one idle time from now. So a slow line gets the minutes that a large body needs, a silent one
is given up after one idle time, and bytes that trickle in to keep a request alive earn less than
they cost. Pure: time is a parameter.
"""

BYTES_PER_S_MIN = 16 * 1024
"""The lowest average rate. A bad telephone line has as much."""


class MinRateDeadline:
    """The deadline of one body or one message that begins at `now_s`."""

    __slots__ = ("_idle_s", "until_s")

    def __init__(self, now_s: float, idle_s: float) -> None:
        self._idle_s = idle_s
        self.until_s = now_s + idle_s
        """When it expires if nothing more arrives."""

    def on_bytes(self, now_s: float, size_bytes: int) -> None:
        """Bytes have arrived."""
        self.until_s = min(self.until_s + size_bytes / BYTES_PER_S_MIN, now_s + self._idle_s)
