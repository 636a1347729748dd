"""Whose request it is, when a proxy hands it on.

A proxy writes down for whom it asks (`X-Forwarded-For`). Anybody can write that, so it is believed
of the peers in `<TrustedProxies>` alone, and only as far as they vouch for each other: read from
the right, the first address that is not such a proxy's is the client's.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network

from sow.core.origin_parsing import parse_address, parse_authority


class Proxies:
    """The proxies that are believed, as addresses and networks."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = [ip_network(text) for text in trusted]

    def trusts(self, peer: str) -> bool:
        """Whether what this peer says of its clients is believed; `peer` is an address."""
        address = parse_address(peer)
        if address is None or not self._networks:
            return False
        found = ip_address(address)
        return any(found in network for network in self._networks)

    def client(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """The address of whom a request is for: the peer's own, or what trusted peers say.

        `forwarded_for` are the values of X-Forwarded-For, in their order.
        """
        client = parse_address(peer) or peer
        entries = [entry for value in forwarded_for for entry in value.split(",")]
        while entries and self.trusts(client):
            said = _address(entries.pop().strip())
            if said is None:
                break
            client = said
        return client


def _address(text: str) -> str | None:
    """An address, which some proxies write with a port."""
    authority = parse_authority(text)
    return parse_address(text) or (authority and parse_address(authority.host))
