"""Timeouts of a connection: a deadline that bytes extend, and an idle timer.

A client in the middle of a body or a message may begin with one idle time of silence; each byte
extends the deadline a little, never beyond one idle time from now. So a slow line gets the minutes
that a large body needs, a silent one is given up after one idle time, and bytes that trickle in to
keep a request alive earn less than they cost.

Otherwise a connection is kept while a request is under way, for `IdleTimeout` between two requests,
and for `HeaderTimeout` from the first byte of a header to its last, however slowly the bytes in
between arrive. Pure: time is a parameter, and the caller closes the connection
(`sow.server.net.connection_supervisor`).
"""

from sow.core.definitions import Limits

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


class IdleTimer:
    """The idle time of one connection. Pure."""

    __slots__ = ("_idle_since_s", "header_since_s", "requests")

    def __init__(self, now_s: float) -> None:
        self.requests = 0
        """Requests under way."""
        self.header_since_s: float | None = None
        """Start of the header that is under way."""
        self._idle_since_s = now_s

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, or a part of its header has arrived."""
        return self.requests > 0 or self.header_since_s is not None

    def on_bytes(self, now_s: float) -> None:
        """Bytes have arrived."""
        if not self.requests and self.header_since_s is None:
            self.header_since_s = now_s

    def begin(self) -> None:
        """A request begins."""
        self.requests += 1
        self.header_since_s = None

    def end(self, now_s: float) -> None:
        """A request has ended."""
        self.requests -= 1
        self.restart(now_s)

    def restart(self, now_s: float) -> None:
        """Restart the idle time."""
        self._idle_since_s = now_s

    def due_s(self, limits: Limits) -> float | None:
        """When the connection is to be closed; None while a request is under way."""
        if self.requests:
            return None
        if self.header_since_s is not None:
            return self.header_since_s + limits.header_timeout_us / 1e6
        return self._idle_since_s + limits.idle_timeout_us / 1e6
