"""Bodies of a request: which messages a POST, PATCH or DELETE carries (docs/http.md).

They are taken a piece at a time, and others are served between the pieces: the first bad message
ends it, and nothing has been changed by then.
"""

import asyncio
from collections.abc import Callable, Iterator

import msgspec
from aiohttp import web

from sow.engine.engine import Engine
from sow.errors import BadMessage, TooLarge, clipped
from sow.media_types import BYTES, FRAMES, JSON, NDJSON, PLAIN_TEXT
from sow.server.negotiation import UnsupportedMediaType, as_utf8
from sow.server.pieces import JSON_FAILURES, array_pieces, frame_pieces, line_pieces
from sow.topic.records import CheckedMessages, Columns, Records
from sow.wire import BODIES_MAX

JSON_TYPES = (JSON, "text/json")
LINE_TYPES = (NDJSON, "application/jsonl", PLAIN_TEXT)


async def take_messages(
    topic: Records, request: web.Request, body: bytes, take: Callable[[list[bytes]], None]
) -> int:
    """Hand the messages in a request's body to `take`, some at a time; returns how many there were.

    Raises BadMessage with the index of the first bad one, and what `take` raises.
    """
    count = 0
    for piece in _pieces(topic, request, body):
        if count + len(piece) > BODIES_MAX:
            raise TooLarge(f"the request holds more than {BODIES_MAX} messages; send several")
        try:
            take(piece)
        except BadMessage as error:
            raise error.moved(count) from None
        count += len(piece)
        await asyncio.sleep(0)
    if not count:
        raise BadMessage("the request holds no message")
    return count


class Reading:
    """Messages of one publish as they are read for `topic`, under the limits of `engine`.

    `key` names the record of the only message, for a topic without keys; None, the bodies do.
    """

    def __init__(self, engine: Engine, topic: Records, key: str | None) -> None:
        self._engine = engine
        self._topic = topic
        self._keys = None if key is None else (key,)
        self._read: list[CheckedMessages] = []

    def take(self, bodies: list[bytes]) -> None:
        """Read some more; raises BadMessage."""
        self._engine.check_sizes(bodies)
        if self._keys is not None and self._read and bodies:
            bodies = [*self._read.pop().bodies, *bodies]  # which is one too many for one key
        if bodies:
            self._read.append(self._topic.read(bodies, self._keys))

    def messages(self) -> CheckedMessages:
        """All of them."""
        if len(self._read) == 1:
            return self._read[0]
        # What is read of every message may have changed meanwhile.
        paths = set.intersection(*[set(read.columns) for read in self._read])
        columns: Columns = {
            path: [value for read in self._read for value in read.columns[path]] for path in paths
        }
        return CheckedMessages(
            [body for read in self._read for body in read.bodies],
            [name for read in self._read for name in read.identities],
            columns,
        )


def _pieces(topic: Records, request: web.Request, body: bytes) -> Iterator[list[bytes]]:
    content_type = request.content_type
    if content_type in LINE_TYPES:
        return line_pieces(as_utf8(request, body))
    if content_type == FRAMES:
        return frame_pieces(body)
    if content_type == BYTES:
        return iter([[body]])
    if content_type in JSON_TYPES:
        return _bodies(topic, _json(as_utf8(request, body).strip()))
    raise UnsupportedMediaType(
        f"content type {clipped(content_type)} is not understood; send application/json, "
        f"{NDJSON}, {PLAIN_TEXT}, {BYTES} or {FRAMES}"
    )


def _json(text: bytes) -> Iterator[list[bytes]]:
    """One JSON value, an array of them, or (taken for what they are) NDJSON lines."""
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
    """JSON texts of a JSON topic are the bodies; those of other types stand for them."""
    count = 0
    for texts in pieces:
        try:
            yield topic.from_line(texts)
        except BadMessage as error:
            raise error.moved(count) from None
        count += len(texts)
