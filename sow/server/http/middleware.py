"""The gate: asks of every request whether it may come in, before anything else looks at it.

What the rule is stands in `sow.server.http.host_origin_check`; here it meets aiohttp. The gate also
answers for the pages of other sites that the configuration lists (CORS), and notes whose request it
is.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import islice
from threading import Event, Thread

from aiohttp import HttpVersion11, hdrs, web

from sow.core.definitions import Configuration
from sow.core.origin_parsing import parse_host, target_authorities
from sow.server.http.forwarded import Proxies
from sow.server.http.host_origin_check import OriginPolicy, RequestOrigin

KEPT_TO_ITSELF = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""What browsers keep from other pages that put an answer in as a script or a picture, of which they
do not say whose page it is when neither speaks TLS."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

CLIENT_ADDRESS = web.RequestKey("client_address", str)
LISTED_ORIGIN = web.RequestKey("listed_origin", str)
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    "Access-Control-Max-Age": "600",
}


def machine_names() -> Iterator[str]:
    """What this machine calls itself. The second name may take a resolver's time to find."""
    yield socket.gethostname()
    yield socket.getfqdn()


class RequestMiddleware:
    """The gate of one server. `configuration` says how it stands now, `names` gives the names of
    the machine; those that come late are known late."""

    def __init__(
        self, configuration: Callable[[], Configuration], names: Callable[[], Iterable[str]]
    ) -> None:
        self._configuration = configuration
        self._names = names
        self.machine: frozenset[str] = frozenset()
        self.learnt = Event()
        """Set once all names of the machine are known."""
        self._read: Configuration | None = None
        self._admission: OriginPolicy
        self._proxies: Proxies

    def open(self) -> None:
        """Begin: the machine's first name is known at once, further ones when they are found, so
        that a slow resolver holds nobody up."""
        self._follow_configuration()
        names = iter(self._names())
        self._learn(islice(names, 1))
        Thread(target=self._learn_rest, args=(names,), name="names", daemon=True).start()

    def _learn_rest(self, names: Iterable[str]) -> None:
        self._learn(names)
        self.learnt.set()

    def _learn(self, names: Iterable[str]) -> None:
        for name in names:
            if host := parse_host(name):
                self.machine |= {host}

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let a request in, or raise what becomes its answer."""
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
        origin = self._admission.admit(requested, self.machine)
        if origin is not None:
            request[LISTED_ORIGIN] = origin
            if request.method == "OPTIONS" and "Access-Control-Request-Method" in headers:
                return web.Response(status=204, headers=PREFLIGHT | _allowed_headers(request))
        return await handler(request)

    async def mark(self, request: web.Request, response: web.StreamResponse) -> None:
        """Say in an answer whose pages may read it; a signal, since streams prepare themselves."""
        response.headers.update(KEPT_TO_ITSELF)
        if not self._admission.origins:
            return
        response.headers.add(hdrs.VARY, hdrs.ORIGIN)
        if origin := request.get(LISTED_ORIGIN):
            response.headers["Access-Control-Allow-Origin"] = origin
            # Where a browser adds what it knows of its user, no star is believed: all by name.
            response.headers["Access-Control-Expose-Headers"] = ", ".join({**response.headers})
            response.headers["Access-Control-Allow-Credentials"] = "true"

    def _follow_configuration(self) -> None:
        configuration = self._configuration()
        if configuration is not self._read:
            self._read = configuration
            self._admission = OriginPolicy(configuration.security, configuration.host)
            self._proxies = Proxies(configuration.security.trusted_proxies)


def _allowed_headers(request: web.Request) -> dict[str, str]:
    """Those that a page asks to send."""
    requested = request.headers.get("Access-Control-Request-Headers")
    return {"Access-Control-Allow-Headers": requested} if requested else {}


def client_address(request: web.Request) -> str:
    """Whose request it is: the peer's address, or what trusted proxies say. Empty if the peer has
    gone already."""
    found: str = request.get(CLIENT_ADDRESS, "")
    return found


def open_transport(request: web.Request) -> asyncio.BaseTransport | None:
    """The socket that a request has come by; None if it is closed: such a one of TLS fails when it
    is asked about itself."""
    transport = request.transport
    return None if transport is None or transport.is_closing() else transport
