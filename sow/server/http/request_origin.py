"""Where a request comes from: the check of its Host and Origin, and its client's address.

A server on loopback can be reached by every page that its user opens, and loopback is no password.
A browser reports truthfully where a page comes from (`Origin`, `Sec-Fetch-Site`) and which name it
requested (`Host`); a page cannot change that. So:

* `Host` must be a name of this server, or a page elsewhere could point its own name here and read
  everything (DNS rebinding). Addresses cannot be redirected: they are always good.
* `Origin`, where a browser sends one, must be this server's own, or listed in the configuration.

Other clients send no `Origin` and the name they were given, and are not affected. A proxy's
`X-Forwarded-Host` only adds names that must be good too: it never removes one. `OriginPolicy` is
this rule as a function of text; no name is resolved.

The first middleware of a server applies both, and answers CORS preflights for listed origins.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from threading import Event, Thread
from typing import NamedTuple

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.typedefs import Handler

from sow.core.addresses import (
    DEFAULT_PORTS,
    Authority,
    Origin,
    is_address,
    parse_authority,
    parse_host,
    parse_origin,
    target_authorities,
)
from sow.core.definitions import Configuration
from sow.core.security_definitions import Security
from sow.errors import ClientError
from sow.server.http.connections import Proxies

CONSOLE = "/"
"""The path of the page that people open, also by a link on another site."""
ELSEWHERE = ("cross-site", "same-site")
"""Pages of another site, or of another server of the same one: another port of this machine, or
another name of the same company."""
ECHO_MAX = 80
"""Characters of a header that an answer repeats: a name with its port fits, a long text that was
planted there to be shown to others does not."""


class UnknownHost(ClientError):
    """The request's Host is not a name of this server."""

    reason = "unknown host"
    status = 421


class ForeignOrigin(ClientError):
    """The request was made by a page of another site."""

    reason = "foreign origin"
    status = 403


class RequestOrigin(NamedTuple):
    """Origin and target of a request: each header as often as it was sent. `forwarded_hosts` are
    the values of X-Forwarded-Host, if the peer is trusted."""

    method: str = "GET"
    path: str = CONSOLE
    targets: Sequence[str] = ()
    """The authority of the request's target, if that is an absolute URL."""
    hosts: Sequence[str] = ()
    forwarded_hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    fetch_site: str = ""
    fetch_mode: str = ""
    fetch_dest: str = ""
    host_is_optional: bool = False
    """The request is HTTP/1.0, which no browser uses any more."""


class OriginPolicy:
    """The rule for one configuration. `listen` is the host that the server listens on."""

    def __init__(self, security: Security, listen: str) -> None:
        origins = [parse_origin(text) for text in security.allowed_origins]
        self.origins = frozenset(origin for origin in origins if origin is not None)
        own = {"localhost", parse_host(listen), *security.allowed_hosts}
        self._hosts = frozenset(own | {origin.host for origin in self.origins})

    def admit(self, requested: RequestOrigin, machine: Collection[str]) -> str | None:
        """Accept a request, or raise UnknownHost or ForeignOrigin, whose messages say what to
        configure.

        `machine` are the machine's own names. Returns the origin, as it was sent, if the
        configuration lists it: its pages may read the answer.
        """
        hosts = self._target_hosts(requested, machine)
        if not requested.origins:
            if requested.fetch_site in ELSEWHERE and not _opens_the_console(requested):
                raise ForeignOrigin(
                    "the browser says that a page from elsewhere makes this request "
                    f"(Sec-Fetch-Site: {requested.fetch_site}), and not which; one whose origin "
                    "stands in <AllowedOrigins> of <Security> may, by fetch() or EventSource, "
                    "which say it"
                )
            return None
        if len(requested.origins) > 1:
            raise ForeignOrigin(
                f"the request has {len(requested.origins)} Origin headers; send one"
            )
        return self._from(requested.origins[0], requested, hosts)

    def _target_hosts(self, requested: RequestOrigin, machine: Collection[str]) -> list[Authority]:
        """The names that the request was sent to, all of them good."""
        if len(requested.hosts) > 1:
            raise UnknownHost(f"the request has {len(requested.hosts)} Host headers; send one")
        if not requested.hosts and not requested.host_is_optional:
            raise UnknownHost("the request has no Host header; HTTP/1.1 needs one")
        hosts = [self._good("the address", text, machine) for text in requested.targets]
        hosts += [self._good("Host", text, machine) for text in requested.hosts]
        for value in requested.forwarded_hosts:
            for text in value.split(","):
                hosts.append(self._good("X-Forwarded-Host", text.strip(), machine))
        return hosts

    def _good(self, header: str, text: str, machine: Collection[str]) -> Authority:
        authority = parse_authority(text)
        if authority is None:
            raise UnknownHost(
                f"{header}: {_shown(text)} is not the name of a host; write a name or an address, "
                "with a port if need be, such as localhost:8080"
            )
        host = authority.host
        if host in self._hosts or host in machine or is_address(host):
            return authority
        raise UnknownHost(
            f"{header}: {_shown(text)} is no name of this server; if it is to be one, write "
            f"<Security><AllowedHosts>{host[:ECHO_MAX]}</AllowedHosts></Security> into config.xml"
        )

    def _from(self, text: str, requested: RequestOrigin, hosts: Sequence[Authority]) -> str | None:
        """A listed origin as it was sent, or None for the server's own; raises ForeignOrigin."""
        origin = parse_origin(text)
        if origin is None:
            raise ForeignOrigin(
                f"Origin: {_shown(text)} is not that of a page of this server: files and sandboxed "
                "pages have no origin that could be allowed, serve the page from an address"
            )
        if origin in self.origins:
            return text
        if requested.fetch_site != "cross-site" and any(_same(origin, own) for own in hosts):
            return None
        raise ForeignOrigin(
            f"Origin: {_shown(text)} is another site's; if its pages may use this server, write "
            f"<Security><AllowedOrigins>{str(origin)[:ECHO_MAX]}</AllowedOrigins></Security> into "
            "config.xml"
        )


def _same(origin: Origin, own: Authority) -> bool:
    """Whether a page of `origin` calls the server by the name and port that it was loaded from."""
    default = DEFAULT_PORTS.get(origin.scheme)
    if default is None:
        return False
    return origin.written == own.written and origin.port == (
        default if own.port is None else own.port
    )


def _opens_the_console(requested: RequestOrigin) -> bool:
    """Whether this follows a link on another site: the page that opens is ours, and the other site
    cannot read it. A page within a frame is not that."""
    top = requested.fetch_dest in ("", "document")
    return (requested.method, requested.path, requested.fetch_mode) == (
        "GET",
        CONSOLE,
        "navigate",
    ) and top


def _shown(text: str) -> str:
    shown = ascii(text[:ECHO_MAX])
    return shown + ("…" if len(text) > ECHO_MAX else "")


NO_EMBEDDING = {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}
"""Headers that keep browsers from embedding an answer in other sites' pages as a script or an
image, for which they do not send the page's origin without TLS."""
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
