"""What a client can request: the table of commands, the table of their options, and a class for one
of each.

A command or an option is one entry here. The parsers of lines (`sow.protocol.wire`) and options
(`sow.protocol.options`), the executor (`sow.sessions.commands.executor`), the parameters of HTTP
requests, `/openapi.json` and the tests of the documents all use these tables.

A `Command` is one parsed line: the union of all commands' fields, because the protocol has one
header. The format of lines is not known here.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Literal, NamedTuple

from sow.core.security_definitions import User
from sow.errors import SowError
from sow.security.authorization import EVERYTHING, Demand, Permissions, RoleSet

Request = Literal["query", "stream"]
"""HTTP requests that take options as parameters: a query, and a stream of events."""

Value = Literal["flag", "count", "list", "expressions", "interval", "choice", "moment"]
"""The syntax of an option's value: none, a whole number, words or expressions between commas, an
interval such as `1s`, `auto` or `none`, one of a few words, a bookmark or a time."""


class Option(NamedTuple):
    """The specification of one option; `requests` take it as a parameter of its name."""

    name: str
    value: Value
    does: str
    requests: tuple[Request, ...] = ()
    choices: tuple[str, ...] = ()
    members_max: int | None = None


def _option(value: Value, does: str, default: object = False, **more: object) -> Any:
    """A field of `Options`, which is an entry of the table of options at the same time."""
    return field(default=default, metadata={"value": value, "does": does, **more})


PROJECTED_MAX = 256
"""Fields of an aggregated row: each is computed whenever its group has changed."""
GROUPED_MAX = 32
"""Fields that make a group, as many as may make a key of another kind."""
KEY_FIELDS_MAX = 32
"""Fields of a conflation key. Each is read of every update; no record has so many that name it."""


@dataclass(slots=True)
class Options:
    """The options of a command, read: each field is one, and its default is what holds without it.

    `conflation` is an interval in microseconds, ``auto`` or None; `conflation_key` and `select` are
    lists of paths, the latter with their signs, `projection` and `grouping` of expressions.
    `ignored` is no option: it names those of `OPTIONS_IGNORED` that were given.
    """

    oof: bool = _option("flag", "report records that leave the focus", requests=("stream",))
    no_empties: bool = _option(
        "flag",
        "omit updates that change no visible field",
        requests=("stream",),
    )
    send_keys: bool = _option("flag", "the key fields are part of a delta; they always are")
    no_sowkey: bool = _option("flag", "leave k out of record lines")
    timestamp: bool = _option("flag", "add ts to record lines")
    replace: bool = _option("flag", "change the subscription that s names")
    non_regex_topic: bool = _option("flag", "the topic's name is literal")
    bookmark: bool = _option("flag", "updates carry their bookmarks; they always do")
    top_n: int | None = _option(
        "count", "so many records at most", None, requests=("query", "stream")
    )
    skip_n: int | None = _option(
        "count", "leave out the first so many", None, requests=("query", "stream")
    )
    last: int | None = _option(
        "count", "begin with so many events of each record", None, requests=("stream",)
    )
    live: bool = _option(
        "flag", "follow the window of top_n and skip_n as it changes", requests=("stream",)
    )
    positions: bool = _option(
        "flag", "add at, a record's place in a live window", requests=("stream",)
    )
    conflation: int | Literal["auto"] | None = _option(
        "interval", "at most one update of a record in so long", None, requests=("stream",)
    )
    conflation_key: tuple[str, ...] = _option(
        "list",
        "the fields that make records the same one for conflation",
        (),
        requests=("stream",),
        members_max=KEY_FIELDS_MAX,
    )
    select: tuple[str, ...] | None = _option(
        "list", "the fields to see", None, requests=("query", "stream")
    )
    projection: tuple[str, ...] | None = _option(
        "expressions",
        "what the rows of groups of records are made of",
        None,
        requests=("query", "stream"),
        members_max=PROJECTED_MAX,
    )
    grouping: tuple[str, ...] | None = _option(
        "expressions",
        "the fields whose values make a group",
        None,
        requests=("query", "stream"),
        members_max=GROUPED_MAX,
    )
    as_of: str | None = _option(
        "moment", "the state at a bookmark or a time", None, requests=("stream",)
    )
    bookmark_not_found: Literal["fail", "epoch", "now"] = _option(
        "choice",
        "what to do with a bookmark that is not kept",
        "fail",
        choices=("fail", "epoch", "now"),
    )
    gaps: bool = _option("flag", "numbers before seq may be left out")
    ignored: tuple[str, ...] = ()


OPTIONS = {
    each.name: Option(each.name, **each.metadata) for each in fields(Options) if each.metadata
}
OPTIONS_IGNORED = ("max_backlog", "ack_conflation", "pretty")
"""Options of AMPS that only tune how lines are sent: a command with one is carried out without it,
and its ack names it. Those that change what a client receives are refused."""
OPTIONS_LATER = ("pause", "resume", "rate")
"""Options that are refused as not available yet, instead of as unknown."""
ACKS = ("processed", "persisted", "completed")
"""What may be acknowledged of a command, in the order in which the acks are sent."""
ACKS_LATER = ("received", "stats")


def acks_of(requested: Collection[str], has_cid: bool) -> tuple[str, ...]:
    """The acks that a command gets, in order; by default `processed`, if the command has a cid."""
    wanted = requested or (("processed",) if has_cid else ())
    return tuple(kind for kind in ACKS if kind in wanted)


@cache
def options_of(request: Request) -> tuple[str, ...]:
    """The names of the options that an HTTP request takes as parameters."""
    return tuple(name for name, option in OPTIONS.items() if request in option.requests)


class CommandKind(NamedTuple):
    """The specification of one command. `fields` are those of a line that it reads, besides `c`,
    `cid` and `a`. `action` is the executor's method that carries it out, without its underscore.
    `demand` is what its sender has to be, or may do with the topic that it names. `is_delta`: its
    messages, or its updates, are to be merged into records.
    """

    name: str
    action: str
    demand: Demand
    does: str
    fields: tuple[str, ...] = ()
    is_delta: bool = False

    @property
    def takes_bodies(self) -> bool:
        """Whether message bodies may follow its line, byte for byte."""
        return "n" in self.fields


_BODIES = ("d", "n", "enc")
_PUBLISH = ("t", *_BODIES, "k", "x", "seq", "opts")
_QUERY = (
    "t", "filter", "keys", "k", "order_by", "top_n", "skip_n", "select", "projection", "grouping",
    "opts",
)  # fmt: skip
_SUBSCRIBE = ("t", "filter", "select", "opts", "bm", "s")
_BOTH = (*_QUERY, "as_of", "s")
_KINDS = (
    CommandKind(
        "logon",
        "logon",
        "nothing",
        "names the client, or takes up a session",
        ("client", "sequence", "session", "seen", "user", "password", "token", "as"),
    ),
    CommandKind("publish", "publish", "write", "stores messages", _PUBLISH),
    CommandKind(
        "delta_publish", "publish", "write", "merges messages into records", _PUBLISH, is_delta=True
    ),
    CommandKind(
        "sow", "sow", "read", "returns the records", (*_QUERY, "as_of", "min_bookmark", "wait")
    ),
    CommandKind("subscribe", "subscribe", "read", "sends changes", _SUBSCRIBE),
    CommandKind(
        "sow_and_subscribe",
        "sow_and_subscribe",
        "read",
        "returns the records, then sends their changes",
        _BOTH,
    ),
    CommandKind(
        "delta_subscribe",
        "subscribe",
        "read",
        "sends the changed fields of records",
        _SUBSCRIBE,
        is_delta=True,
    ),
    CommandKind(
        "sow_and_delta_subscribe",
        "sow_and_subscribe",
        "read",
        "returns the records, then sends their changed fields",
        _BOTH,
        is_delta=True,
    ),
    CommandKind("unsubscribe", "unsubscribe", "logon", "ends subscriptions", ("s",)),
    CommandKind(
        "sow_delete",
        "sow_delete",
        "delete",
        "removes records",
        ("t", "filter", "keys", "k", *_BODIES, "seq", "opts"),
    ),
    CommandKind("flush", "flush", "logon", "is acknowledged after everything before it"),
    CommandKind("heartbeat", "heartbeat", "logon", "is answered with a heartbeat"),
)
COMMANDS = {kind.name: kind for kind in _KINDS}


class Identified(NamedTuple):
    """The user of some credentials, or the error of their check `under` the roles of that time.
    `shown` are the credentials, for a later check."""

    user: User | SowError
    under: RoleSet
    shown: object = None
    address: str = ""


@dataclass(slots=True)
class Command:
    """One command. `bodies` are raw message bodies, or for `d` of one line its JSON text.

    `framed` says which: bodies that followed the header line byte for byte (True), or `d` (False).
    `enc` is ``base64`` for bodies in that encoding; framed bodies have it only if the client says
    so. `acks` are the requested acknowledgements, `expires_s` a lifetime in seconds. `seq` is the
    number of its first message, and `sequence` requests that the client's messages are numbered
    (`sow.sessions.commands.publishers`). `rights` are the permissions of its user
    (`sow.security.authorization`), set by the executor.
    """

    name: str
    cid: str | None = None
    topic: str = ""
    bodies: Sequence[bytes] = ()
    framed: bool = False
    enc: str | None = None
    key: str | None = None
    filter: str | None = None
    options: Options = field(default_factory=Options)
    order_by: str | None = None
    bookmark: str | None = None
    acks: frozenset[str] = frozenset()
    expires_s: float | None = None
    subscription: str | None = None
    keys: tuple[str, ...] | None = None
    min_bookmark: str | None = None
    """What its answer is to contain: it waits for that, up to `wait_s` seconds."""
    wait_s: float | None = None
    seq: int | None = None
    client: str | None = None
    sequence: bool = False
    session: str | None = None
    seen: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    acts_as: str | None = None
    or_snapshot: bool = False
    """Where it cannot begin at its bookmark, it begins with a snapshot: its client has no other way
    to go on."""
    identified: Identified | None = None
    """Of a logon: the identity, established before the command is executed."""
    rights: Permissions = EVERYTHING
    """The sender's, set by the executor."""

    def be_sent_by(self, rights: Permissions) -> None:
        """Set the sender's permissions."""
        self.rights = rights

    def be_identified(self, identified: Identified) -> None:
        """Set the sender's identity."""
        self.identified = identified

    @property
    def shows_credentials(self) -> bool:
        """Whether it has credentials, whose check takes a while."""
        return bool(self.user or self.password or self.token)

    @property
    def kind(self) -> CommandKind:
        """The specification of this command."""
        return COMMANDS[self.name]
