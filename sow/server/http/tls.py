"""TLS contexts from `<TLS>` in the configuration.

The files are read when the server starts and at each reload, so that a certificate is renewed
without a restart; open connections keep theirs. Errors name the file, before anything listens.
"""

import os
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

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
