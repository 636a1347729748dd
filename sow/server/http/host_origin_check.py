"""The rule on Host and Origin, as a function of text.

A server on loopback can be reached by every page that its user opens, and loopback is no password.
A browser reports truthfully where a page comes from (`Origin`, `Sec-Fetch-Site`) and which name it
requested (`Host`); a page cannot change that. So:

* `Host` must be a name of this server, or a page elsewhere could point its own name here and read
  everything (DNS rebinding). Addresses cannot be redirected: they are always good.
* `Origin`, where a browser sends one, must be this server's own, or listed in the configuration.

Other clients send no `Origin` and the name they were given, and are not affected. A proxy's
`X-Forwarded-Host` only adds names that must be good too: it never removes one.

No I/O here, and no name is resolved.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sow.core.origin_parsing import (
    DEFAULT_PORTS,
    Authority,
    Origin,
    is_address,
    parse_authority,
    parse_host,
    parse_origin,
)
from sow.core.security_definitions import Security
from sow.errors import ClientError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOrigin:
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
