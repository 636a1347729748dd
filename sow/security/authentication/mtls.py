"""Certificates of clients: who it is, of one that the socket has verified.

The common name of its subject is the user's name, each organizational unit a group.
"""

from collections.abc import Mapping
from ssl import cert_time_to_seconds

from sow.core.clock import SECOND_US
from sow.core.security_definitions import User


def user_of(certificate: Mapping[str, object]) -> User | None:
    """Whose it is; None of one without exactly one common name. `certificate` is as
    `ssl.SSLObject.getpeercert` gives it."""
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
