"""Definitions: what config.xml says a topic is.

A definition is plain data without behaviour or I/O; `sow.config` makes them from XML and
`sow.engine` runs them. Units stand last in a name; `line` is the line of the XML element.
"""

from dataclasses import dataclass, field
from typing import Literal

Durability = Literal["persistent", "transient"]


@dataclass(frozen=True, slots=True)
class Topic:
    """A keyed last-value store that clients publish to.

    `keys` and the members of `hash_indexes` are path texts such as ``/order/id``. With no
    `keys`, publishers send a SowKey with each message. `expiration_us` is the default lifetime
    of a record, or None; `expires` says whether lifetimes are honoured at all.
    """

    name: str
    message_type: str
    keys: tuple[str, ...] = ()
    key_domain: str = ""
    file_name: str | None = None
    durability: Durability = "persistent"
    flush_interval_us: int = 0
    expires: bool = False
    expiration_us: int | None = None
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    line: int = 0

    @property
    def domain(self) -> str:
        """What SowKeys are salted with: KeyDomain, or the topic's own name."""
        return self.key_domain or self.name


@dataclass(frozen=True, slots=True)
class ConflatedTopic:
    """A copy of another topic in which each record changes at most once per interval."""

    name: str
    message_type: str
    underlying: str
    interval_us: int = 5_000_000
    filter: str | None = None
    hash_indexes: tuple[tuple[str, ...], ...] = ()
    indexes: tuple[str, ...] = ()
    line: int = 0


Definition = Topic | ConflatedTopic


@dataclass(frozen=True, slots=True)
class MessageTypeOptions:
    """A `<MessageType>` element: separators of the FIX family, as single bytes."""

    name: str
    module: str
    field_separator: bytes = b"\x01"
    line: int = 0


@dataclass(frozen=True, slots=True)
class LoggedTopic:
    """A `<Topic>` of `<TransactionLog>`: a name or a regular expression of names.

    An empty `message_type` means any. Persistent topics are logged whether named or not.
    """

    name: str
    message_type: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """`<TransactionLog>`: where the journal lives and how much of it is kept.

    Retention keeps at least what no checkpoint covers, whatever the limits say.
    """

    directory: str = "journal"
    retention_bytes: int = 4 * 1024**3
    retention_age_us: int | None = None
    flush_interval_us: int = 0
    topics: tuple[LoggedTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """`<Sessions>`: the bounds of a session's outbox."""

    queue_messages_max: int = 10_000
    queue_bytes_max: int = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class Limits:
    """`<Limits>`: what a single client may ask of the server (contract §7)."""

    message_bytes_max: int = 16 * 1024**2
    frame_bytes_max: int = 64 * 1024**2
    filter_bytes_max: int = 64 * 1024
    filter_depth_max: int = 200
    subscriptions_max: int = 10_000


@dataclass(frozen=True, slots=True)
class Configuration:
    """A whole config.xml, validated. `topics` stand in file order, underlying topics first."""

    name: str
    topics: tuple[Definition, ...] = ()
    message_types: tuple[MessageTypeOptions, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8080
    data_directory: str = "data"
    journal: JournalSettings = field(default_factory=JournalSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    limits: Limits = field(default_factory=Limits)
