"""The first middleware: checks Host and Origin of every request, and finds its client's address.

The rule is in `sow.server.http.host_origin_check`; here it meets aiohttp. The middleware also
answers CORS preflights for the origins that the configuration lists.

A proxy adds its client's address to `X-Forwarded-For`. Anybody can write that header, so it is
trusted from peers in `<TrustedProxies>` only, and only as far as they vouch for each other: read
from the right, the first address that is not a trusted proxy is the client's.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from ipaddress import ip_address, ip_network
from itertools import islice
from threading import Event, Thread

from aiohttp import HttpVersion11, hdrs, web

from sow.core.definitions import Configuration
from sow.core.origin_parsing import parse_address, parse_authority, parse_host, target_authorities
from sow.server.http.host_origin_check import OriginPolicy, RequestOrigin


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


NO_EMBEDDING = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Headers that keep browsers from embedding an answer in other sites' pages as a script or an
image, for which they do not send the page's origin without TLS."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CLIENT_ADDRESS = web.RequestKey("client_address", str)
LISTED_ORIGIN = web.RequestKey("listed_origin", str)
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    "Access-Control-Max-Age": "600",
}


def machine_names() -> Iterator[str]:
    """The names of this machine. The second may take a resolver's time."""
    yield socket.gethostname()
    yield socket.getfqdn()


class RequestMiddleware:
    """The first middleware of one server. `configuration` returns the current configuration,
    `names` the machine's names; slow ones are added later."""

    def __init__(
        self, configuration: Callable[[], Configuration], names: Callable[[], Iterable[str]]
    ) -> None:
        self._configuration = configuration
        self._names = names
        self.machine: frozenset[str] = frozenset()
        self.names_are_known = Event()
        """Set once all names of the machine are known."""
        self._read: Configuration | None = None
        self._origin_policy: OriginPolicy
        self._proxies: Proxies

    def open(self) -> None:
        """Begin: the machine's first name is known at once, others are added by a thread, so that a
        slow resolver does not delay the start."""
        self._follow_configuration()
        names = iter(self._names())
        self._learn(islice(names, 1))
        Thread(target=self._learn_rest, args=(names,), name="names", daemon=True).start()

    def _learn_rest(self, names: Iterable[str]) -> None:
        self._learn(names)
        self.names_are_known.set()

    def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if host := parse_host(name):
                self.machine |= {host}

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Accept a request, or raise the error that becomes its answer."""
        self._follow_configuration()
        headers = request.headers
        transport = open_transport(request)
        peer = (transport and transport.get_extra_info("peername")) or ("",)
        forwarded_for = headers.getall("X-Forwarded-For", ())
        request[CLIENT_ADDRESS] = self._proxies.client(str(peer[0]), forwarded_for)
        requested = RequestOrigin(
            method=request.method,
            path=request.path,
            targets=target_authorities(request.raw_path),
            hosts=headers.getall(hdrs.HOST, ()),
            forwarded_hosts=(
                headers.getall("X-Forwarded-Host", ()) if self._proxies.trusts(str(peer[0])) else ()
            ),
            origins=headers.getall(hdrs.ORIGIN, ()),
            fetch_site=headers.get("Sec-Fetch-Site", ""),
            fetch_mode=headers.get("Sec-Fetch-Mode", ""),
            fetch_dest=headers.get("Sec-Fetch-Dest", ""),
            host_is_optional=request.version < HttpVersion11,
        )
        origin = self._origin_policy.admit(requested, self.machine)
        if origin is not None:
            request[LISTED_ORIGIN] = origin
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in headers:
                return web.Response(status=204, headers=PREFLIGHT | _allowed_headers(request))
        return await handler(request)

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the CORS headers to an answer; a signal, since streams prepare themselves."""
        response.headers.update(NO_EMBEDDING)
        if not self._origin_policy.origins:
            return
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        if origin := request.get(LISTED_ORIGIN):
            response.headers["Access-Control-Allow-Origin"] = origin
            # With credentials browsers accept no wildcard: every header by name.
            response.headers["Access-Control-Expose-Headers"] = ", ".join({**response.headers})
            response.headers["Access-Control-Allow-Credentials"] = "true"

    def _follow_configuration(self) -> None:
        configuration = self._configuration()
        if configuration is not self._read:
            self._read = configuration
            self._origin_policy = OriginPolicy(configuration.security, configuration.host)
            self._proxies = Proxies(configuration.security.trusted_proxies)


def _allowed_headers(request: web.Request) -> dict[str, str]:
    """The headers that a page asks to send."""
    requested = request.headers.get("Access-Control-Request-Headers")
    return {"Access-Control-Allow-Headers": requested} if requested else {}


def client_address(request: web.Request) -> str:
    """The client's address: the peer's, or what trusted proxies report. Empty if the peer has
    disconnected."""
    found: str = request.get(CLIENT_ADDRESS, "")
    return found


def open_transport(request: web.Request) -> asyncio.BaseTransport | None:
    """The transport of a request; None if it is closed, as a closed TLS transport raises when
    queried."""
    transport = request.transport
    return None if transport is None or transport.is_closing() else transport
