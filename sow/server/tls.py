"""Encryption: what `<TLS>` names becomes the context of new connections.

The files are read when the server starts and whenever its configuration is read again, so that a
certificate is renewed without a restart; connections that are open keep theirs. What is wrong with
a file is said by its name before anything listens.
"""

import os
import ssl
from asyncio.sslproto import SSLProtocol

from sow.authentication.lines import unreadable
from sow.errors import ConfigError
from sow.security import Tls

READ_AT_ONCE_BYTES = 16 * 1024
"""What is decrypted of a connection in one step: a record of TLS, which is no longer than that. By
itself asyncio keeps 256 KiB for each connection, idle ones included, and a client that fills them
with nothing but changes of its key (20 us each) would keep everybody waiting for 0.2 s."""

REASONS = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate {certificate}",
    "NO_START_LINE": "it holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
    "EE_KEY_TOO_SMALL": "its key is too short for this machine's OpenSSL: 2048 bits for RSA",
}
"""Sentences for what OpenSSL says by a name only."""


def server_context(tls: Tls) -> ssl.SSLContext:
    """The context of connections that come from now on; raises ConfigError for a file that cannot
    be used."""
    SSLProtocol.max_size = READ_AT_ONCE_BYTES
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Some systems build Python so that theirs says what is old enough.
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
    asked: list[bool] = []

    def passphrase() -> bytes:
        asked.append(True)
        return b""

    try:
        context.load_cert_chain(tls.certificate, tls.private_key, password=passphrase)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(_sentence(tls, error, bool(asked))) from None
    return context


def believes(now: ssl.SSLContext | None, then: ssl.SSLContext | None) -> bool:
    """Whether a certificate of a client that was good `then`, when its connection began, is good
    `now`: nobody who may have signed it has been taken out of `ClientCA`."""
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
    said = REASONS.get(name, f"OpenSSL says {name}").format(certificate=tls.certificate)
    file = tls.private_key if name == "KEY_VALUES_MISMATCH" else tls.certificate
    return f"TLS cannot be used: {file}: {said}"
