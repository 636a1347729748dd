"""Bodies of a request: which messages a POST, PATCH or DELETE carries (contract §3, §5a)."""

from collections.abc import Sequence

import msgspec
from aiohttp import web

from sow.errors import BadMessage
from sow.keyed_topic import KeyedTopic
from sow.server.negotiation import UnsupportedMediaType, as_utf8

JSON_TYPES = ("application/json", "text/json")
LINE_TYPES = ("application/x-ndjson", "application/jsonl", "text/plain")
FRAMES_TYPE = "application/vnd.sow.frames"
BYTES_TYPE = "application/octet-stream"
LENGTH_BYTES = 4


async def messages(topic: KeyedTopic, request: web.Request) -> list[bytes]:
    """The message bodies of a request; raises BadMessage with the index of the first bad one."""
    content_type, body = request.content_type, await request.read()
    if content_type in LINE_TYPES:
        found = _lines(as_utf8(request, body))
    elif content_type == FRAMES_TYPE:
        found = _frames(body)
    elif content_type == BYTES_TYPE:
        found = [body]
    elif content_type in JSON_TYPES:
        found = _json(topic, as_utf8(request, body))
    else:
        raise UnsupportedMediaType(
            f"content type {content_type} is not understood; send application/json, "
            f"application/x-ndjson, text/plain, {BYTES_TYPE} or {FRAMES_TYPE}"
        )
    if not found:
        raise BadMessage("the request holds no message")
    return found


def _lines(body: bytes) -> list[bytes]:
    return [line for line in body.replace(b"\r\n", b"\n").split(b"\n") if line.strip()]


def _frames(body: bytes) -> list[bytes]:
    """Messages each after its length as 4 bytes, big-endian."""
    found: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + LENGTH_BYTES
        end = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or end > len(body):
            raise BadMessage(
                f"the length at byte {at} reaches beyond the {len(body)} bytes of the request",
                index=len(found),
            )
        found.append(body[start:end])
        at = end
    return found


def _json(topic: KeyedTopic, body: bytes) -> list[bytes]:
    """One JSON value, an array of them, or (taken for what they are) NDJSON lines."""
    text = body.strip()
    if not text.startswith(b"["):
        lines = _lines(text)
        whole = len(lines) < 2 or not _is_json(lines[0])
        return _bodies(topic, [text] if whole else lines)
    try:
        values = msgspec.json.decode(text, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"the request is not a JSON array: {error}") from None
    return _bodies(topic, [bytes(value) for value in values])


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _bodies(topic: KeyedTopic, texts: Sequence[bytes]) -> list[bytes]:
    """JSON texts of a JSON topic are the bodies; those of other types stand for them."""
    return topic.from_line([text for text in texts if text])
