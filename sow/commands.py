"""What a client can ask for: one dataclass for every command of the protocol.

The shape is the union of all commands' headers, because the protocol has one header; which
fields a command reads is said where the command is carried out (`sow.engine.COMMANDS`). How
commands travel is `sow.wire`'s business.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Options:
    """The `opts` of a command, parsed. Only what this version can do; the rest is refused."""

    oof: bool = False
    no_sowkey: bool = False
    timestamp: bool = False
    top_n: int | None = None
    skip_n: int | None = None


@dataclass(slots=True)
class Command:
    """One command. `bodies` are raw message bodies, or for `d` of one line its JSON text.

    `framed` says which: bodies that followed the header line byte for byte (True), or `d`
    (False). `acks` are the acknowledgements asked for. `error` is set when the line could not
    be understood; such a command is answered and otherwise ignored.
    """

    name: str
    cid: str | None = None
    topic: str = ""
    bodies: Sequence[bytes] = ()
    framed: bool = False
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
