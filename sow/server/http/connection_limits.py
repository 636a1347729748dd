"""How many may be here at once: connections in all, and those of one address.

Connections are counted when they are accepted. Many clients share a proxy's connections, and many
programs loopback's, so by default neither is counted for its address; whom a trusted proxy asks for
is counted by requests instead, while they are under way. Pure bookkeeping.
"""

from collections import Counter
from collections.abc import Callable

from sow.core.definitions import Configuration
from sow.core.origin_parsing import is_loopback
from sow.server.http.forwarded import Proxies

PER_ADDRESS = 1_000
"""Connections of one address where the configuration says nothing: more than the programs of one
machine need, a twentieth of what all may have."""


class ConnectionLimiter:
    """Who is connected to one server. `configuration` says how it stands now; `files_max` is how
    many connections the system has files for."""

    def __init__(self, configuration: Callable[[], Configuration], files_max: int) -> None:
        self._configuration = configuration
        self.files_max = files_max
        self.connections = 0
        self.refused: Counter[str] = Counter({"connections": 0, "address": 0})
        """Who was not let in, by why."""
        self._by_address: Counter[str] = Counter()

    @property
    def connections_max(self) -> int:
        """How many connections there may be at one time."""
        return min(self._configuration().limits.connections_max, self.files_max)

    def enter(self, address: str) -> str | None:
        """One connection more, from this address; or why not."""
        if self.connections >= self.connections_max:
            self.refused["connections"] += 1
            return f"there are {self.connections} connections already (Limits/Connections)"
        if (why := self.come(address)) is not None:
            return why
        self.connections += 1
        return None

    def leave(self, address: str) -> None:
        """One connection less."""
        self.connections -= 1
        self.go(address)

    def come(self, address: str) -> str | None:
        """One more of an address: a connection, or a request that a proxy hands on; or why not."""
        most = self._most_of(address)
        if most is not None and self._by_address[address] >= most:
            self.refused["address"] += 1
            return (
                f"there are {most} connections from {address or 'this address'} already "
                "(Limits/ConnectionsPerAddress)"
            )
        self._by_address[address] += 1
        return None

    def go(self, address: str) -> None:
        """One less of an address."""
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _most_of(self, address: str) -> int | None:
        configuration = self._configuration()
        given = configuration.limits.connections_per_address_max
        if Proxies(configuration.security.trusted_proxies).trusts(address):
            return None
        return PER_ADDRESS if given is None and not is_loopback(address) else given
