"""Security, as configured: authentication, roles and their permissions, and TLS.

Plain data, like all definitions (`sow.core.definitions`). `sow.security.authorization` computes a
user's permissions, `sow.security.authentication` finds out who the user is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args


@dataclass(frozen=True, slots=True)
class User:
    """A user, as authenticated by password, token or certificate.

    `claims` are other facts about the user, by name, as text. The authentication expires at
    `expires_us`, microseconds since 1970; None: it holds as long as the configuration allows.
    """

    name: str
    groups: frozenset[str] = frozenset()
    claims: Mapping[str, str] = field(default_factory=dict, hash=False)
    expires_us: int | None = None


@dataclass(frozen=True, slots=True)
class Tls:
    """`<TLS>`: the files, in PEM form, by which the server proves who it is and encrypts.

    `certificate` may hold the whole chain. `private_key` may be in the same file. `client_ca` are
    the certificates by which those of clients are trusted; without it none is requested.
    """

    certificate: str
    private_key: str
    client_ca: str = ""


@dataclass(frozen=True, slots=True)
class Jwt:
    """`<JWT>`: signed tokens of an external issuer. `keys` is a file or an address of the keys by
    which they are signed; `user` and `groups` are the claims with the name and the groups."""

    issuer: str
    audience: str
    keys: str
    user: str = "sub"
    groups: str = "groups"


@dataclass(frozen=True, slots=True)
class Authentication:
    """`<Authentication>`: how users authenticate. A file that is not configured is an empty
    text."""

    users_file: str = ""
    tokens_file: str = ""
    jwt: Jwt | None = None
    client_certificates: bool = False


Verb = Literal["read", "write", "delete", "admin", "impersonate"]
VERBS: tuple[Verb, ...] = get_args(Verb)
OF_TOPICS: tuple[Verb, ...] = ("read", "write", "delete")
"""The verbs that apply to a topic."""


@dataclass(frozen=True, slots=True)
class Allow:
    """`<Allow>`: what a role may do, and with which topics: those whose whole name `topic`, a
    regular expression, matches. `filter` says which records may be seen, `select` which fields,
    `check` which records may be written; None: all."""

    topic: str = ""
    read: bool = False
    write: bool = False
    delete: bool = False
    admin: bool = False
    impersonate: bool = False
    filter: str | None = None
    select: tuple[str, ...] | None = None
    check: str | None = None

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What it allows."""
        return tuple(verb for verb in VERBS if getattr(self, verb))


@dataclass(frozen=True, slots=True)
class Role:
    """`<Role>`: what its members may do. A member is ``user:NAME``, ``group:NAME`` or ``*``."""

    name: str
    members: tuple[str, ...]
    allows: tuple[Allow, ...]


@dataclass(frozen=True, slots=True)
class Security:
    """`<Security>`: which hosts and origins are allowed besides those of
    `sow.server.http.request_origin`.

    Hosts and origins have the canonical spelling of `sow.core.addresses`; `trusted_proxies`
    are addresses and networks, such as ``192.0.2.10/32``.
    """

    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    tls: Tls | None = None
    authentication: Authentication | None = None
    roles: tuple[Role, ...] = ()

    @property
    def scheme(self) -> str:
        """What addresses of this server begin with."""
        return "https" if self.tls else "http"
