"""The table of elements, continued: `<Security>`, which governs access.

Hosts and origins are normalized by `sow.core.addresses`, in the form that the server compares.
AMPS has elements of its own for access control. A file that relies on them must not start an open
server, so they are errors everywhere.
"""

from collections.abc import Callable
from ipaddress import ip_network
from itertools import chain

from sow.config import value_types
from sow.config.diagnostics import MistakeError
from sow.config.elements import Element, leaf
from sow.config.value_types import ValueKind
from sow.core.addresses import is_address, parse_authority, parse_host, parse_origin
from sow.core.security_definitions import Allow, Authentication, Jwt, Role, Security, Tls


def _host(text: str) -> str:
    host = parse_host(text)
    if host is not None and not is_address(host):
        return host
    if host is not None or parse_host(text.strip("[]")) is not None:
        raise MistakeError(f"{text!r} is an address, and addresses are always allowed", "remove it")
    authority = parse_authority(text)
    if authority is not None:
        raise MistakeError(f"{text!r} has a port, which does not matter", f"write {authority.host}")
    raise MistakeError(
        f"{text[:80]!r} is not the name of a host", "write each name in full, such as sow.example"
    )


def _origin(text: str) -> str:
    if text == "null":
        raise MistakeError(
            "'null' is the origin of every file and of every sandboxed page, by any author",
            "serve the page from an address and write that, such as https://desk.example",
        )
    origin = parse_origin(text.removesuffix("/"))
    if origin is None:
        raise MistakeError(
            f"{text[:80]!r} is not an origin",
            "write scheme, host and port and nothing else, such as https://desk.example",
        )
    return str(origin)


def _proxy(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        why = "has bits outside its network" if "host bits" in str(error) else "is no IP address"
        raise MistakeError(
            f"{text[:80]!r} {why}",
            "write an address or a network, such as 192.0.2.10 or 10.0.0.0/8",
        ) from None


def _several(name: str, read_one: Callable[[str], str]) -> ValueKind:
    """One or several values, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(read_one(part.strip()) for part in text.split(","))

    return ValueKind(name, read)


def _member(text: str) -> str:
    kind, colon, name = text.partition(":")
    if text == "*" or (colon and kind in ("user", "group") and name.strip() == name != ""):
        return text
    raise MistakeError(
        f"{text[:80]!r} is neither a user nor a group", "write user:NAME, group:NAME or *"
    )


def _role(name: str, members: tuple[str, ...] = (), allows: tuple[Allow, ...] = ()) -> Role:
    return Role(name, members, allows)


def _security(
    tls: Tls | None = None,
    authentication: Authentication | None = None,
    roles: tuple[Role, ...] = (),
    **lists: tuple[tuple[str, ...], ...],
) -> Security:
    """Each list may be given several times, and hold several values each time."""
    joined = {name: tuple(chain(*given)) for name, given in lists.items()}
    return Security(tls=tls, authentication=authentication, roles=roles, **joined)


TLS = Element(
    name="TLS",
    make=Tls,
    about="Encryption: with it clients call https:// and wss://, and nothing else. The files are "
    "in PEM form, by paths relative to config.xml; a reload reads them again.",
    children=(
        leaf("Certificate", value_types.TEXT, required=True)(
            "The server's certificate, and after it those by which clients trust it."
        ),
        leaf("PrivateKey", value_types.TEXT, required=True)(
            "Its private key, without a passphrase: a server cannot be prompted for it."
        ),
        leaf("ClientCA", value_types.TEXT)(
            "Certificates of the authorities that sign certificates of clients, for "
            "`ClientCertificates` in Authentication."
        ),
    ),
)


def _file(fields: str, about: str) -> Element:
    return leaf("File", value_types.TEXT, required=True, fields=(fields,))(about)


AUTHENTICATION = Element(
    name="Authentication",
    make=Authentication,
    about="How users authenticate: any of these, or several. Role defines what each may do. "
    "Files are named by paths relative to config.xml; a reload reads them again.",
    children=(
        Element(
            name="Users",
            about="Names and passwords.",
            children=(
                _file(
                    "users_file",
                    "As htpasswd writes it, with bcrypt or argon2. Groups stand beside it in a "
                    "file that ends in .groups: `GROUP: NAME NAME` in each line.",
                ),
            ),
        ),
        Element(
            name="Tokens",
            about="Secrets of programs.",
            children=(
                _file(
                    "tokens_file",
                    "`NAME SHA-256 [group,…] [expires]` in each line: the sum of the token in "
                    "hexadecimal, not the token; the end is a time such as 2027-01-31T00:00:00Z.",
                ),
            ),
        ),
        Element(
            name="JWT",
            make=Jwt,
            about="Signed tokens that somebody else gives out (OpenID Connect).",
            children=(
                leaf("Issuer", value_types.TEXT, required=True)("What its claim iss has to be."),
                leaf("Audience", value_types.TEXT, required=True)(
                    "What has to be among its claim aud."
                ),
                leaf("Keys", value_types.TEXT, required=True)(
                    "The keys by which they are signed: a file, or an address at https://, "
                    "as JSON Web Key Set."
                ),
                leaf("User", value_types.TEXT, "sub")("The claim that is the user's name."),
                leaf("Groups", value_types.TEXT, "groups")(
                    "The claim that lists the user's groups."
                ),
            ),
        ),
        leaf("ClientCertificates", value_types.PRESENT)(
            "Certificates that are signed by ClientCA of TLS: the common name is the "
            "user's name, each organizational unit a group."
        ),
    ),
)


def _verb(name: str, about: str) -> Element:
    return leaf(name, value_types.PRESENT)(about)


ROLE = Element(
    name="Role",
    repeated=True,
    fields=("roles",),
    make=_role,
    about="What its members may do. A user with several roles may do what any of them allows, a "
    "user with none nothing.",
    children=(
        leaf("Name", value_types.TEXT, required=True)("Its name."),
        leaf(
            "Member",
            ValueKind("`user:NAME`, `group:NAME` or `*`", _member),
            required=True,
            repeated=True,
            fields=("members",),
        )("Its members: a user, all of a group, or every authenticated user."),
        Element(
            name="Allow",
            repeated=True,
            fields=("allows",),
            make=Allow,
            about="What may be done, with the topics that Topic names.",
            children=(
                leaf("Topic", value_types.TOPIC_PATTERN)(
                    "A regular expression, which has to match the whole name. Topics of the "
                    "server's own, /sow/…, only by one that begins with that."
                ),
                _verb("Read", "Query, follow, read the log and snapshots."),
                _verb("Write", "Publish."),
                _verb("Delete", "Delete records."),
                _verb("Admin", "The configuration, sessions of others, metrics."),
                _verb("Impersonate", "Act for another user."),
                leaf("Filter", value_types.ENTITLEMENT)(
                    "Which records may be seen, with Read. `${user.desk}` is what is known "
                    "of the user under that name, `${user.name}` his name; where it is not known, "
                    "nothing is allowed. Without it: all."
                ),
                leaf("Select", value_types.SELECT)(
                    "Which fields may be seen, with Read, as in a select list: `-/client` "
                    "hides one. What is hidden is NULL in the user's own filters."
                ),
                leaf("Check", value_types.ENTITLEMENT)(
                    "Which records may be written or deleted: what was there before and what "
                    "is to be there both have to pass. Without it: all."
                ),
            ),
        ),
    ),
)

SECURITY = Element(
    name="Security",
    make=_security,
    about="Who has access, beyond the defaults: see [security](security.md).",
    children=(
        leaf("AllowedHosts", _several("host names", _host), repeated=True)(
            "Names by which clients call this server, separated by commas. Addresses, "
            "localhost, the machine's own name and that in Listen need not be named."
        ),
        leaf("AllowedOrigins", _several("origins", _origin), repeated=True)(
            "Where pages come from that may use this server though it did not serve them, "
            "such as https://desk.example, separated by commas. Their hosts are allowed too."
        ),
        leaf("TrustedProxies", _several("addresses or networks", _proxy), repeated=True)(
            "Proxies with a trusted X-Forwarded-For and X-Forwarded-Host, by address or "
            "network, separated by commas."
        ),
        TLS,
        AUTHENTICATION,
        ROLE,
    ),
)

_WRITE_INSTEAD = (
    "access is configured by <Security><Authentication><Tokens><File>tokens</File></Tokens>"
    "</Authentication><Role>…</Role></Security>: see docs/security.md"
)
ACCESS_OF_AMPS = tuple(
    Element(name=name, status="refused", about=_WRITE_INSTEAD)
    for name in ("Authentication", "Entitlement")
)
