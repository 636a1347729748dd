"""For how long a connection has asked for nothing.

A connection is kept while a request is under way, for `IdleTimeout` between two of them, and for
`HeaderTimeout` from the first byte of a header to its last, however slowly the bytes between them
drip in. Pure: the time is given, and whoever asks closes the connection
(`sow.server.net.connection_supervisor`).
"""

from sow.core.definitions import Limits


class IdleTimer:
    """For how long a connection has asked for nothing. Pure."""

    __slots__ = ("_idle_since_s", "header_since_s", "requests")

    def __init__(self, now_s: float) -> None:
        self.requests = 0
        """Requests under way."""
        self.header_since_s: float | None = None
        """Since when a header is under way."""
        self._idle_since_s = now_s

    @property
    def asks(self) -> bool:
        """Whether something was asked that is not answered yet, or half asked."""
        return self.requests > 0 or self.header_since_s is not None

    def hear(self, now_s: float) -> None:
        """Bytes have come."""
        if not self.requests and self.header_since_s is None:
            self.header_since_s = now_s

    def begin(self) -> None:
        """A request has come."""
        self.requests += 1
        self.header_since_s = None

    def end(self, now_s: float) -> None:
        """A request has been carried out."""
        self.requests -= 1
        self.rest(now_s)

    def rest(self, now_s: float) -> None:
        """Time begins anew."""
        self._idle_since_s = now_s

    def due_s(self, limits: Limits) -> float | None:
        """When it is enough; None while something is asked for."""
        if self.requests:
            return None
        if self.header_since_s is not None:
            return self.header_since_s + limits.header_timeout_us / 1e6
        return self._idle_since_s + limits.idle_timeout_us / 1e6
