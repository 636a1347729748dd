"""The client address of a request that a proxy forwards.

A proxy adds its client's address to `X-Forwarded-For`. Anybody can write that header, so it is
trusted from peers in `<TrustedProxies>` only, and only as far as they vouch for each other: read
from the right, the first address that is not a trusted proxy is the client's.
"""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network

from sow.core.origin_parsing import parse_address, parse_authority


class Proxies:
    """The trusted proxies, as addresses and networks."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = [ip_network(text) for text in trusted]

    def trusts(self, peer: str) -> bool:
        """Whether this peer is a trusted proxy; `peer` is an address."""
        address = parse_address(peer)
        if address is None or not self._networks:
            return False
        found = ip_address(address)
        return any(found in network for network in self._networks)

    def client(self, peer: str, forwarded_for: Sequence[str]) -> str:
        """The client's address: the peer's own, or what trusted peers report.

        `forwarded_for` are the values of X-Forwarded-For, in their order.
        """
        client = parse_address(peer) or peer
        entries = [entry for value in forwarded_for for entry in value.split(",")]
        while entries and self.trusts(client):
            reported = _address(entries.pop().strip())
            if reported is None:
                break
            client = reported
        return client


def _address(text: str) -> str | None:
    """An address, with the port that some proxies add."""
    authority = parse_authority(text)
    return parse_address(text) or (authority and parse_address(authority.host))
