"""Credentials as received. They never appear in a log, an error or a traceback."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sow.errors import Unauthenticated

LONGEST = 16_384
"""Characters of a header, a token or a password. Signed tokens with some hundred groups are about
as long."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """A name with a password, or a token, or a certificate that the socket was opened with.

    `certificate` is as `ssl.SSLObject.getpeercert` gives it: it has been verified. Several may be
    there; a token goes first, then the password, then the certificate.
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
    """User and password, which stand there as base64 of `user:password` (RFC 7617, in UTF-8)."""
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        colon = ""
    if not colon:
        raise Unauthenticated("the header Authorization: Basic is not base64 of USER:PASSWORD")
    return user, password
