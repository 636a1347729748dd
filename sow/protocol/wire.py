"""How commands come in: JSON lines in frames.

A frame from a client is one or more lines. Each line is a JSON object; a publish (or a delete
by bodies) with ``"n"`` is followed by that many bodies, one a line, byte for byte. A line
that cannot be understood becomes a `Refused`, so that one bad line never costs its neighbours.

A frame may have 64 MiB and a line two bytes: all its lines at once would take fifteen times the
frame. So a frame is cut a piece at a time (`LineSplitter`), by one fast split a piece; one that is
no longer than a piece, as nearly all are, is cut at once.

`sow.protocol.commands` lists the commands and their fields, and parses options. The execution of
commands is not known here, nor is the encoding of answers (`sow.protocol.replies`).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from sow.core.comma_lists import comma_list
from sow.core.humanize import did_you_mean
from sow.errors import (
    ClientError,
    NotAvailable,
    SowError,
    TooLarge,
    clipped,
    invalid_options,
    shown,
)
from sow.protocol.commands import (
    ACKS,
    ACKS_LATER,
    COMMANDS,
    OPTIONS,
    Command,
    Options,
    read_options,
    read_value,
)

FRAME_PIECE_BYTES = 64 * 1024
"""What is cut of a large frame in one go. A frame of nothing but line breaks becomes no more lines
than this at a time."""
_NOT_BLANK = re.compile(rb"\S")


class LineSplitter:
    """The lines of `frame`, each once, in order; they are what ``frame.split(b"\\n")`` gives."""

    __slots__ = ("_at", "_frame", "_lines", "_next")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._next = 0
        short = len(frame) <= FRAME_PIECE_BYTES
        self._lines: list[bytes] = frame.split(b"\n") if short else []
        self._at: int | None = None if short else 0
        """Where the next piece begins; None: all is cut."""

    @property
    def cut_bytes(self) -> int:
        """How much of the frame has been cut into lines."""
        return len(self._frame) if self._at is None else self._at

    @property
    def is_cut(self) -> bool:
        """All of the frame has been cut into lines."""
        return self._at is None

    def next(self) -> bytes | None:
        """The next line, or None at the end."""
        at = self._next
        if at == len(self._lines):
            self._pass_blanks()
            if self._at is None:
                return None
            self._cut()
            at = 0
        self._next = at + 1
        return self._lines[at]

    def cut_towards(self, count: int) -> bool:
        """Cut one piece more where so many lines are left, or may be; False if that needs none."""
        if len(self._lines) - self._next >= count or self._at is None:
            return False
        self._cut()
        return True

    def has(self, count: int) -> bool:
        """Whether so many lines are left."""
        while self.cut_towards(count):
            pass
        return len(self._lines) - self._next >= count

    def peek(self, count: int) -> list[bytes]:
        """The next so many lines, or what is left of them; they stay the next ones."""
        self.has(count)
        return self._lines[self._next : self._next + count]

    def skip(self, count: int) -> None:
        """Pass over so many lines, which are there."""
        self._next += count

    def leave(self) -> bool:
        """End here; whether there was anything left but blanks."""
        left = self._lines[self._next :]
        begins, self._at = self._at, None
        self._lines, self._next = [], 0
        if any(line and not line.isspace() for line in left):
            return True
        return begins is not None and _NOT_BLANK.search(self._frame, begins) is not None

    def _pass_blanks(self) -> None:
        """Pass over pieces in which there is nothing, which would be many lines."""
        while self._at and self._frame[self._at : self._at + FRAME_PIECE_BYTES].isspace():
            at = self._at + FRAME_PIECE_BYTES
            self._at = at if at < len(self._frame) else None

    def _cut(self) -> None:
        assert self._at is not None
        end = self._frame.find(b"\n", self._at + FRAME_PIECE_BYTES)
        piece = self._frame[self._at :] if end < 0 else self._frame[self._at : end]
        self._at = None if end < 0 else end + 1
        if self._next == len(self._lines):
            self._lines = piece.split(b"\n")
        else:
            del self._lines[: self._next]
            self._lines += piece.split(b"\n")
        self._next = 0


FRAMED = tuple(name for name, kind in COMMANDS.items() if kind.takes_bodies)
STALE_OK = "ok"
"""What `stale` says: the answer may be out of date."""
ENC = "base64"
"""How bodies of byte types travel in lines, in both directions."""
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
    "user": 255,
    "password": 1024,
    "as": 255,
    "token": 16 * 1024,
    "enc": 255,
    "stale": 255,
    "t": 1024,
    "bm": 8 * 1024,
    "as_of": 255,
    "min_bookmark": 255,
    "order_by": 8 * 1024,
    "select": 64 * 1024,
    "projection": 64 * 1024,
    "grouping": 64 * 1024,
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
NO_LINES = LineSplitter(b"")
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
    projection: str | None = None
    grouping: str | None = None
    bm: str | int | list[str] | None = None
    as_of: str | int | None = None
    min_bookmark: str | int | None = None
    wait: float | int | None = None
    stale: str | None = None
    a: str | list[str] = ""
    x: float | int | None = None
    s: str | None = None
    seq: int | None = None
    client: str | None = None
    sequence: bool = False
    session: str | None = None
    seen: int | None = None
    user: str | None = None
    password: str | None = None
    token: str | None = None
    acts_as: str | None = msgspec.field(default=None, name="as")


HEADER = msgspec.json.Decoder(LineFields)
HEADER_FIELDS = frozenset(LineFields.__struct_encode_fields__)


def read_frame(frame: bytes) -> Iterable[Command | Refused]:
    """The commands of one frame, in order."""
    if b"\n" not in frame and frame.strip():
        return [_read(frame, NO_LINES)]
    return (read for read in read_lines(LineSplitter(frame)) if read is not None)


def read_lines(lines: LineSplitter) -> Iterator[Command | Refused | None]:
    """The commands of a frame's lines, each parsed when the iterator reaches it.

    None while the bodies that follow one are being cut, a piece of the frame at a time.

    For a frame full of mistakes only the first errors are reported and the rest is not parsed: such
    a frame costs its sender nothing, and all other clients the time of its errors.
    """
    refused = 0
    while (line := lines.next()) is not None:
        if not line or line.isspace():
            continue
        if not lines.is_cut and b'"n"' in line:
            count = _bodies_after(line)
            while lines.cut_towards(count):
                yield None
        read = _read(line, lines)
        if isinstance(read, Refused):
            refused += 1
            if refused == REFUSED_MAX and lines.leave():
                read.error.detail += (
                    f"; {refused} lines of this frame were refused, and the rest was not read"
                )
        yield read


def _bodies_after(line: bytes) -> int:
    """How many bodies follow a line of a frame that is not cut yet, if it may have so many."""
    return bodies_of(line) or 0


def bodies_of(line: bytes) -> int | None:
    """How many bodies follow a line; None: nobody knows, and what follows it is not read."""
    follow = _outline(line)[1]
    return follow if follow is not None and follow <= BODIES_MAX else None


def _read(line: bytes, following: LineSplitter) -> Command | Refused:
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
    except RecursionError:
        raise TooLarge("a line nests too deeply; send a message of fewer levels") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ClientError(
            'a line must be a JSON object such as {"c":"sow","t":"orders"}: '
            f"{clipped(str(error))}"
        ) from None
    if len(line) - len(header.d) > SHORT_BYTES:
        _check_lengths(header)
    if header.c not in COMMANDS:
        raise ClientError(
            f"no command {shown(header.c)}{did_you_mean(header.c, COMMANDS)}",
            reason="unknown command",
        )
    return header


def _check_lengths(header: LineFields) -> None:
    """Refuse fields that are longer than anything that they could mean."""
    for name, limit in LENGTHS.items():
        value = getattr(header, "acts_as" if name == "as" else name)
        length = sum(len(text) + 1 for text in value) if isinstance(value, list) else 0
        if isinstance(value, str):
            length = len(value)
        if length > limit:
            raise TooLarge(f"{name} has {length} characters, and the limit is {limit}")


def _following(header: LineFields, lines: LineSplitter) -> list[bytes]:
    count = header.n or 0
    if header.c not in FRAMED:
        raise ClientError(
            f"n is the number of bodies that follow; it belongs to {' and '.join(FRAMED)}"
        )
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
    options = read_options(header.opts) if header.opts else Options()
    if options.pause or options.resume or options.rate is not None:
        _check_of_replays(header, options)
    for name in ("select", "projection", "grouping"):
        if (text := getattr(header, name)) is not None:
            setattr(options, name, read_value(OPTIONS[name], text))
    if header.as_of is not None:
        options.as_of = str(read_value(OPTIONS["as_of"], str(header.as_of)))
    if header.min_bookmark is not None and "min_bookmark" not in COMMANDS[header.c].fields:
        raise ClientError(
            f"{header.c} does not wait for a min_bookmark: only sow does; leave it out"
        )
    if header.stale is not None:
        _check_stale(header)
    for name in ("top_n", "skip_n"):
        if (count := getattr(header, name)) is not None:
            if count < 0:
                raise ClientError(f"{name} is {count}; it must not be negative")
            setattr(options, name, count)
    return Command(
        header.c,
        cid=None if header.cid is None else str(header.cid),
        topic=header.t,
        bodies=bodies,
        framed=header.n is not None,
        enc=_enc(header, bodies),
        key=header.k,
        filter=header.filter,
        options=options,
        order_by=header.order_by,
        bookmark=None if header.bm is None else _bookmark(header.bm),
        acks=read_acks(header.a) if header.a else frozenset(),
        expires_s=header.x,
        subscription=header.s,
        keys=tuple(comma_list(header.keys)) if header.keys is not None else None,
        min_bookmark=None if header.min_bookmark is None else str(header.min_bookmark),
        wait_s=header.wait,
        stale=header.stale,
        seq=header.seq,
        client=header.client,
        sequence=header.sequence,
        session=header.session,
        seen=header.seen,
        user=header.user,
        password=header.password,
        token=header.token,
        acts_as=header.acts_as,
    )


def _check_of_replays(header: LineFields, options: Options) -> None:
    """Raise ClientError where options of replays have no replay that they could be about."""
    name = "pause" if options.pause else "resume" if options.resume else "rate"
    if header.c not in ("subscribe", "delta_subscribe"):
        raise invalid_options(
            f"{name} is about the replay of a bookmark; give it to subscribe, and leave it out here"
        )
    if options.rate == 0:
        raise invalid_options("rate=0 sends nothing; write at least rate=1, or pause")
    if options.resume or (options.pause and header.s is not None):
        if not header.s:
            raise invalid_options(f"{name} needs s: the subscriptions, with commas between them")
        others = (header.t, header.bm, header.filter, header.select)
        alone = Options(pause=not options.resume, resume=options.resume)
        if any(other is not None and other != "" for other in others) or options != alone:
            raise invalid_options(
                f"{name} takes s, the subscriptions, and nothing beside; to change them as well, "
                "unsubscribe and subscribe with bm"
            )


def _check_stale(header: LineFields) -> None:
    if header.stale != STALE_OK:
        raise ClientError(
            f"stale is {shown(header.stale or '')}; write {STALE_OK}, or leave it out"
        )
    if "stale" not in COMMANDS[header.c].fields:
        raise ClientError(f"{header.c} reads nothing that may be stale; leave stale out")


def _bookmark(given: str | int | list[str]) -> str:
    """A bookmark, or several with commas between them."""
    return ",".join(given) if isinstance(given, list) else str(given)


def _enc(header: LineFields, bodies: Sequence[bytes]) -> str | None:
    """The encoding of the bodies, as named by the client; the topic's own is not known here."""
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


class Outline(msgspec.Struct):
    """What has to be known of a line that is no good command."""

    cid: msgspec.Raw = NO_BODY
    n: msgspec.Raw = NO_BODY


OUTLINE = msgspec.json.Decoder(Outline)


def _outline(line: bytes) -> tuple[str | None, int | None]:
    """The cid of an invalid line, and how many bodies follow it (None: unknown)."""
    try:
        found = OUTLINE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, None if b'"n"' in line else 0
    cid, n = _value(found.cid), _value(found.n)
    if n is None:
        follow: int | None = 0 if bytes(found.n) in (b"", b"null") else None
    else:
        follow = n if type(n) is int and n >= 0 else None
    known = type(cid) is int or (isinstance(cid, str) and len(cid) <= LENGTHS["cid"])
    return str(cid) if known else None, follow


def _value(text: msgspec.Raw) -> Any:
    """The value of a JSON text, or None if it has none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def read_acks(requested: str | list[str]) -> frozenset[str]:
    """The kinds of acks that a client requests; raises ClientError."""
    return _known_acks(requested if isinstance(requested, str) else ",".join(requested))


@lru_cache(maxsize=64)
def _known_acks(requested: str) -> frozenset[str]:
    acks = frozenset(comma_list(requested))
    for ack in sorted(acks.difference(ACKS)):
        if ack in ACKS_LATER:
            raise NotAvailable(f"ack {ack} is not available yet")
        raise invalid_options(f"no ack {shown(ack)}{did_you_mean(ack, ACKS)}")
    return acks
