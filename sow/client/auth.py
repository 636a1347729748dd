"""Authentication of the client to a server, and of the server to the client.

A token or a password is sent with every request and with the handshake of every WebSocket, in the
`Authorization` header. Credentials are sent only to the server at the given address, and never
shown: not in errors, not by `repr`. A token that expires can be given as a function, which is
called for each connection and each request.
"""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from sow.errors import ClientError

Token = str | Callable[[], str]
"""A token, or a function that returns one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAuth:
    """The credentials of a client (`token`, or `user` and `password`, or a `certificate` with its
    `key`), and the file of certificates, in PEM form, that it trusts (`ca`; None: those that the
    machine trusts)."""

    token: Token | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def headers(self) -> dict[str, str]:
        """The headers of each request; raises ClientError for invalid credentials."""
        if self.token is not None and self.user is not None:
            raise ClientError(
                "a token identifies the user; give it, or user and password, not both"
            )
        if self.token is not None:
            token = self.token() if callable(self.token) else self.token
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                raise ClientError("the token is empty or has invalid characters; copy it again")
            return {"Authorization": f"Bearer {token}"}
        if self.user is None:
            return {}
        if self.password is None:
            raise ClientError(f"user {self.user} has no password; give password as well")
        if ":" in self.user:
            raise ClientError(f"user {self.user} has a colon, which ends a name in HTTP")
        credentials = base64.b64encode(f"{self.user}:{self.password}".encode())
        return {"Authorization": f"Basic {credentials.decode()}"}

    def context(self) -> ssl.SSLContext | bool:
        """The TLS context for addresses with https://; True for the machine's own certificates.
        Raises ClientError for a file that cannot be used."""
        if self.ca is None and self.certificate is None:
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ClientError(
                f"ca {self.ca} cannot be used ({error.strerror or error}); it is the file of the "
                "certificates, in PEM form, by which the server is trusted"
            ) from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except (OSError, ssl.SSLError) as error:
                raise ClientError(
                    f"certificate {self.certificate} cannot be used ({error.strerror or error}); "
                    "give its file and that of its key, in PEM form"
                ) from None
        return context


ANYBODY = ClientAuth()
"""No credentials."""
