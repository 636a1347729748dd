"""Connections before their requests: TLS, how many there may be, and how long each is kept.

TLS contexts come from `<TLS>` in the configuration. The files are read when the server starts and
at each reload, so that a certificate is renewed without a restart; open connections keep theirs.
Errors name the file, before anything listens.

Connections are counted when they are accepted. Many clients share a proxy's connections, and many
programs loopback's, so by default neither counts for its address; the client of a trusted proxy is
counted while its requests run instead.

A connection is kept while a request is under way, for `IdleTimeout` between two requests, and for
`HeaderTimeout` from the first byte of a header to its last, however slowly the bytes in between
arrive. A client in the middle of a body or a message may begin with one idle time of silence; each
byte extends the deadline a little, never beyond one idle time from now. So a slow line gets the
minutes that a large body needs, a silent one is given up after one idle time, and bytes that
trickle in to keep a request alive earn less than they cost.

A proxy adds its client's address to `X-Forwarded-For`. Anybody can write that header, so it is
trusted from peers in `<TrustedProxies>` only, and only as far as they vouch for each other: read
from the right, the first address that is not a trusted proxy is the client's.

Limits are pure bookkeeping: time is a parameter, and the caller closes connections
(`sow.server.net.connection_supervisor`).
"""

import os
import ssl
from asyncio.sslproto import SSLProtocol
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

from sow.core.addresses import is_loopback, parse_address, parse_authority
from sow.core.definitions import Configuration, Limits
from sow.core.security_definitions import Tls
from sow.errors import ConfigError
from sow.security.authentication.credentials import unreadable

READ_AT_ONCE_BYTES = 16 * 1024
"""Bytes decrypted in one step: one TLS record. By default asyncio keeps 256 KiB per connection,
idle ones included, and a client that fills them with key updates (20 us each) would block the loop
for 0.2 s."""

REASONS = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate {certificate}",
    "NO_START_LINE": "it holds no whole certificate in PEM form (-----BEGIN CERTIFICATE-----)",
    "NO_KEY": "it holds no whole private key in PEM form (-----BEGIN PRIVATE KEY-----)",
    "EE_KEY_TOO_SMALL": "its key is too short for this machine's OpenSSL: 2048 bits for RSA",
}
"""Messages for errors that OpenSSL reports by name only, or not even so (`NO_KEY`)."""


def server_context(tls: Tls) -> ssl.SSLContext:
    """The context of new connections; raises ConfigError for a file that cannot be used."""
    SSLProtocol.max_size = READ_AT_ONCE_BYTES
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Some builds of Python default to an older version.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for element, file in (("Certificate", tls.certificate), ("PrivateKey", tls.private_key)):
        _check_readable(element, file)
    if tls.client_ca:
        _check_readable("ClientCA", tls.client_ca)
        try:
            context.load_verify_locations(tls.client_ca)
        except ssl.SSLError:
            raise ConfigError(
                f"the ClientCA of TLS holds no certificates in PEM form: {tls.client_ca}"
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    requested: list[bool] = []

    def passphrase() -> bytes:
        requested.append(True)
        return b""

    try:
        context.load_cert_chain(tls.certificate, tls.private_key, password=passphrase)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(_sentence(tls, error, bool(requested))) from None
    return context


class Certificate(NamedTuple):
    """A certificate file: when the first of its certificates expires, in Unix time, and a digest
    that identifies its content."""

    expires_s: float
    digest: bytes

    @property
    def valid_until(self) -> str:
        """The expiry, formatted for people."""
        return f"{datetime.fromtimestamp(self.expires_s, UTC):%Y-%m-%d %H:%M} UTC"


def certificates(tls: Tls | None) -> dict[str, Certificate]:
    """The certificates of the server and of its clients' authorities, by file; raises ConfigError.

    Of a chain or a list the first expiry counts: after it some clients are refused. A certificate
    that OpenSSL accepts and this library cannot read is left out.
    """
    files = (tls.certificate, tls.client_ca) if tls else ()
    found = {file: _certificate(file) for file in files if file}
    return {file: one for file, one in found.items() if one is not None}


class TlsFiles(NamedTuple):
    """What the files of `<TLS>` held when they were read: the context of new connections, None
    without TLS, and the certificates."""

    context: ssl.SSLContext | None
    certificates: Mapping[str, Certificate]


def read_tls(tls: Tls | None) -> TlsFiles:
    """Read the files; raises ConfigError."""
    return TlsFiles(None if tls is None else server_context(tls), certificates(tls))


def _certificate(file: str) -> Certificate | None:
    # Imported only here: it is a large library that a server without TLS does not need.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        data = Path(file).read_bytes()
        ends = min(one.not_valid_after_utc for one in load_pem_x509_certificates(data))
    except OSError as error:
        raise ConfigError(f"certificates cannot be read: {unreadable(file, error)}") from None
    except ValueError:
        return None
    return Certificate(ends.timestamp(), sha256(data).digest())


def renewed(now: Mapping[str, Certificate], then: Mapping[str, Certificate]) -> list[str]:
    """The changes that a reload reports: certificates that are different `now` from `then`."""
    return [
        f"certificate {file} read again, valid until {one.valid_until}"
        for file, one in now.items()
        if then.get(file) != one
    ]


def certificate_trusted(now: ssl.SSLContext | None, then: ssl.SSLContext | None) -> bool:
    """Whether a client certificate that was accepted `then`, when its connection began, would be
    accepted `now`: no authority that may have signed it was removed from `ClientCA`."""
    if then is now:
        return True
    if now is None or then is None:
        return False
    return _authorities(then) <= _authorities(now)


def _authorities(context: ssl.SSLContext) -> set[bytes]:
    return set(context.get_ca_certs(binary_form=True))


def _check_readable(element: str, file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except FileNotFoundError as error:
        raise ConfigError(
            f"the {element} of TLS cannot be read: {unreadable(file, error)}; write its path, "
            "relative to config.xml"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the {element} of TLS cannot be read: {unreadable(file, error)}"
        ) from None


def _sentence(tls: Tls, error: Exception, is_encrypted: bool) -> str:
    if is_encrypted:
        return (
            f"the PrivateKey of TLS has a passphrase: {tls.private_key}; write it without one, "
            f"for the server alone to read (openssl pkey -in {os.path.basename(tls.private_key)})"
        )
    name = getattr(error, "reason", None) or str(error)
    if "PEM lib" in name or name == "NO_START_LINE":  # which OpenSSL reports for either file
        name = "NO_START_LINE" if _certificate(tls.certificate) is None else "NO_KEY"
    reason = REASONS.get(name, f"OpenSSL says {name}").format(certificate=tls.certificate)
    is_key = name in ("KEY_VALUES_MISMATCH", "NO_KEY")
    file = tls.private_key if is_key else tls.certificate
    return f"TLS cannot be used: {file}: {reason}"


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


PER_ADDRESS = 1_000
"""Connections per address by default: more than the programs of one machine need, a twentieth of
the total."""


class ConnectionLimiter:
    """Counts the connections of one server. `configuration` returns the current configuration;
    `files_max` is the number of connections that the system has files for."""

    def __init__(self, configuration: Callable[[], Configuration], files_max: int) -> None:
        self._configuration = configuration
        self.files_max = files_max
        self.connections = 0
        self.refused: Counter[str] = Counter({"connections": 0, "address": 0})
        """Refused connections, by reason."""
        self._by_address: Counter[str] = Counter()

    @property
    def connections_max(self) -> int:
        """The largest number of connections."""
        return min(self._configuration().limits.connections_max, self.files_max)

    def acquire_connection(self, address: str) -> str | None:
        """Count a connection from this address; returns None, or the reason of a refusal."""
        if self.connections >= self.connections_max:
            self.refused["connections"] += 1
            return f"there are {self.connections} connections already (Limits/Connections)"
        if (why := self.acquire(address)) is not None:
            return why
        self.connections += 1
        return None

    def release_connection(self, address: str) -> None:
        """A connection was closed."""
        self.connections -= 1
        self.release(address)

    def acquire(self, address: str) -> str | None:
        """Count a connection of an address, or a request on its behalf by a proxy; returns None, or
        the reason of a refusal."""
        most = self._most_of(address)
        if most is not None and self._by_address[address] >= most:
            self.refused["address"] += 1
            return (
                f"there are {most} connections from {address or 'this address'} already "
                "(Limits/ConnectionsPerAddress)"
            )
        self._by_address[address] += 1
        return None

    def release(self, address: str) -> None:
        """A connection of the address was closed, or a request ended."""
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def _most_of(self, address: str) -> int | None:
        configuration = self._configuration()
        given = configuration.limits.connections_per_address_max
        if Proxies(configuration.security.trusted_proxies).trusts(address):
            return None
        return PER_ADDRESS if given is None and not is_loopback(address) else given


BYTES_PER_S_MIN = 16 * 1024
"""The lowest average rate. A bad telephone line has as much."""


class MinRateDeadline:
    """The deadline of one body or one message that begins at `now_s`."""

    __slots__ = ("_idle_s", "until_s")

    def __init__(self, now_s: float, idle_s: float) -> None:
        self._idle_s = idle_s
        self.until_s = now_s + idle_s
        """When it expires if nothing more arrives."""

    def on_bytes(self, now_s: float, size_bytes: int) -> None:
        """Bytes have arrived."""
        self.until_s = min(self.until_s + size_bytes / BYTES_PER_S_MIN, now_s + self._idle_s)


class IdleTimer:
    """The idle time of one connection. Pure."""

    __slots__ = ("_idle_since_s", "header_since_s", "requests")

    def __init__(self, now_s: float) -> None:
        self.requests = 0
        """Requests under way."""
        self.header_since_s: float | None = None
        """Start of the header that is under way."""
        self._idle_since_s = now_s

    def on_bytes(self, now_s: float) -> None:
        """Bytes have arrived."""
        if not self.requests and self.header_since_s is None:
            self.header_since_s = now_s

    def on_header(self, now_s: float) -> None:
        """A header is whole: its request begins as soon as it has its turn."""
        self.header_since_s = None
        self._idle_since_s = now_s

    def begin(self) -> None:
        """A request begins."""
        self.requests += 1
        self.header_since_s = None

    def end(self, now_s: float) -> None:
        """A request has ended."""
        self.requests -= 1
        self.restart(now_s)

    def restart(self, now_s: float) -> None:
        """Restart the idle time."""
        self._idle_since_s = now_s

    def due_s(self, limits: Limits) -> float | None:
        """When the connection is to be closed; None while a request is under way."""
        if self.requests:
            return None
        if self.header_since_s is not None:
            return self.header_since_s + limits.header_timeout_us / 1e6
        return self._idle_since_s + limits.idle_timeout_us / 1e6
