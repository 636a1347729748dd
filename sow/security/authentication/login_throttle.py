"""Login throttling: how often clients at an address may try to log on.

An address has so many attempts a second, and each failure in a row doubles the wait for the next,
so that a list of passwords takes years. Cached credentials count as no attempt: behind one proxy,
users who work continue while an attacker guesses. An IPv6 network counts as one address, since its
owner has all of it. Time is a parameter.
"""

from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from sow.core.clock import SECOND_US

ADDRESSES_KEPT = 10_000
"""Of the others that came longest ago nothing is known any more; they have waited."""
FREE_FAILURES = 3
"""A mistyped password costs nothing."""
FIRST_WAIT_US = 100_000
LONGEST_WAIT_US = 5 * SECOND_US
"""A whole desk may share one address: it is slowed down, not locked out."""


class Attempts:
    """The attempts of each address: `per_second()` of them, and as many in a burst."""

    def __init__(self, per_second: Callable[[], int]) -> None:
        self._per_second = per_second
        self._places: dict[str, _Address] = {}

    def wait_us(self, address: str, now_us: int) -> int:
        """Take one attempt of an address; how long it has to wait for it: then none is taken."""
        address = network_of(address)
        per_second = self._per_second()
        place = self._places.pop(address, None) or _Address(per_second, now_us)
        self._places[address] = place
        if len(self._places) > ADDRESSES_KEPT:
            del self._places[next(iter(self._places))]
        return place.wait_us(per_second, now_us)

    def failed(self, address: str, now_us: int) -> None:
        """The attempt failed."""
        if place := self._places.get(network_of(address)):
            place.failed(now_us)

    def succeeded(self, address: str) -> None:
        """The attempt succeeded."""
        if place := self._places.get(network_of(address)):
            place.failures = 0


def network_of(address: str) -> str:
    """The network of an address: for IPv6 its /64, which is what a single machine is given."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address) or found.is_link_local:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


class _Address:
    """What is left to one address, as of `since_us`, and its failures in a row."""

    __slots__ = ("_blocked_until_us", "_left", "_since_us", "failures")

    def __init__(self, left: int, now_us: int) -> None:
        self._left = float(left)
        self._since_us = now_us
        self._blocked_until_us = 0
        self.failures = 0

    def wait_us(self, per_second: int, now_us: int) -> int:
        passed_us = max(0, now_us - self._since_us)
        self._left = min(per_second, self._left + passed_us * per_second / SECOND_US)
        self._since_us = now_us
        if now_us < self._blocked_until_us:
            return self._blocked_until_us - now_us
        if self._left < 1:
            return int((1 - self._left) * SECOND_US / per_second) + 1
        self._left -= 1
        return 0

    def failed(self, now_us: int) -> None:
        self.failures += 1
        over = self.failures - FREE_FAILURES
        if over > 0:
            wait_us = min(LONGEST_WAIT_US, FIRST_WAIT_US << min(over - 1, 10))
            self._blocked_until_us = now_us + wait_us
