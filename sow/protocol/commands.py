"""What a client can request: the table of commands, the table of their options, and a class for one
of each.

A command or an option is one entry here. The parser of lines (`sow.protocol.wire`), the executor
(`sow.sessions.commands.executor`), the parameters of HTTP requests, `/openapi.json` and the tests
of the documents all use these tables.

Options are written as ``oof,top_n=10,conflation_key=[/a,/b]``. A kind of value is parsed in one
place, for a line's `opts` and for parameters over HTTP.

A `Command` is one parsed line: the union of all commands' fields, because the protocol has one
header. The format of lines is not known here.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, NamedTuple

from conflated_topics.user_texts import IntervalError, interval_us
from sow.core.comma_lists import expressions_end, read_expressions, read_list, split_list
from sow.core.humanize import did_you_mean
from sow.core.security_definitions import User
from sow.errors import (
    ClientError,
    SowError,
    TooLarge,
    clipped,
    invalid_options,
    shown,
)
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
        "flag", "omit updates that change no visible field", requests=("stream",)
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
        requests=("stream",),
    )
    pause: bool = _option("flag", "begin a replay paused, or pause those that s names")
    resume: bool = _option("flag", "let the paused replays that s names go on")
    rate: int | None = _option("count", "at most so many messages of a replay a second", None)
    withdrawn: bool = _option("flag", "report records that changed rights take away, as with oof")
    gaps: bool = _option("flag", "numbers before seq may be left out")
    cancel: bool = _option("flag", "give messages of a queue back instead of acknowledging them")
    ignored: tuple[str, ...] = ()
    max_backlog: str | None = field(default=None, compare=False)
    """How many messages of a queue a subscription may hold; only of queues, elsewhere ignored."""


OPTIONS = {
    each.name: Option(each.name, **each.metadata) for each in fields(Options) if each.metadata
}
OPTIONS_IGNORED = ("max_backlog", "ack_conflation", "pretty")
"""Options of AMPS that only tune how lines are sent: a command with one is carried out without it,
and its ack names it. Those that change what a client receives are refused."""
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
    "opts", "stale",
)  # fmt: skip
_SUBSCRIBE = ("t", "filter", "select", "opts", "bm", "s", "stale")
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
        ("t", "filter", "keys", "k", "bm", *_BODIES, "seq", "opts"),
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
    stale: str | None = None
    """`ok`: its answer may be out of date."""
    stale_s: int | None = None
    """By how many seconds it may be, if so; set by the server."""
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
    sent: "Command | None" = None
    """Of a command about rows that were made for it: the one that its client has sent."""

    def be_sent_by(self, rights: Permissions) -> None:
        """Set the sender's permissions."""
        self.rights = rights

    def be_stale(self, seconds: int | None) -> None:
        """Set by how many seconds its answer may be out of date."""
        self.stale_s = seconds

    def be_identified(self, identified: Identified) -> None:
        """Set the sender's identity."""
        self.identified = identified

    @property
    def governs_replays(self) -> bool:
        """It pauses or resumes subscriptions that are there, and begins none."""
        return self.options.resume or (self.options.pause and self.subscription is not None)

    def heed_backlog(self) -> None:
        """It subscribes to a queue, which takes its `max_backlog`."""
        ignored = tuple(name for name in self.options.ignored if name != "max_backlog")
        self.options = replace(self.options, ignored=ignored)

    def ignored_in(self, kind: str) -> dict[str, object]:
        """What an ack of this kind says of options that were ignored."""
        ignored = self.options.ignored if kind == ACKS[0] else ()
        return {"ignored": [*ignored]} if ignored else {}

    @property
    def shows_credentials(self) -> bool:
        """Whether it has credentials, whose check takes a while."""
        return bool(self.user or self.password or self.token)

    @property
    def kind(self) -> CommandKind:
        """The specification of this command."""
        return COMMANDS[self.name]


_EXPRESSIONS = re.compile(
    rf"(?:^|,)\s*({'|'.join(n for n, one in OPTIONS.items() if one.value == 'expressions')})=\["
)
"""Where an option begins that is a list of expressions."""
CONFLATION_US_MIN = 10_000
"""The shortest interval of a subscription: its deliveries gather within a tenth of it, and an event
loop cannot be relied on to wake at anything finer than a millisecond."""


def read_options(text: str) -> Options:
    """Read `opts`. Raises ClientError, TooLarge or NotAvailable, naming the option."""
    words = [*_words(text)]
    options = Options(ignored=_ignored(words))
    for word in words:
        name, equals, value = word.partition("=")
        if name in OPTIONS_IGNORED:
            if name == "max_backlog":
                options.max_backlog = value
            continue
        option = OPTIONS.get(name)
        if option is None:
            raise _invalid(f"no option {shown(name)}{did_you_mean(name, OPTIONS)}")
        if option.value != "flag":
            setattr(options, name, read_value(option, value))
        elif equals:
            raise _invalid(f"option {name} takes no value")
        else:
            setattr(options, name, True)
    return options


def _ignored(words: Iterable[str]) -> tuple[str, ...]:
    names = dict.fromkeys(word.partition("=")[0] for word in words)
    return tuple(name for name in names if name in OPTIONS_IGNORED)


def _words(text: str) -> Iterator[str]:
    """The options as written. In a list of expressions, commas inside parentheses and quotes do not
    separate."""
    start = 0
    while found := _EXPRESSIONS.search(text, start):
        end = expressions_end(text, found.end())
        if end < 0:
            raise _invalid(f"option {found[1]} has no closing ]")
        yield from _others(text[start : found.start()], behind=start > 0)
        yield text[found.start(1) : end + 1]
        rest = text[end + 1 :].lstrip()
        if rest and not rest.startswith(","):
            raise _invalid(
                f"{shown(rest)} behind {found[1]}=[...] is not understood; write a comma"
            )
        start = len(text) - len(rest)
    yield from _others(text[start:], behind=start > 0)


def _others(text: str, behind: bool) -> list[str]:
    """The options of a part of the text; `behind`: the part follows a comma."""
    if not behind or not text:
        return split_list(text)
    # With something in front an empty option is found as well.
    return split_list(f"…{text}")[1:]


def read_value(option: Option, text: str) -> object:
    """The value of an option that is no flag. Raises ClientError or TooLarge, naming the option."""
    return READERS[option.value](option, text)


def _invalid(detail: str) -> ClientError:
    return invalid_options(detail)


def _count(option: Option, text: str) -> int:
    name = option.name
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _invalid(f"option {name}={shown(text)} must be a whole number such as {name}=10")
    return int(text)


def _list(option: Option, text: str) -> tuple[str, ...]:
    members = read_list(text)
    if option.members_max is not None and len(members) > option.members_max:
        raise TooLarge(
            f"{option.name} names {len(members)} fields, and {option.members_max} are the most"
        )
    return members


def _expressions(option: Option, text: str) -> tuple[str, ...]:
    members = read_expressions(text)
    if option.members_max is not None and len(members) > option.members_max:
        raise TooLarge(
            f"{option.name} has {len(members)} members, and {option.members_max} are the most"
        )
    return members


def _interval(option: Option, text: str) -> int | Literal["auto"] | None:
    """An interval in microseconds, ``auto``, or None for ``none``."""
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    written = f"{option.name}={clipped(text)}"
    try:
        read_us = interval_us(text)
    except IntervalError as error:
        raise _invalid(f"{written}: {error.wrong}; {error.instead}, auto or none") from None
    if read_us < CONFLATION_US_MIN:
        raise _invalid(
            f"{written} is shorter than {CONFLATION_US_MIN // 1000}ms; write a longer interval, "
            "auto or none"
        )
    return read_us


def _choice(option: Option, text: str) -> str:
    if text not in option.choices:
        raise _invalid(
            f"{option.name}={clipped(text)} is not known; write {' or '.join(option.choices)}"
        )
    return text


def _moment(option: Option, text: str) -> str:
    if not text.strip():
        raise _invalid(
            f"option {option.name} is empty; write a bookmark, or a time such as "
            f"{option.name}=20261121T093000Z"
        )
    return text


READERS: dict[Value, Callable[[Option, str], object]] = {
    "count": _count,
    "list": _list,
    "expressions": _expressions,
    "interval": _interval,
    "choice": _choice,
    "moment": _moment,
}
