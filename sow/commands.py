"""What a client can ask for: one dataclass for every command of the protocol.

The shape is the union of all commands' headers, because the protocol has one header; which
fields a command reads is said where the command is carried out (`sow.engine.engine.COMMANDS`). How
commands travel is `sow.wire`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Options:
    """The `opts` of a command, parsed. Only what this version can do; the rest is refused.

    `conflation` is an interval in microseconds, ``auto`` or None; `conflation_key` and `select` are
    lists of paths, the latter with their signs.
    """

    oof: bool = False
    no_empties: bool = False
    send_keys: bool = False
    no_sowkey: bool = False
    timestamp: bool = False
    replace: bool = False
    non_regex_topic: bool = False
    bookmark: bool = False
    top_n: int | None = None
    skip_n: int | None = None
    conflation: int | Literal["auto"] | None = None
    conflation_key: tuple[str, ...] = ()
    select: tuple[str, ...] | None = None
    bookmark_not_found: Literal["fail", "epoch", "now"] = "fail"


@dataclass(slots=True)
class Command:
    """One command. `bodies` are raw message bodies, or for `d` of one line its JSON text.

    `framed` says which: bodies that followed the header line byte for byte (True), or `d`
    (False). `enc` is ``base64`` where the client says that they are written so, which framed bodies
    are only then. `acks` are the acknowledgements asked for. `error` is set when the line could not
    be understood; such a command is answered and otherwise ignored.
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
    client: str | None = None
    session: str | None = None
    seen: int | None = None
