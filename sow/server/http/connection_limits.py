"""Limits of connections: how many there may be, in total and per client address, and how long each.

Connections are counted when they are accepted. Many clients share a proxy's connections, and many
programs loopback's, so by default neither counts for its address; the client of a trusted proxy is
counted while its requests run instead.

A connection is kept while a request is under way, for `IdleTimeout` between two requests, and for
`HeaderTimeout` from the first byte of a header to its last, however slowly the bytes in between
arrive. A client in the middle of a body or a message may begin with one idle time of silence; each
byte extends the deadline a little, never beyond one idle time from now. So a slow line gets the
minutes that a large body needs, a silent one is given up after one idle time, and bytes that
trickle in to keep a request alive earn less than they cost.

Pure bookkeeping: time is a parameter, and the caller closes connections
(`sow.server.net.connection_supervisor`).
"""

from collections import Counter
from collections.abc import Callable

from sow.core.addresses import is_loopback
from sow.core.definitions import Configuration, Limits
from sow.server.http.request_origin import Proxies

PER_ADDRESS = 1_000
"""Connections per address by default: more than the programs of one machine need, a twentieth of
the total."""


class ConnectionLimiter:
    """Counts the connections of one server. `configuration` returns the current configuration;
    `files_max` is the number of connections that the system has files for."""

    def __init__(self, configuration: Callable[[], Configuration], files_max: int) -> None:
        self._configuration = configuration
        self.files_max = files_max
        self.connections = 0
        self.refused: Counter[str] = Counter({"connections": 0, "address": 0})
        """Refused connections, by reason."""
        self._by_address: Counter[str] = Counter()

    @property
    def connections_max(self) -> int:
        """The largest number of connections."""
        return min(self._configuration().limits.connections_max, self.files_max)

    def acquire_connection(self, address: str) -> str | None:
        """Count a connection from this address; returns None, or the reason of a refusal."""
        if self.connections >= self.connections_max:
            self.refused["connections"] += 1
            return f"there are {self.connections} connections already (Limits/Connections)"
        if (why := self.acquire(address)) is not None:
            return why
        self.connections += 1
        return None

    def release_connection(self, address: str) -> None:
        """A connection was closed."""
        self.connections -= 1
        self.release(address)

    def acquire(self, address: str) -> str | None:
        """Count a connection of an address, or a request on its behalf by a proxy; returns None, or
        the reason of a refusal."""
        most = self._most_of(address)
        if most is not None and self._by_address[address] >= most:
            self.refused["address"] += 1
            return (
                f"there are {most} connections from {address or 'this address'} already "
                "(Limits/ConnectionsPerAddress)"
            )
        self._by_address[address] += 1
        return None

    def release(self, address: str) -> None:
        """A connection of the address was closed, or a request ended."""
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _most_of(self, address: str) -> int | None:
        configuration = self._configuration()
        given = configuration.limits.connections_per_address_max
        if Proxies(configuration.security.trusted_proxies).trusts(address):
            return None
        return PER_ADDRESS if given is None and not is_loopback(address) else given


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

    def on_bytes(self, now_s: float) -> None:
        """Bytes have arrived."""
        if not self.requests and self.header_since_s is None:
            self.header_since_s = now_s

    def on_header(self, now_s: float) -> None:
        """A header is whole: its request begins as soon as it has its turn."""
        self.header_since_s = None
        self._idle_since_s = now_s

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
