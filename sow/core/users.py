"""A user, as authenticated by password, token or certificate.

Permissions are the business of `sow.security.authorization`, authentication of
`sow.security.authentication`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """`claims` are what else is known of a user, by name, as text. The authentication expires at
    `expires_us`, microseconds since 1970; None: it holds as long as the configuration allows."""

    name: str
    groups: frozenset[str] = frozenset()
    claims: Mapping[str, str] = field(default_factory=dict, hash=False)
    expires_us: int | None = None
