"""Splits a request's body into messages, a piece at a time.

A body may have 64 MiB and a message two bytes. So that the first bad message is found before later
ones are split, and other work runs meanwhile, a body is split into pieces of some hundred
kilobytes, or of one message if that is longer. A JSON array is split at commas between its
elements; their positions are guessed, and determined by counting where the guess was wrong.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from sow.errors import BadMessage, clipped

BODY_PIECE_BYTES = 256 * 1024
"""Split and read in about a millisecond, so that other work runs between two pieces."""
FRAMES_AT_ONCE = 5_000
"""Messages in frames that are split in one step, a millisecond or two: empty ones take four
bytes."""
LENGTH_BYTES = 4
"""Size of the length before each message of a request in frames (docs/http.md)."""
JSON_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TEXT = re.compile(rb"\S")
_BACKSLASHES = re.compile(rb"\\+.?", re.S)
# A comma between two elements of the same kind; there may be such commas within an element too.
_COMMAS = {
    b"{": re.compile(rb"\}\s*(,)\s*\{"),
    b'"': re.compile(rb'"\s*(,)\s*"'),
}
_ANY_COMMA = re.compile(rb"(,)")
QUOTE, COMMA = b'",'
# The change of the nesting depth at a character.
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"{[")] = 1  # one level in
_STEPS[list(b"}]")] = -1  # and out again


def line_pieces(body: bytes) -> Iterator[list[bytes]]:
    """The lines of a body that are not blank."""
    at = 0
    while at < len(body):
        end = body.find(b"\n", at + BODY_PIECE_BYTES) + 1 or len(body)
        piece = body[at:end]
        if not piece.isspace():
            lines = piece.replace(b"\r\n", b"\n").split(b"\n")
            yield [line for line in lines if line and not line.isspace()]
        at = end


def frame_pieces(body: bytes) -> Iterator[list[bytes]]:
    """Messages, each preceded by its length as 4 bytes, big-endian; raises BadMessage."""
    piece: list[bytes] = []
    count, begins, at = 0, 0, 0
    while at < len(body):
        start = at + LENGTH_BYTES
        end = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or end > len(body):
            raise BadMessage(
                f"the length at byte {at} reaches beyond the {len(body)} bytes of the request",
                index=count,
            )
        piece.append(body[start:end])
        count, at = count + 1, end
        if at - begins >= BODY_PIECE_BYTES or len(piece) == FRAMES_AT_ONCE:
            yield piece
            piece, begins = [], at
    yield piece


def frames_of(chunks: Iterable[Sequence[bytes]]) -> Iterator[bytes]:
    """The inverse: chunks of messages, each message preceded by its length."""
    for chunk in chunks:
        yield b"".join([len(body).to_bytes(LENGTH_BYTES, "big") + body for body in chunk])


def documents_of(chunks: Iterable[list[bytes]], lines: bool) -> Iterator[bytes]:
    """Chunks of JSON texts as one array, or as lines."""
    # Each row is copied once, however long it is.
    if lines:
        for chunk in chunks:
            yield b"\n".join([*chunk, b""])
        return
    before = b"["
    for chunk in chunks:
        yield before
        yield b",".join(chunk)
        before = b","
    yield b"[]" if before == b"[" else b"]"


def array_pieces(text: bytes) -> Iterator[list[bytes]]:
    """The elements of a JSON array, as JSON texts; raises BadMessage if it is not one."""
    end, at, count = len(text) - 1, 1, 0
    if text[end:] != b"]" or end == 0:
        raise _no_array("it has no end", 0)
    while True:
        cut = _guessed_border(text, at, end)
        found = _elements(text, at, cut)
        if found is None and cut < end:
            cut = _counted_border(text, at, end)
            found = _elements(text, at, cut)
        if found is None or (not found and (at > 1 or cut < end)):
            raise _no_array(_mistake(text[at:cut]), count)
        yield found
        if cut == end:
            return
        count, at = count + len(found), cut + 1


def _elements(text: bytes, start: int, stop: int) -> list[bytes] | None:
    """The elements between two positions; None if there is anything else."""
    try:
        values = msgspec.json.decode(b"[%b]" % text[start:stop], type=list[msgspec.Raw])
    except JSON_FAILURES:
        return None
    return [bytes(value) for value in values]


def _mistake(piece: bytes) -> str:
    try:
        msgspec.json.decode(b"[%b]" % piece, type=list[msgspec.Raw])
    except JSON_FAILURES as error:
        return clipped(str(error))
    return "an element is missing"


def _no_array(why: str, index: int) -> BadMessage:
    return BadMessage(f"the request is not a JSON array: {why}", index=index)


def _guessed_border(text: bytes, start: int, end: int) -> int:
    """A likely end of the piece that begins at `start`: a comma as it stands between elements."""
    if end - start <= BODY_PIECE_BYTES:
        return end
    first = _TEXT.search(text, start)
    kind = first[0] if first else b""
    found = _COMMAS.get(kind, _ANY_COMMA).search(text, start + BODY_PIECE_BYTES, end)
    return found.start(1) if found else end


def _counted_border(text: bytes, start: int, end: int) -> int:
    """The exact end of such a piece: the first comma beyond its size that is not within an
    element."""
    depth, inside, at = 0, 0, start
    while at < end:
        stop = min(at + BODY_PIECE_BYTES, end)
        if text[stop - 1 : stop] == b"\\" and (run := _BACKSLASHES.match(text, stop - 1, end)):
            stop = run.end()
        # Mask escaped quotes, keeping all positions.
        window = text[at:stop].replace(rb"\\", b"__").replace(rb"\"", b"__")
        codes = np.frombuffer(window, np.uint8)
        in_text = (np.cumsum(codes == QUOTE) + inside) & 1
        depths = np.cumsum(np.where(in_text, 0, _STEPS[codes])) + depth
        borders = np.flatnonzero((codes == COMMA) & (in_text == 0) & (depths == 0))
        borders = borders[borders >= start + BODY_PIECE_BYTES - at]
        if len(borders):
            return at + int(borders[0])
        depth, inside, at = int(depths[-1]), int(in_text[-1]), stop
    return end
