"""Credentials as received. They never appear in a log, an error or a traceback."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import cert_time_to_seconds
from typing import Self

from sow.core.clock import SECOND_US
from sow.core.security_definitions import User
from sow.errors import Unauthenticated

LONGEST = 16_384
"""Characters of a header, a token or a password. Signed tokens with some hundred groups are about
as long."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A name with a password, or a token, or a certificate that the socket was opened with.

    `certificate` is as `ssl.SSLObject.getpeercert` gives it: it has been verified. Several may be
    present; a token takes precedence, then the password, then the certificate.
    """

    user: str = ""
    password: str = ""
    token: str = ""
    certificate: Mapping[str, object] | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"

    def __bool__(self) -> bool:
        """Whether anything is shown."""
        return bool(self.token or self.user or self.password or self.certificate)

    @classmethod
    def of_header(cls, authorization: str, certificate: Mapping[str, object] | None = None) -> Self:
        """Those of a header ``Authorization``: Bearer or Basic; empty: none.

        Raises Unauthenticated for one that cannot be read.
        """
        if not authorization:
            return cls(certificate=certificate)
        if len(authorization) > LONGEST:
            raise Unauthenticated(f"the header Authorization is longer than {LONGEST} characters")
        scheme, _, rest = authorization.partition(" ")
        rest = rest.strip()
        if scheme.lower() == "bearer" and rest:
            return cls(token=rest, certificate=certificate)
        if scheme.lower() == "basic" and rest:
            user, password = _basic(rest)
            return cls(user=user, password=password, certificate=certificate)
        raise Unauthenticated(
            "the header Authorization is neither `Bearer TOKEN` nor `Basic` with user and password"
        )


def _basic(text: str) -> tuple[str, str]:
    """User and password from base64 of `user:password` (RFC 7617, in UTF-8)."""
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        colon = ""
    if not colon:
        raise Unauthenticated("the header Authorization: Basic is not base64 of USER:PASSWORD")
    return user, password


def user_of(certificate: Mapping[str, object]) -> User | None:
    """The user of a client certificate that the socket has verified; None without exactly one
    common name. The common name of its subject is the user's name, each organizational unit a
    group. `certificate` is as `ssl.SSLObject.getpeercert` returns it."""
    names: list[str] = []
    groups: list[str] = []
    subject = certificate.get("subject")
    for parts in subject if isinstance(subject, tuple) else ():
        for key, value in parts:
            if key == "commonName":
                names.append(value)
            elif key == "organizationalUnitName":
                groups.append(value)
    if len(names) != 1 or not names[0]:
        return None
    ends = certificate.get("notAfter")
    expires_us = int(cert_time_to_seconds(ends)) * SECOND_US if isinstance(ends, str) else None
    return User(names[0], frozenset(groups), expires_us=expires_us)
