"""The part of the table of elements that says who may come in: `<Security>`.

Hosts and origins are read into the one spelling of `sow.hosts`, in which the doors compare them.
AMPS has elements of its own for access. A file that relies on them must not start an open server,
so they are errors wherever they stand.
"""

from collections.abc import Callable
from ipaddress import ip_network
from itertools import chain

from sow.config import kinds
from sow.config.element import Element, later
from sow.config.findings import MistakeError
from sow.config.kinds import Kind
from sow.definitions import Security, Tls
from sow.hosts import is_address, parse_authority, parse_host, parse_origin


def _host(text: str) -> str:
    host = parse_host(text)
    if host is not None and not is_address(host):
        return host
    if host is not None or parse_host(text.strip("[]")) is not None:
        raise MistakeError(f"{text!r} is an address, and addresses are always allowed", "remove it")
    authority = parse_authority(text)
    if authority is not None:
        raise MistakeError(f"{text!r} has a port, which does not matter", f"write {authority.host}")
    raise MistakeError(
        f"{text[:80]!r} is not the name of a host", "write each name in full, such as sow.example"
    )


def _origin(text: str) -> str:
    if text == "null":
        raise MistakeError(
            "'null' is the origin of every file and of every sandboxed page, whoever wrote it",
            "serve the page from an address and write that, such as https://desk.example",
        )
    origin = parse_origin(text.removesuffix("/"))
    if origin is None:
        raise MistakeError(
            f"{text[:80]!r} is not an origin",
            "write scheme, host and port and nothing else, such as https://desk.example",
        )
    return str(origin)


def _proxy(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        why = "has bits outside its network" if "host bits" in str(error) else "is no IP address"
        raise MistakeError(
            f"{text[:80]!r} {why}",
            "write an address or a network, such as 192.0.2.10 or 10.0.0.0/8",
        ) from None


def _several(name: str, read_one: Callable[[str], str]) -> Kind:
    """One or several values, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(read_one(part.strip()) for part in text.split(","))

    return Kind(name, read)


def _security(tls: Tls | None = None, **lists: tuple[tuple[str, ...], ...]) -> Security:
    """Each list may be given several times, and hold several values each time."""
    return Security(tls=tls, **{name: tuple(chain(*given)) for name, given in lists.items()})


TLS = Element(
    name="TLS",
    fields=("tls",),
    make=Tls,
    about="Encryption: with it clients call https:// and wss://, and nothing else. The files "
    "are in PEM form, by paths relative to config.xml; a reload reads them again.",
    children=(
        Element(
            name="Certificate",
            kind=kinds.TEXT,
            required=True,
            fields=("certificate",),
            about="The server's certificate, and after it those by which clients trust it.",
        ),
        Element(
            name="PrivateKey",
            kind=kinds.TEXT,
            required=True,
            fields=("private_key",),
            about="Its private key, without a passphrase: nobody is there to type it.",
        ),
        *later("ClientCA"),
    ),
)

SECURITY = Element(
    name="Security",
    fields=("security",),
    make=_security,
    about="Who may come in, besides those who always may: see [security](security.md).",
    children=(
        Element(
            name="AllowedHosts",
            repeated=True,
            kind=_several("host names", _host),
            fields=("allowed_hosts",),
            about="Names by which clients call this server, separated by commas. Addresses, "
            "localhost, the machine's own name and that in Listen need not be named.",
        ),
        Element(
            name="AllowedOrigins",
            repeated=True,
            kind=_several("origins", _origin),
            fields=("allowed_origins",),
            about="Where pages come from that may use this server though it did not serve them, "
            "such as https://desk.example, separated by commas. Their hosts are allowed too.",
        ),
        Element(
            name="TrustedProxies",
            repeated=True,
            kind=_several("addresses or networks", _proxy),
            fields=("trusted_proxies",),
            about="Proxies whose X-Forwarded-For and X-Forwarded-Host are believed, by address or "
            "network, separated by commas.",
        ),
        TLS,
        *later("Authentication", "Role"),
    ),
)

_WRITE_INSTEAD = (
    "who may come in is said by <Security><Authentication><Tokens><File>tokens</File></Tokens>"
    "</Authentication></Security>, which is not available yet: until it is, remove this element "
    "and let Listen be on loopback"
)
ACCESS_OF_AMPS = tuple(
    Element(name=name, status="refused", about=_WRITE_INSTEAD)
    for name in ("Authentication", "Entitlement")
)
