"""A user: who asks, as whoever checked his password, token or certificate has found out.

What he may do is not known here (`sow.security.authorization`), nor how it was found out
(`sow.security.authentication`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class User:
    """`claims` are what else is known of a user, by name, as text. Past `expires_us`, microseconds
    since 1970, it is no longer known that it is he; None: as long as the configuration says so."""

    name: str
    groups: frozenset[str] = frozenset()
    claims: Mapping[str, str] = field(default_factory=dict, hash=False)
    expires_us: int | None = None
