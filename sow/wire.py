"""How commands and replies travel: JSON lines in frames, and server-sent events.

A frame from a client is one or more lines. Each line is a JSON object; a publish (or a delete
by bodies) with ``"n"`` is followed by that many bodies, one a line, byte for byte. A line
that cannot be understood becomes a `Refused`, so that one bad line never costs its neighbours.

To clients the same lines go out in WebSocket frames (`LineEncoding`) or as server-sent events
(`EventEncoding`). Both render whole batches of records from columns: equal subscriptions get
the same bytes object, so it is built once however many sessions there are.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
import orjson

from sow.commands import Command, Options
from sow.errors import ClientError, NotAvailable, SowError, TooLarge, clipped, shown
from sow.frames import FrameLines
from sow.paths import Member
from sow.replies import Reply

COMMANDS = (
    "logon",
    "publish",
    "delta_publish",
    "sow",
    "subscribe",
    "sow_and_subscribe",
    "delta_subscribe",
    "sow_and_delta_subscribe",
    "unsubscribe",
    "sow_delete",
    "flush",
    "heartbeat",
)
FRAMED = ("publish", "delta_publish", "sow_delete")
"""Commands whose bodies may follow their line byte for byte."""
ENC = "base64"
"""How bodies of byte types travel in lines, in both directions."""
FLAGS = (
    "oof",
    "no_empties",
    "send_keys",
    "no_sowkey",
    "timestamp",
    "replace",
    "non_regex_topic",
    "bookmark",
)
VALUED = ("top_n", "skip_n", "conflation", "conflation_key", "select", "bookmark_not_found")
OPTIONS = FLAGS + VALUED
OPTIONS_LATER = ("projection", "grouping", "pause", "resume", "rate")
KEY_FIELDS_MAX = 32
CONFLATION_US_MIN = 10_000
ACKS = ("processed", "persisted", "completed")
ACKS_LATER = ("received", "stats")
KNOWN_TOLD_MAX = 30
"""So many words may help who has mistyped one; more would only be long."""
REFUSED_MAX = 100
"""Refused lines of one frame after which the rest of it is not read: a program that errs so often
is not going to send anything better, and a refusal costs ten times the line that it is about."""
BODIES_MAX = 1_000_000
"""Bodies that may follow one line. Each takes some 50 bytes besides its text."""


@dataclass(slots=True)
class Refused:
    """A line that is not a command this server can carry out, and why."""

    cid: str | None
    error: SowError


LENGTHS = {
    "cid": 100,
    "a": 100,
    "client": 255,
    "session": 255,
    "enc": 255,
    "t": 1024,
    "bm": 8 * 1024,
    "order_by": 8 * 1024,
    "select": 64 * 1024,
    "opts": 64 * 1024,
    "s": 256 * 1024,
    "k": 256 * 1024,
    "keys": 256 * 1024,
}
"""Characters of the fields of a line: names are short, and a list has some 10,000 members, as many
as a session may have subscriptions. What a filter may have is configured."""
SHORT_BYTES = min(LENGTHS.values())
"""A line that is no longer but for its body has no field that is too long."""


NO_BODY = msgspec.Raw(b"")
NO_LINES = FrameLines(b"")
NO_LINES.leave()


class LineFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields a client's line may carry. Unknown ones are refused, never ignored."""

    c: str
    cid: str | int | None = None
    t: str = ""
    d: msgspec.Raw = NO_BODY
    enc: str | None = None
    n: int | None = None
    k: str | None = None
    keys: str | list[str] | None = None
    filter: str | None = None
    opts: str = ""
    order_by: str | None = None
    top_n: int | None = None
    skip_n: int | None = None
    select: str | None = None
    bm: str | int | None = None
    a: str | list[str] = ""
    x: float | int | None = None
    s: str | None = None
    client: str | None = None
    session: str | None = None
    seen: int | None = None
    user: str | None = None
    password: str | None = None


HEADER = msgspec.json.Decoder(LineFields)
HEADER_FIELDS = frozenset(LineFields.__struct_fields__)


def read_frame(frame: bytes) -> Iterable[Command | Refused]:
    """The commands of one frame, in order."""
    if b"\n" not in frame and frame.strip():
        return [_read(frame, NO_LINES)]
    return read_lines(FrameLines(frame))


def read_lines(lines: FrameLines) -> Iterator[Command | Refused]:
    """The commands of a frame's lines, each read when it is asked for.

    Of a frame that is full of mistakes only the first are told, and the rest is not read: it costs
    its sender nothing to make, and everybody else the time in which it is refused.
    """
    refused = 0
    while (line := lines.next()) is not None:
        if not line or line.isspace():
            continue
        read = _read(line, lines)
        if isinstance(read, Refused):
            refused += 1
            if refused == REFUSED_MAX and lines.leave():
                read.error.detail += (
                    f"; {refused} lines of this frame were refused, and the rest was not read"
                )
        yield read


def _read(line: bytes, following: FrameLines) -> Command | Refused:
    """The command of a line, with the bodies that follow it, which are passed over."""
    try:
        header = _header(line)
        bodies: Sequence[bytes] = ()
        if header.n is not None:
            bodies = _following(header, following)
        elif header.d:
            bodies = (bytes(header.d),)
        command = _command(header, bodies)
    except SowError as error:
        cid, follow = _outline(line)
        if follow is None or follow > BODIES_MAX or not following.has(follow):
            # What follows may be bodies, and bodies are never commands.
            if following.leave():
                error.detail += "; the rest of the frame was not read"
        else:
            following.skip(follow)
        # Without its traceback, which would keep the line and all that was read of it.
        return Refused(cid, error.with_traceback(None))
    if header.n is not None:
        following.skip(len(bodies))
    return command


def _header(line: bytes) -> LineFields:
    try:
        header = HEADER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError(
            'a line must be a JSON object such as {"c":"sow","t":"orders"}: '
            f"{clipped(str(error))}"
        ) from None
    if len(line) - len(header.d) > SHORT_BYTES:
        _check_lengths(header)
    if header.c not in COMMANDS:
        raise ClientError(
            f"no command {shown(header.c)}{nearest(header.c, COMMANDS)}", reason="unknown command"
        )
    return header


def _check_lengths(header: LineFields) -> None:
    """Refuse fields that are longer than anything that they could mean."""
    for name, limit in LENGTHS.items():
        value = getattr(header, name)
        length = sum(len(text) + 1 for text in value) if isinstance(value, list) else 0
        if isinstance(value, str):
            length = len(value)
        if length > limit:
            raise TooLarge(f"{name} has {length} characters, and the limit is {limit}")


def _following(header: LineFields, lines: FrameLines) -> list[bytes]:
    count = header.n or 0
    if header.c not in FRAMED:
        raise ClientError(f"n says how many bodies follow; it belongs to {' and '.join(FRAMED)}")
    if header.d:
        raise ClientError("give d or n, not both")
    if count < 1:
        raise ClientError(f"n is {count}; it must be at least 1")
    if count > BODIES_MAX:
        raise TooLarge(
            f"n is {count}, and at most {BODIES_MAX} bodies may follow; send more frames"
        )
    bodies = lines.peek(count)
    if len(bodies) < count or (len(bodies) == count and bodies[-1] == b"" and count > 1):
        found = len([body for body in bodies if body])
        raise ClientError(f"n is {count}, but {found} bodies follow in this frame")
    return bodies


def _command(header: LineFields, bodies: Sequence[bytes]) -> Command:
    if header.user is not None or header.password is not None:
        raise NotAvailable("logging on with credentials is not available yet")
    options = parse_options(header.opts) if header.opts else Options()
    if header.select is not None:
        options.select = read_list(header.select)
    if header.top_n is not None:
        options.top_n = header.top_n
    if header.skip_n is not None:
        options.skip_n = header.skip_n
    for name in ("top_n", "skip_n"):
        if (getattr(options, name) or 0) < 0:
            raise ClientError(f"{name} is {getattr(options, name)}; it must not be negative")
    return Command(
        header.c,
        cid=_cid(header),
        topic=header.t,
        bodies=bodies,
        framed=header.n is not None,
        enc=_enc(header, bodies),
        key=header.k,
        filter=header.filter,
        options=options,
        order_by=header.order_by,
        bookmark=None if header.bm is None else str(header.bm),
        acks=_acks(header.a) if header.a else frozenset(),
        expires_s=header.x,
        subscription=header.s,
        keys=tuple(comma_list(header.keys)) if header.keys is not None else None,
        client=header.client,
        session=header.session,
        seen=header.seen,
    )


def _enc(header: LineFields, bodies: Sequence[bytes]) -> str | None:
    """How the bodies are written, as a client says; what suits the topic is not known here."""
    if header.enc is None:
        return None
    if header.enc != ENC:
        raise ClientError(f"enc is {shown(header.enc)}; write {ENC}, or leave it out")
    if header.c not in FRAMED or not bodies:
        raise ClientError(
            f"enc says how the bodies of {' and '.join(FRAMED)} are written, and here is none; "
            "leave it out"
        )
    return header.enc


def _cid(header: LineFields) -> str | None:
    return None if header.cid is None else str(header.cid)


class Outline(msgspec.Struct):
    """What has to be known of a line that is no good command."""

    cid: msgspec.Raw = NO_BODY
    n: msgspec.Raw = NO_BODY


OUTLINE = msgspec.json.Decoder(Outline)


def _outline(line: bytes) -> tuple[str | None, int | None]:
    """The cid, and how many bodies follow (None: not to be told), of a line that is refused."""
    try:
        found = OUTLINE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, None if b'"n"' in line else 0
    cid, n = _value(found.cid), _value(found.n)
    if n is None:
        follow: int | None = 0 if bytes(found.n) in (b"", b"null") else None
    else:
        follow = n if type(n) is int and n >= 0 else None
    known = isinstance(cid, int) or (isinstance(cid, str) and len(cid) <= LENGTHS["cid"])
    return str(cid) if known else None, follow


def _value(text: msgspec.Raw) -> Any:
    """The value of a JSON text, or None if it has none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _acks(asked: str | list[str]) -> frozenset[str]:
    return _known_acks(asked if isinstance(asked, str) else ",".join(asked))


@lru_cache(maxsize=64)
def _known_acks(asked: str) -> frozenset[str]:
    acks = frozenset(comma_list(asked))
    for ack in sorted(acks.difference(ACKS)):
        if ack in ACKS_LATER:
            raise NotAvailable(f"ack {ack} is not available yet")
        raise ClientError(f"no ack {shown(ack)}{nearest(ack, ACKS)}", reason="invalid options")
    return acks


def comma_list(text: str | list[str]) -> list[str]:
    """Members of a comma text, blanks trimmed, empty ones left out."""
    members = text.split(",") if isinstance(text, str) else text
    return [member.strip() for member in members if member.strip()]


def parse_options(text: str) -> Options:
    """Read `opts`: ``oof,top_n=10``. Raises ClientError or NotAvailable naming the option."""
    options = Options()
    for word in split_options(text):
        name, equals, value = word.partition("=")
        if name in OPTIONS_LATER:
            raise NotAvailable(f"option {name} is not available yet")
        if name not in OPTIONS:
            raise ClientError(
                f"no option {shown(name)}{nearest(name, OPTIONS)}", reason="invalid options"
            )
        if name in FLAGS:
            if equals:
                raise ClientError(f"option {name} takes no value", reason="invalid options")
            setattr(options, name, True)
        elif name in ("top_n", "skip_n"):
            setattr(options, name, _count(name, value))
        elif name in ("conflation_key", "select"):
            setattr(options, name, read_list(value))
            if name == "conflation_key" and len(options.conflation_key) > KEY_FIELDS_MAX:
                raise TooLarge(
                    f"{name} names {len(options.conflation_key)} fields, and {KEY_FIELDS_MAX} are "
                    "the most"
                )
        elif name == "conflation":
            options.conflation = parse_conflation(value)
        else:
            options.bookmark_not_found = _choice(name, value)
    return options


def parse_conflation(text: str) -> int | Literal["auto"] | None:
    """``1s``, ``auto`` or ``none``: an interval in microseconds, ``auto`` or None."""
    # Imported here: clients use this module too, and do not want the configuration's parsers.
    from sow.config.findings import MistakeError
    from sow.config.units import duration_us

    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    try:
        interval_us = duration_us(text)
    except MistakeError as mistake:
        raise ClientError(
            f"conflation={clipped(text)}: {mistake.message}; {mistake.instead}, auto or none",
            reason="invalid options",
        ) from None
    if interval_us < CONFLATION_US_MIN:
        raise ClientError(
            f"conflation={clipped(text)} is shorter than {CONFLATION_US_MIN // 1000}ms; write a "
            "longer interval, auto or none",
            reason="invalid options",
        )
    return interval_us


def _choice(name: str, value: str) -> Any:
    known = ("fail", "epoch", "now")
    if value not in known:
        raise ClientError(
            f"{name}={clipped(value)} is not known; write {' or '.join(known)}",
            reason="invalid options",
        )
    return value


def read_list(text: str) -> tuple[str, ...]:
    """Members of a comma text, which may stand in brackets; each knows its place in the text."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and inner.endswith("]"):
        inner, before = inner[1:-1], before + 1
    members = []
    for start, word in _split(inner):
        member = Member(word)
        member.position = before + start
        members.append(member)
    return tuple(members)


def split_options(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [word for _, word in _split(text)]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The words between commas outside brackets, each with the character that it begins at."""
    depth, start = 0, 0
    for at, character in enumerate(f"{text},"):
        depth += (character == "[") - (character == "]")
        if character == "," and (depth <= 0 or at == len(text)):
            if word := text[start:at].strip():
                yield text.index(word, start), word
            start = at + 1


def _count(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise ClientError(
            f"option {name}={shown(value)} must be a whole number such as {name}=10",
            reason="invalid options",
        )
    return int(value)


def nearest(word: str, known: Sequence[str]) -> str:
    """`; did you mean X?` when a known word is near, else the known words, or some of them."""
    close = difflib.get_close_matches(clipped(word), known, 1)
    if close:
        return f"; did you mean {close[0]}?"
    more = ", …" if len(known) > KNOWN_TOLD_MAX else ""
    return f"; known are {', '.join(known[:KNOWN_TOLD_MAX])}{more}"


def timestamp(ts_us: int) -> str:
    """ISO 8601 UTC with microseconds."""
    return datetime.fromtimestamp(ts_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + (
        f"{ts_us % 1_000_000:06d}Z"
    )


def quoted(texts: Sequence[str]) -> list[bytes]:
    """JSON strings."""
    return [orjson.dumps(text) for text in texts]


Frames = Iterator[tuple[bytes, int]]
"""Frames for a socket, each with the number of its lines; made when they are asked for."""


class Encoding(Protocol):
    """How one kind of connection carries lines."""

    name: str

    def reply(self, reply: Reply) -> bytes:
        """One line that is not a record."""
        ...

    def records(self, kind: str, lines: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """Rendered record lines of one kind, ready to be put into frames."""
        ...

    def frame(self, lines: Sequence[bytes]) -> bytes:
        """What is written to the socket for these lines."""
        ...


class LineEncoding:
    """Lines in WebSocket binary frames."""

    name = "lines"

    def reply(self, reply: Reply) -> bytes:
        """One line that is not a record."""
        return orjson.dumps(reply)

    def records(self, _kind: str, lines: Sequence[bytes], _seqs: Sequence[int]) -> list[bytes]:
        """Record lines as they are."""
        return list(lines)

    def frame(self, lines: Sequence[bytes]) -> bytes:
        """One unmasked WebSocket frame (RFC 6455 §5.2), final, binary."""
        payload = b"\n".join(lines)
        size = len(payload)
        if size < 126:
            head = bytes((0x82, size))
        elif size < 65536:
            head = b"\x82\x7e" + size.to_bytes(2, "big")
        else:
            head = b"\x82\x7f" + size.to_bytes(8, "big")
        return head + payload


def skip_lines(frame: bytes, count: int) -> bytes:
    """A frame of `LineEncoding` without its first `count` lines."""
    size = frame[1]
    payload = frame[2 if size < 126 else 4 if size == 126 else 10 :]
    return LINES.frame(payload.split(b"\n")[count:])


class EventEncoding:
    """Lines as server-sent events: the line's `c` is the event, its bookmark the id."""

    name = "events"

    def reply(self, reply: Reply) -> bytes:
        """One line that is not a record. Failures are events of type error."""
        event = "error" if reply.get("status") == "failure" else str(reply["c"])
        bookmark = f"id: {reply['bm']}\n" if "bm" in reply else ""
        return f"event: {event}\n{bookmark}data: ".encode() + orjson.dumps(reply) + b"\n\n"

    def records(self, kind: str, lines: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """Events of record lines. Only live ones move the client's Last-Event-ID."""
        if kind == "sow":
            return [b"event: sow\ndata: " + line + b"\n\n" for line in lines]
        head = f"event: {kind}\nid: ".encode()
        return [
            b"%b%d\ndata: %b\n\n" % (head, seq, line) for line, seq in zip(lines, seqs, strict=True)
        ]

    def frame(self, lines: Sequence[bytes]) -> bytes:
        """One chunk of an HTTP/1.1 chunked body (RFC 9112 §7.1)."""
        payload = b"".join(lines)
        return b"%x\r\n%b\r\n" % (len(payload), payload)


LINES = LineEncoding()
EVENTS = EventEncoding()


def record_lines(
    head: bytes,
    keys: Sequence[bytes] | None,
    bodies: Sequence[bytes],
    seqs: Sequence[int] | None,
    ts_us: Sequence[int] | None,
    delta: bool = False,
) -> list[bytes]:
    """Record lines from columns: `head` is the open object up to the key, values are JSON text.

    `delta` says that the bodies are to be merged into what the client has.
    """
    ks = [b""] * len(bodies) if keys is None else [b',"k":' + key for key in keys]
    mark = b',"delta":true' if delta else b""
    if seqs is None:
        tail = [mark + b"}"] * len(bodies)
    else:
        tail = [b'%b,"bm":"%d"}' % (mark, seq) for seq in seqs]
    if ts_us is not None:
        tail = [
            b',"ts":"%b"%b' % (timestamp(ts).encode(), end)
            for ts, end in zip(ts_us, tail, strict=True)
        ]
    join = b"".join
    return [
        join((head, key, b',"d":', body, end))
        for key, body, end in zip(ks, bodies, tail, strict=True)
    ]
