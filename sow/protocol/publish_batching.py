"""Publishes that came one after the other, read and carried out as one batch.

Most lines are plain publishes to one topic, often in frames of one. They are decoded together in
one call, by a parser for nothing else, into columns instead of a `Command` each. Anything that this
parser does not accept is parsed line by line by `sow.protocol.wire`, which also reports errors; so
nothing is rejected here. Publishes with numbers (`seq`) are decoded by a second parser of the same
kind, so that the others pay for one search in the head of a frame.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, groupby, islice
from typing import Annotated, Literal

import msgspec

from sow.protocol.commands import ACKS, Command, acks_of
from sow.protocol.wire import LENGTHS, NO_BODY, Refused, read_frame

BEGINNING = b'{"c":"publish"'
"""How a line begins that is worth a try: as every client of ours writes it."""
LONG_BYTES_MIN = 4 * 1024
"""A line this long is cut in two before it is read: its body takes more time than all the rest."""
HEAD_BYTES_MAX = 2 * 1024
"""Up to here the body of a long line begins, if it is worth to cut it."""
SEQ_FIELD = b'"seq":'
SEQ_BYTES_MAX = 256
"""Where a line is numbered, its `seq` begins before here, as our clients write it."""
HIGHEST_SEQ = 2**63 - 1
"""The highest number of a message."""
BODY, NOTHING, BLANKS = b'"d":', b'"d":null}', b" \t\r"
Cid = Annotated[str, msgspec.Meta(max_length=LENGTHS["cid"])] | int | None
Requested = tuple[str | None, tuple[str, ...]]
"""The acks that a publish requests: its cid, and their kinds."""


class PublishLine(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that the line of a plain publish may carry."""

    c: Literal["publish"]
    t: Annotated[str, msgspec.Meta(max_length=LENGTHS["t"])]
    d: msgspec.Raw = NO_BODY
    n: int | None = None
    cid: Cid = None
    a: Annotated[str, msgspec.Meta(max_length=LENGTHS["a"])] = ""


class NumberedLine(PublishLine, forbid_unknown_fields=True):
    """The same for a publish whose messages are numbered from `seq` on."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=HIGHEST_SEQ)] = 0


_DECODER = msgspec.json.Decoder(PublishLine)
_NUMBERED = msgspec.json.Decoder(NumberedLine)
NOT_PLAIN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""How the decoder rejects a line that is not a plain publish."""


@dataclass(slots=True)
class PublishBatch:
    """Plain publishes to `topic`, in order.

    `bodies` are those of all publishes, `ends` the number of bodies up to the end of each, and
    `acks` what each requests. `framed` and `enc` (`sow.protocol.commands`) hold for all bodies.
    `singly` gives the same as single commands, for a batch that fails as a whole. `seqs` has the
    number of the first message of each, if they are numbered.
    """

    topic: str
    framed: bool
    enc: str | None
    bodies: Sequence[bytes]
    ends: Sequence[int]
    acks: Sequence[Requested]
    singly: Callable[[], Iterable[Command | Refused]]
    seqs: Sequence[int] | None = None

    def follows(self, highest: int) -> bool:
        """Whether its numbers follow the number `highest` without a gap."""
        if self.seqs is None:
            return False
        firsts = [highest + 1 + end for end in self.ends[:-1]]
        return self.seqs == [highest + 1, *firsts] and highest + self.ends[-1] <= HIGHEST_SEQ

    def parts(self, count_max: int) -> Iterable["PublishBatch"]:
        """The same in order, in parts of no more than so many messages, or of one publish."""
        return (self,) if len(self.bodies) <= count_max else self._parts(count_max)

    def _parts(self, count_max: int) -> Iterator["PublishBatch"]:
        first = before = 0
        for at, end in enumerate(self.ends):
            if end - before > count_max and at > first:
                yield self._part(first, at)
                first, before = at, self.ends[at - 1]
        yield self._part(first, len(self.ends)) if first else self

    def _part(self, first: int, stop: int) -> "PublishBatch":
        before = self.ends[first - 1] if first else 0
        return PublishBatch(
            self.topic,
            self.framed,
            self.enc,
            self.bodies[before : self.ends[stop - 1]],
            [end - before for end in self.ends[first:stop]],
            self.acks[first:stop],
            lambda: islice(self.singly(), first, stop),
            None if self.seqs is None else self.seqs[first:stop],
        )

    def requested(self, before: int) -> list[tuple[str, str | None, int]]:
        """Each requested ack: its kind, its cid, and the bookmark of the publish, where `before` is
        the bookmark of the change before the batch."""
        return [
            (kind, cid, before + end)
            for end, (cid, kinds) in zip(self.ends, self.acks, strict=True)
            for kind in kinds
        ]


Read = Command | Refused | PublishBatch
"""What the frames of a client hold."""


def read_frames(frames: Sequence[bytes]) -> list[Read]:
    """The commands of short frames in order, with plain publishes put together."""
    if len(frames) == 1 and (publish := _publish(frames[0])) is not None:
        return [publish]
    read: list[Read] = []
    for plain, run in groupby(frames, lambda frame: frame.startswith(BEGINNING)):
        together = list(run)
        publishes = _publishes(together) if plain else None
        read += _singly(together) if publishes is None else publishes
    return read


def _singly(frames: Iterable[bytes]) -> Iterator[Command | Refused]:
    return (command for frame in frames for command in read_frame(frame))


def _publish(frame: bytes) -> PublishBatch | None:
    """A frame that is one plain publish, as sent by a client that waits for each ack: without the
    overhead of a batch. None for any other frame, and for a long line, which may be cut."""
    if not frame.startswith(BEGINNING):
        return None
    part = frame.split(b"\n") if b"\n" in frame else [frame]
    if len(part[0]) >= LONG_BYTES_MIN:
        return None
    numbered = _numbered_line(part[0]) if frame.find(SEQ_FIELD, 0, SEQ_BYTES_MAX) >= 0 else None
    try:
        line = numbered or _DECODER.decode(part[0])
    except NOT_PLAIN:
        return None
    requested = _requested(line.cid, line.a)
    if requested is None or not _is_whole(line, part):
        return None
    bodies = part[1:] or [bytes(line.d)]
    singly = partial(_singly, (frame,))
    seqs = None if numbered is None else [numbered.seq]
    return PublishBatch(
        line.t, line.n is not None, None, bodies, [len(bodies)], [requested], singly, seqs
    )


def _publishes(frames: Sequence[bytes]) -> list[PublishBatch] | None:
    """The batch of frames that are one plain publish each; None if one of them is not."""
    # To look for a line break is ten times as fast as to split where there is none.
    parts = [frame.split(b"\n") if b"\n" in frame else [frame] for frame in frames]
    cut = _cut(parts) if max(map(len, frames)) >= LONG_BYTES_MIN else {}
    text = b"\n".join([part[0] for part in parts])
    numbered = _numbered_lines(text) if text.find(SEQ_FIELD, 0, SEQ_BYTES_MAX) >= 0 else None
    try:
        lines = numbered or _DECODER.decode_lines(text)
    except NOT_PLAIN:
        return None
    acks = [acks for line in lines if (acks := _requested(line.cid, line.a)) is not None]
    if not len(acks) == len(lines) == len(parts) or not all(map(_is_whole, lines, parts)):
        return None
    found: list[PublishBatch] = []
    start = 0
    texts = [bytes(line.d) for line in lines]
    for at, text in cut.items():
        texts[at] = text
    for (topic, framed), run in groupby([(line.t, line.n is not None) for line in lines]):
        here = slice(start, start := start + len(list(run)))
        singly = partial(_singly, frames[here])
        seqs = None if numbered is None else [line.seq for line in numbered[here]]
        if framed:
            bodies = [part[1:] for part in parts[here]]
            found.append(_columns(topic, True, None, bodies, acks[here], singly, seqs))
        else:
            ends = list(range(1, here.stop - here.start + 1))
            batch = PublishBatch(topic, False, None, texts[here], ends, acks[here], singly, seqs)
            found.append(batch)
    return found


def _numbered_line(text: bytes) -> NumberedLine | None:
    """The numbered line that a text is, if it is one."""
    try:
        line = _NUMBERED.decode(text)
    except NOT_PLAIN:
        return None
    return line if line.seq else None


def _numbered_lines(text: bytes) -> list[NumberedLine] | None:
    """The numbered lines of a text; None if one of them is anything else."""
    try:
        lines = _NUMBERED.decode_lines(text)
    except NOT_PLAIN:
        return None
    return lines if all(line.seq for line in lines) else None


def _cut(parts: Sequence[list[bytes]]) -> dict[int, bytes]:
    """Cut the bodies off the long lines that end with one, since a body is parsed only as a
    message; `parts` then holds the lines without them. Returns the bodies by position."""
    bodies: dict[int, bytes] = {}
    for at, part in enumerate(parts):
        line = part[0]
        begins = line.find(BODY, 0, HEAD_BYTES_MAX)
        if len(part) > 1 or len(line) < LONG_BYTES_MIN or begins < 0 or not line.endswith(b"}}"):
            continue
        head = line[:begins] + NOTHING
        with suppress(*NOT_PLAIN):
            # If that is a line, the d is in no string and not nested. Should more than the body
            # follow, it is no message, and the publish is parsed again from the original.
            _NUMBERED.decode(head)
            bodies[at] = line[begins + len(BODY) : -1].strip(BLANKS)
            part[0] = head
    return bodies


def _is_whole(line: PublishLine, part: Sequence[bytes]) -> bool:
    """Whether a frame is a line with its body, or with all its bodies behind it, and no more.

    Where each line begins with { and ends with }, none of their values can span two of them.
    """
    if line.n is None:
        bodies = len(part) == 1 and bool(line.d)
    else:
        bodies = line.n == len(part) - 1 > 0 and not line.d and bool(part[-1])
    return bodies and part[0].endswith(b"}")


def _requested(cid: str | int | None, a: str) -> Requested | None:
    """The acks of a line; None if it names one that there is not."""
    kinds = _kinds(a, cid is not None)
    return None if kinds is None else (None if cid is None else str(cid), kinds)


@lru_cache(maxsize=64)
def _kinds(a: str, has_cid: bool) -> tuple[str, ...] | None:
    kinds = {kind.strip() for kind in a.split(",")} if a else set()
    return acks_of(kinds, has_cid) if kinds.issubset(ACKS) else None


def coalesce(reads: Sequence[Read]) -> Iterable[Read]:
    """The same in order, with plain publishes to one topic that follow each other put together."""
    return _put_together(reads) if len(reads) > 1 else reads


def _put_together(reads: Iterable[Read]) -> Iterator[Read]:
    for alike, run in groupby(reads, _alike):
        if alike is None:
            yield from run
            continue
        first, *others = run
        if not others:
            yield first
            continue
        commands = [command for command in (first, *others) if isinstance(command, Command)]
        bodies = [command.bodies for command in commands]
        topic, framed, enc, is_numbered = alike
        seqs = [command.seq or 0 for command in commands] if is_numbered else None
        acks = [
            (command.cid, acks_of(command.acks, command.cid is not None)) for command in commands
        ]
        yield _columns(topic, framed, enc, bodies, acks, partial(iter, commands), seqs)


def _alike(read: Read) -> tuple[str, bool, str | None, bool] | None:
    """What publishes have in common that are put together; None for anything else."""
    if not isinstance(read, Command) or read.name != "publish" or not read.bodies:
        return None
    plain = read.key is None and read.expires_s is None
    return (read.topic, read.framed, read.enc, read.seq is not None) if plain else None


def _columns(
    topic: str,
    framed: bool,
    enc: str | None,
    bodies: Sequence[Sequence[bytes]],
    acks: Sequence[Requested],
    singly: Callable[[], Iterable[Command | Refused]],
    seqs: Sequence[int] | None,
) -> PublishBatch:
    ends = list(accumulate(map(len, bodies)))
    together = list(chain.from_iterable(bodies))
    return PublishBatch(topic, framed, enc, together, ends, acks, singly, seqs)
