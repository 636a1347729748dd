"""Hosts and origins, as headers and config.xml write them, each in one spelling.

The Origin and Host that a browser sends are text, and comparing them needs one canonical spelling:
lower case, addresses as `ipaddress` writes them. A dot at the end leads a resolver to the same
host, and a browser to another origin: a host has none, an authority and an origin keep it. What
could mean two things to two readers is no host at all: user names, characters that no name has, and
digits that some resolvers take for an address. Nothing is looked up here.
"""

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from sow.core.cache import kept

KEPT_MAX = 256
"""Hosts and addresses whose spelling is kept: the same few come with every request, and parsing one
takes some 10 us. A header has at most 8 KB."""
AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>\d{0,5}))?", re.ASCII)
LOOPBACK = "127.0.0.1"
"""This machine alone."""
HOST_DEFAULT = LOOPBACK
PORT_DEFAULT = 8080
"""The port that programs without privileges use for HTTP, by custom."""
URL_DEFAULT = f"http://{HOST_DEFAULT}:{PORT_DEFAULT}"
"""The default address that a server listens on and that clients connect to."""
NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*", re.ASCII)
# Resolvers that take numbers for addresses decide by the last label.
NUMERIC_HOST = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)", re.ASCII)
ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#@\s]+)", re.ASCII | re.I)
TARGET = re.compile(r"\A[^/?#]*?://([^/?#]*)")
DEFAULT_PORTS = {"http": 80, "https": 443}


class Authority(NamedTuple):
    """What a Host header says: a host, with a dot at its end if it is written with one, and a port
    if there is one."""

    written: str
    port: int | None

    @property
    def host(self) -> str:
        """The host, as `parse_host` gives it."""
        return self.written.removesuffix(".")


class Origin(NamedTuple):
    """Where a page comes from; `port` is None for a scheme that has none by default. `written` is
    the host, with a dot at its end if it is written with one."""

    scheme: str
    written: str
    port: int | None

    @property
    def host(self) -> str:
        """The host, as `parse_host` gives it."""
        return self.written.removesuffix(".")

    def __str__(self) -> str:
        host = f"[{self.written}]" if ":" in self.written else self.written
        shown = self.port is not None and self.port != DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" + (f":{self.port}" if shown else "")


def parse_host(text: str) -> str | None:
    """A host in its one spelling, an address of version 6 without brackets; None if it is none."""
    if address := parse_address(text):
        return address
    name = text.lower().removesuffix(".")
    return name if NAME.fullmatch(name) and not NUMERIC_HOST.fullmatch(name) else None


@kept(KEPT_MAX)
def parse_address(text: str) -> str | None:
    """An IP address in its one spelling, one of version 4 within version 6 as what it is; None if
    it is none. A zone is dropped: it names an interface of this machine, not a peer."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or IPv6Address(int(address)))
    return str(address)


@kept(KEPT_MAX)
def parse_authority(text: str) -> Authority | None:
    """``host``, ``host:port`` or ``[address]:port``; None if it is none of them."""
    found = AUTHORITY.fullmatch(text)
    if found is None:
        return None
    written = found["host"]
    if written.startswith("["):
        inner = written[1:-1]
        host = parse_address(inner) if ":" in inner else None
    else:
        host = parse_host(written)
        host = f"{host}." if host and written.endswith(".") else host
    port = int(found["port"]) if found["port"] else None
    return None if host is None or (port or 0) > 65535 else Authority(host, port)


def parse_origin(text: str) -> Origin | None:
    """``scheme://host`` with or without a port; None if it is none, as ``null`` is."""
    found = ORIGIN.fullmatch(text)
    authority = parse_authority(found["authority"]) if found else None
    if found is None or authority is None:
        return None
    scheme = found["scheme"].lower()
    port = DEFAULT_PORTS.get(scheme) if authority.port is None else authority.port
    return Origin(scheme, authority.written, port)


def target_authorities(target: str) -> list[str]:
    """The authority of a request's target that is an absolute address (RFC 9112 §3.2.2), as it
    stands there; none of a path."""
    return [] if target.startswith("/") else TARGET.findall(target)


def is_address(host: str) -> bool:
    """Whether a host, as `parse_host` gives it, is an address and not a name."""
    return parse_address(host) is not None


@kept(KEPT_MAX)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there: 127.0.0.0/8, ::1, localhost."""
    address = parse_address(host)
    if address is None:
        return parse_host(host) == "localhost"
    return ip_address(address).is_loopback
