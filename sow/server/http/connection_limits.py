"""Limits of connections: in total, and per client address.

Connections are counted when they are accepted. Many clients share a proxy's connections, and many
programs loopback's, so by default neither counts for its address; the client of a trusted proxy is
counted while its requests run instead. Pure bookkeeping.
"""

from collections import Counter
from collections.abc import Callable

from sow.core.definitions import Configuration
from sow.core.origin_parsing import is_loopback
from sow.server.http.middleware import Proxies

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
