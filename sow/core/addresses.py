"""Addresses: hosts and origins, and which server of one log a client uses.

A client uses the first that answers, and stays there. When it is lost, the client tries each
address once, beginning with the one in use, since only that server has the client's session. Writes
have one server, the primary, which the others name: it is tried first for them, wherever reads are,
and forgotten when it does not answer. A primary may be named that is not in the list: who names it
has the client's credentials already. It must have the scheme of the list, so that they leave no
encrypted connection. Servers that name each other, or ever new ones, end a round.

Nothing is connected here, and nothing waits: how long to pause after a round in which nobody has
answered is a matter of the client.

Hosts and origins have one spelling here, however headers and config.xml write them. The Origin and
Host that a browser sends are text, and comparing them needs one canonical spelling: lower case,
addresses as `ipaddress` writes them. A dot at the end leads a resolver to the same host, and a
browser to another origin: a host has none, an authority and an origin keep it. What could mean two
things to two readers is no host at all: user names, characters that no name has, and digits that
some resolvers take for an address. Nothing is looked up here.
"""

import re
from collections.abc import Collection, Sequence
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from sow.core.containers import kept
from sow.errors import AnotherLog, ClientError, shown


def listed(given: str | Sequence[str]) -> list[str]:
    """The members of a list of addresses, or of text with commas; raises ClientError for an empty
    one."""
    found = [one.strip() for one in (given.split(",") if isinstance(given, str) else given)]
    if not found or "" in found[1:] or (not found[0] and len(found) > 1):
        raise ClientError(
            f"the list of addresses {shown(', '.join(found))} has an empty one; write for example "
            "http://a:8080,http://b:8080"
        )
    return found


def authority(host: str, port: int) -> str:
    """`host:port` as a URL has it: an IPv6 address stands in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


LEADS_MAX = 3
"""Servers in a round that are not in the list: a follower of a follower names the primary, which
may have been replaced meanwhile."""
NAMED_CHARS_MAX = 2_000
"""Of an address that is named: twice what a name of a host and a path need."""


class Addresses:
    """Addresses as a client uses them, from the first on; `current` is the one for reads, `primary`
    that for writes where another server has named it, and else empty.

    With `reads_writes` reads are to include what was written: `written` is the newest bookmark that
    a write was acknowledged with.
    """

    def __init__(self, urls: Sequence[str], reads_writes: bool = False) -> None:
        """`urls` are checked, each by itself; raises ClientError for several that are no list."""
        self.all = tuple(urls)
        self.current = urls[0]
        self.primary = ""
        self.log_id = ""
        """The name of the log, once it is known."""
        self.written = ""
        self._reads_writes = reads_writes
        scheme = _scheme(urls[0])
        for at, url in enumerate(urls):
            if _scheme(url) != scheme:
                raise ClientError(
                    f"the addresses {urls[0]} and {url} have different schemes; write all with "
                    "https:// if the servers have TLS, else all with http://"
                )
            if url in urls[:at]:
                raise ClientError(f"the address {url} is in the list twice; write it once")

    @property
    def are_several(self) -> bool:
        """Whether there is another address to go on at."""
        return len(self.all) > 1

    def next(self, tried: Collection[str], for_writes: bool = False) -> str | None:
        """The address to try after those that were tried in this round; None at its end."""
        if len(tried) >= len(self.all) + LEADS_MAX:
            return None
        at = self.all.index(self.current)
        order = (*self.all[at:], *self.all[:at])
        if for_writes and self.primary:
            order = (self.primary, *order)
        return next((url for url in order if url not in tried), None)

    def use(self, url: str) -> None:
        """Go on with reads at an address, which has answered."""
        if url in self.all:
            self.current = url

    def leave(self, url: str) -> None:
        """Begin the next round behind an address, and do not write to it by an earlier name."""
        if url == self.primary:
            self.primary = ""
        if url == self.current:
            at = self.all.index(url) + 1
            self.current = self.all[at % len(self.all)]

    def lead_to(self, primary: str, named_by: str) -> None:
        """The server at `named_by` names another one for writes; raises ClientError if that cannot
        be used."""
        url = primary.rstrip("/")
        if (wrong := _wrong(primary)) is not None:
            raise ClientError(f"{named_by} names a server for writes whose address {wrong}")
        if _scheme(url) != _scheme(self.current):
            raise ClientError(
                f"{named_by} names {shown(primary)} as the server for writes, which has another "
                f"scheme than the address {self.current}; give the follower its address with "
                f"{_scheme(self.current)}://"
            )
        self.primary = url

    def check_log(self, url: str, log_id: str) -> None:
        """Note the log of the server at `url`; of several, each must have the same one: raises
        AnotherLog."""
        if not self.are_several or not log_id:
            return
        self.log_id = self.log_id or log_id
        if log_id != self.log_id:
            raise AnotherLog(
                f"{url} has the log {log_id}, and the other addresses {self.log_id}: bookmarks of "
                "one mean nothing in the other; list servers of one log only"
            )

    def wrote(self, bookmark: str) -> None:
        """A write was acknowledged with a bookmark."""
        if self._reads_writes and bookmark.isdecimal():
            self.written = max(self.written, bookmark, key=lambda text: int(text or 0))

    @property
    def min_bookmark(self) -> str | None:
        """What reads are to include, with the name of its log; None: they need not include
        anything."""
        if not self.written:
            return None
        return f"{self.log_id}-{self.written}" if self.log_id else self.written


def _wrong(url: str) -> str | None:
    """What is wrong with an address that a server names; None: nothing. What may have a password in
    it is not shown."""
    if len(url) > NAMED_CHARS_MAX:
        return f"has {len(url):,} characters, more than {NAMED_CHARS_MAX:,}"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isascii() or not url.isprintable() or " " in url:
        return f"is none such as http://a:8080: {shown(url)}"
    if "@" in parts.netloc:
        return "has a user in it"
    return "has a query or a fragment" if parts.query or parts.fragment else None


def _scheme(url: str) -> str:
    return url.partition("://")[0] if "://" in url else "http"


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
