"""The messages in the body of a POST, PATCH or DELETE (docs/http.md), and messages as a body.

A body may have 64 MiB and a message two bytes, so messages are processed some at a time, with other
work in between: the first bad message ends the request before later ones are split, and nothing has
been changed by then. A piece is some hundred kilobytes, or one message if that is longer. A JSON
array is split at commas between its elements; their positions are guessed, and determined by
counting where the guess was wrong.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.message import Message
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
import numpy as np
from aiohttp import hdrs, web

from sow.core.cooperative import Task
from sow.core.media_types import BSON, BYTES, CSV, FRAMES, JSON, MSGPACK, NDJSON, PLAIN_TEXT, XML
from sow.engine.bulk_publish import slices
from sow.engine.engine import Engine
from sow.engine.running_topics import LIFETIME_S_MAX, SourceTopic
from sow.errors import BadMessage, ClientError, TooLarge, clipped, shown
from sow.history.bookmarks import moment_us
from sow.messages import line_bodies
from sow.messages.csv_rows import CsvReader
from sow.messages.separated import records_of
from sow.protocol.wire import BODIES_MAX
from sow.server.http.body_reading import read_body
from sow.server.http.negotiation import UnsupportedMediaType, as_utf8, charset_of
from sow.topic.records import CheckedMessages, Records

JSON_TYPES = (JSON, "text/json")
ALIASES = {
    "text/xml": XML,
    "application/msgpack": MSGPACK,
    "application/x-msgpack": MSGPACK,
    "application/x-bson": BSON,
}
"""Other names of these formats."""
OWN_TYPES = (XML, BSON, MSGPACK)
"""Formats of a single message type, in which a body is one message."""
MESSAGE_FORMATS = (JSON, NDJSON, CSV, PLAIN_TEXT, *OWN_TYPES, BYTES, FRAMES)
"""Formats of messages; `OWN_TYPES` only on topics of that type."""
LINE_TYPES = (NDJSON, "application/jsonl", PLAIN_TEXT)
TEXT_TYPES = (*LINE_TYPES, CSV, *JSON_TYPES)
"""Text formats, which may be in another charset."""


async def read_messages(topic: Records, request: web.Request) -> bytes:
    """Read a body of messages in a format that `topic` accepts, within the server's limits. Raises
    UnsupportedMediaType before any of it is read, and what `Requests.read` raises."""
    if request.body_exists:
        form_of_body(topic, request)
    return await read_body(request)


def take_messages(
    topic: Records,
    request: web.Request,
    body: bytes,
    take: Callable[[Sequence[bytes]], None],
    size_max: int,
    in_rows: bool = False,
) -> Task[int]:
    """Pass the messages in a request's body to `take`, some in each step; returns their number.
    `size_max` bounds the messages that short rows of a table may expand to. `in_rows`: pass JSON
    texts of rows (`MessageRow`).

    Raises BadMessage with the index of the first bad one, and what `take` raises.
    """
    count = 0
    pieces = _row_pieces if in_rows else _pieces
    for piece in pieces(topic, request, body, size_max):
        if count + len(piece) > BODIES_MAX:
            raise TooLarge(f"the request holds more than {BODIES_MAX} messages; send several")
        for part in slices(piece):
            try:
                take(part)
            except BadMessage as error:
                raise error.moved(count) from None
            count += len(part)
            yield
    if not count:
        raise BadMessage("the request holds no message")
    return count


class MessageRow(msgspec.Struct):
    """A message as a query with `meta` shows it: the body, with its key, and when it expires."""

    d: msgspec.Raw
    k: str | None = None
    expires: str | msgspec.UnsetType | None = msgspec.UNSET


ROW_DECODER = msgspec.json.Decoder(MessageRow)


class Reading:
    """Messages of one publish as they are read for `topic`, within the limits of `engine`.

    `key` names the record of the only message, for a topic without keys; None: the bodies have
    keys. `now_us` returns the time of arrival, `author` is who sends them. `in_rows`: they are
    rows, and those that do not say when they expire have the lifetime `expires_s`.
    """

    def __init__(
        self,
        engine: Engine,
        topic: SourceTopic,
        key: str | None,
        now_us: Callable[[], int],
        author: str = "",
        in_rows: bool = False,
        expires_s: float | None = None,
    ) -> None:
        self._engine = engine
        self._in_rows, self._expires_s = in_rows, expires_s
        self._author = author
        self._now_us = now_us
        self._topic = topic
        self._keys = None if key is None else (key,)
        self.messages: list[CheckedMessages] = []
        """The messages, in slices."""

    def take(self, bodies: Sequence[bytes]) -> None:
        """Read some more messages; raises BadMessage."""
        if self._in_rows:
            self._take_rows(bodies)
            return
        if self._keys is not None and self.messages and bodies:
            bodies = [*self.messages.pop().bodies, *bodies]  # which raises: two bodies for one key
        if bodies:
            now_us, author = self._now_us(), self._author
            self.messages.append(
                self._engine.read(self._topic, bodies, self._keys, now_us=now_us, author=author)
            )

    def _take_rows(self, texts: Sequence[bytes]) -> None:
        """Read messages with their keys, where the topic has none, and when they expire."""
        rows, topic, now_us = list(map(_row, range(len(texts)), texts)), self._topic, self._now_us()
        bodies = line_bodies(topic.records.message_type, [bytes(row.d) for row in rows])
        keys = None if topic.records.keys else [row.k or "" for row in rows]
        messages = self._engine.read(topic, bodies, keys, now_us=now_us, author=self._author)
        if any(row.expires is not msgspec.UNSET for row in rows):
            other_us = topic.expiry_us(self._expires_s, now_us)
            expires_us = [_expiry_us(at, row, other_us, now_us) for at, row in enumerate(rows)]
            if any(expires_us):
                topic.check_expires()
            messages = messages._replace(expires_us=expires_us)
        self.messages.append(messages)

    def take_from(self, bodies: Sequence[bytes], first: int) -> Task[None]:
        """Read the messages of a request from number `first` on, some in each step; raises
        BadMessage."""
        count = first
        for part in slices(bodies[first:]):
            try:
                self.take(part)
            except BadMessage as error:
                raise error.moved(count) from None
            count += len(part)
            yield


def _row(index: int, text: bytes) -> MessageRow:
    try:
        return ROW_DECODER.decode(text)
    except JSON_FAILURES as error:
        raise BadMessage(
            f"it is not a row as a query with meta=true shows it: {clipped(str(error))}; write "
            'such as {"d":{"id":1},"expires":"2026-11-21T09:30:00Z"}',
            index=index,
        ) from None


def _expiry_us(index: int, row: MessageRow, other_us: int, now_us: int) -> int:
    """When a row says that its record expires, 0 for never; `other_us` if it does not say so."""
    if isinstance(row.expires, msgspec.UnsetType):
        return other_us
    if row.expires is None:
        return 0
    time_us = moment_us(row.expires)
    if time_us is None or not 0 < time_us <= now_us + LIFETIME_S_MAX * 1e6:
        raise BadMessage(
            f"expires is {shown(row.expires)}; it must be a time such as 2026-11-21T09:30:00Z, at "
            "most 1e9 seconds from now, or null: never",
            index=index,
        )
    return time_us


class IdempotencyKey(NamedTuple):
    """The name of a publisher, and the number of the first message of its request."""

    client: str
    seq: int


IDEMPOTENCY_KEY, DUPLICATE = "Idempotency-Key", "SOW-Duplicate"
NUMBERED = re.compile(r"((?:[!-$&-~]|%[0-9A-Fa-f]{2})+)/([1-9][0-9]{0,18})")


def idempotency_key(request: web.Request) -> IdempotencyKey | None:
    """What a request has as its Idempotency-Key; raises ClientError for what is none."""
    texts = request.headers.getall(IDEMPOTENCY_KEY, ())
    if not texts:
        return None
    found = NUMBERED.fullmatch(texts[0]) if len(texts) == 1 else None
    try:
        if found is not None:
            return IdempotencyKey(unquote_to_bytes(found[1]).decode(), int(found[2]))
    except UnicodeDecodeError:
        pass
    raise ClientError(
        f"{IDEMPOTENCY_KEY} {shown(', '.join(texts))} is not CLIENT/SEQ: the name of a publisher, "
        "percent-encoded as UTF-8, and the number of the first message, such as feed-1/42"
    )


def refuse_idempotency_key(request: web.Request) -> None:
    """Raise ClientError for a key where it would have no effect."""
    if IDEMPOTENCY_KEY in request.headers:
        raise ClientError(
            f"{IDEMPOTENCY_KEY} numbers publishes and deletes of records, which this is not; leave "
            "the header out: what is done twice here is the same"
        )


def _pieces(
    topic: Records, request: web.Request, body: bytes, size_max: int
) -> Iterator[list[bytes]]:
    content_type = form_of_body(topic, request)
    if content_type in LINE_TYPES:
        lines = line_pieces(as_utf8(request, body))
        if content_type == PLAIN_TEXT:
            return map(partial(records_of, topic.message_type), lines)
        return _bodies(topic, lines)
    if content_type == FRAMES:
        return frame_pieces(body)
    if content_type == BYTES:
        return iter([[body]])
    if content_type == CSV:
        text = as_utf8(request, body)
        return CsvReader(topic.message_type, topic.declared, text, size_max).pieces()
    if content_type in JSON_TYPES:
        return _bodies(topic, _json(as_utf8(request, body).strip()))
    return iter([[body]])


def _row_pieces(
    topic: Records, request: web.Request, body: bytes, _size_max: int
) -> Iterator[list[bytes]]:
    content_type = form_of_body(topic, request)
    if content_type == NDJSON:
        return line_pieces(as_utf8(request, body))
    if content_type in JSON_TYPES:
        return _json(as_utf8(request, body).strip())
    raise UnsupportedMediaType(
        f"meta=true takes rows as a query with meta=true shows them, in {JSON} or {NDJSON}, not "
        f"{content_type}; send these, or leave meta out"
    )


def form_of_body(topic: Records, request: web.Request) -> str:
    """The media type of a body that `topic` accepts, under its main name; raises
    UnsupportedMediaType. It does not look at the body."""
    content_type = ALIASES.get(request.content_type, request.content_type)
    if content_type in TEXT_TYPES:
        charset_of(request)
    if content_type == CSV:
        _check_names(request)
    if content_type in (*TEXT_TYPES, FRAMES, BYTES):
        return content_type
    kind = topic.message_type
    if content_type in OWN_TYPES and content_type == kind.media_type:
        return content_type
    if content_type in OWN_TYPES:
        raise UnsupportedMediaType(
            f"messages of {topic.name} are {kind.name}, not {content_type}; "
            f"send {kind.media_type}, or documents as {JSON}"
        )
    understood = dict.fromkeys((JSON, NDJSON, CSV, PLAIN_TEXT, kind.media_type, BYTES))
    raise UnsupportedMediaType(
        f"content type {clipped(content_type)} is not understood; send {', '.join(understood)} or "
        f"{FRAMES}"
    )


def _check_names(request: web.Request) -> None:
    """Raise UnsupportedMediaType for a table without a header line."""
    declared = Message()
    declared["Content-Type"] = request.headers[hdrs.CONTENT_TYPE]
    for name, value in declared.get_params([])[1:]:
        if name.lower() == "header" and value.lower() != "present":
            raise UnsupportedMediaType(
                f"header={clipped(value)}: without a line of names nobody knows which fields the "
                "cells are; send the names in the first line"
            )
        if name.lower() not in ("header", "charset"):
            raise UnsupportedMediaType(
                f"the parameter {clipped(name)} of {CSV} is not known; send a table as RFC 4180 "
                "has it, with commas and a line of names"
            )


def _json(text: bytes) -> Iterator[list[bytes]]:
    """One JSON value, an array of them, or (accepted as such) NDJSON lines."""
    if text.startswith(b"["):
        return array_pieces(text)
    end = text.find(b"\n")
    if end < 0 or not _is_json(text[:end]):
        return iter([[text] if text else []])
    return line_pieces(text)


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except JSON_FAILURES:
        return False
    return True


def _bodies(topic: Records, pieces: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Bodies from JSON texts: of a JSON topic they are the bodies; of other types they stand for
    them, as documents of messages or as in lines."""
    count = 0
    for texts in pieces:
        try:
            yield line_bodies(topic.message_type, texts)
        except BadMessage as error:
            raise error.moved(count) from None
        count += len(texts)


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
_COMMAS = {b"{": re.compile(rb"\}\s*(,)\s*\{"), b'"': re.compile(rb'"\s*(,)\s*"')}
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
        if not chunk:
            yield b""
            continue
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
