"""How lines travel out: in WebSocket frames, or as server-sent events.

Both render whole batches of records from columns: equal subscriptions get the same bytes object, so
it is built once however many sessions there are. The content of lines is the business of
`sow.protocol.replies` and the renderer, incoming commands that of `sow.protocol.wire`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Protocol

import orjson

from sow.protocol import replies
from sow.protocol.replies import QUEUE_MEMORY, Reply, has_places, place_texts

Frames = Iterator[tuple[bytes, int]]
"""Frames for a socket, each with the number of its lines; made lazily."""


def timestamp(ts_us: int) -> str:
    """ISO 8601 UTC with microseconds."""
    ts_s, rest_us = divmod(ts_us, 1_000_000)
    return datetime.fromtimestamp(ts_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{rest_us:06d}Z"


def quoted(texts: Sequence[str]) -> list[bytes]:
    """JSON strings."""
    return [orjson.dumps(text) for text in texts]


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


@cache
def _ack_head(kind: str) -> bytes:
    return orjson.dumps(replies.ack(None, kind))[:-1]


def publish_acks(acks: Iterable[tuple[str, str | None, int]]) -> list[bytes]:
    """Acks of publishes as lines, from the kind, the cid and the bookmark of each."""
    return [
        b'%b%b,"bm":"%d"}'
        % (_ack_head(kind), b"" if cid is None else b',"cid":' + orjson.dumps(cid), bookmark)
        for kind, cid, bookmark in acks
    ]


def skip_lines(frame: bytes, count: int) -> bytes:
    """A frame of `LineEncoding` without its first `count` lines."""
    size = frame[1]
    payload = frame[2 if size < 126 else 4 if size == 126 else 10 :]
    return LINES.frame(payload.split(b"\n")[count:])


class EventEncoding:
    """Lines as server-sent events: the line's `c` is the event, and its bookmark the id, which
    names the log `log_id` too: a browser sends it back to whichever server is there then."""

    name = "events"

    def __init__(self, log_id: str) -> None:
        self._log = log_id.encode()

    def reply(self, reply: Reply) -> bytes:
        """One line that is not a record. Failures are events of type error, and so is an end that
        the client has to know of: it has not read."""
        fails = reply.get("status") == "failure" or reply.get("reason") == QUEUE_MEMORY
        event = "error" if fails else str(reply["c"])
        head = b"event: " + event.encode()
        if "bm" in reply:
            head += b"\nid: %b-%b" % (self._log, str(reply["bm"]).encode())
        return b"%b\ndata: %b\n\n" % (head, orjson.dumps(reply))

    def records(self, kind: str, lines: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """Events of record lines. Only live ones move the client's Last-Event-ID."""
        if kind == "sow":
            return [b"event: sow\ndata: " + line + b"\n\n" for line in lines]
        head = b"event: %b\nid: %b-" % (kind.encode(), self._log)
        if has_places(seqs):
            return [
                b"%b%b\ndata: %b\n\n" % (head, text, line)
                for line, text in zip(lines, place_texts(seqs), strict=True)
            ]
        return [
            b"%b%d\ndata: %b\n\n" % (head, seq, line) for line, seq in zip(lines, seqs, strict=True)
        ]

    def frame(self, lines: Sequence[bytes]) -> bytes:
        """One chunk of an HTTP/1.1 chunked body (RFC 9112 §7.1)."""
        payload = b"".join(lines)
        return b"%x\r\n%b\r\n" % (len(payload), payload)


LINES = LineEncoding()


def record_lines(
    head: bytes,
    keys: Sequence[bytes] | None,
    bodies: Sequence[bytes],
    seqs: Sequence[int] | None,
    ts_us: Sequence[int] | None,
    delta: bool = False,
    places: Sequence[int] = (),
) -> list[bytes]:
    """Record lines from columns: `head` is the open object up to the key, values are JSON text.

    `delta`: the client merges the bodies into its records. `places` are the positions of the
    records in a window, where requested.
    """
    ks = [b""] * len(bodies) if keys is None else [b',"k":' + key for key in keys]
    mark = b',"delta":true' if delta else b""
    if seqs is None:
        tail = [mark + b"}"] * len(bodies)
    elif has_places(seqs):
        tail = [b'%b,"bm":"%b"}' % (mark, text) for text in place_texts(seqs)]
    else:
        tail = [b'%b,"bm":"%d"}' % (mark, seq) for seq in seqs]
    if ts_us is not None:
        tail = [
            b',"ts":"%b"%b' % (timestamp(ts).encode(), end)
            for ts, end in zip(ts_us, tail, strict=True)
        ]
    if places:
        tail = [b',"at":%d%b' % (at, end) for at, end in zip(places, tail, strict=True)]
    join = b"".join
    return [
        join((head, key, b',"d":', body, end))
        for key, body, end in zip(ks, bodies, tail, strict=True)
    ]
