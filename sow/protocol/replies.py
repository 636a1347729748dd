"""The server's messages to a session: the vocabulary of its lines, and how they travel.

One function makes a line, a plain dictionary, in the words of the protocol. The lines of records do
not pass through here: they are made straight from columns (`sow.topic.rendering`).

Lines travel in WebSocket frames, or as server-sent events. Both render whole batches of records
from columns: equal subscriptions get the same bytes object, so it is built once however many
sessions there are. The content of lines is the business of those functions and the renderer,
incoming commands that of `sow.protocol.wire`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Protocol, cast

import orjson

from sow.errors import SowError
from sow.protocol import replies

Reply = dict[str, object]


class SentPlace(int):
    """The bookmark of a turn of a conflated topic: a place in what it has sent, ``SEQ.N``. SEQ is
    the newest change of its original that it has sent, N the time of the turn. Taken for a
    number it is SEQ, which was no later.
    """

    time_us: int
    text: bytes

    def __new__(cls, seq: int, time_us: int) -> "SentPlace":
        """After all that was due up to a time; `seq` is the newest change in that."""
        place = super().__new__(cls, seq)
        place.time_us, place.text = time_us, b"%d.%d" % (seq, time_us)
        return place

    def __lt__(self, other: int) -> bool:
        if isinstance(other, SentPlace) and int(self) == int(other):
            return self.time_us < other.time_us
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        if isinstance(other, SentPlace) and int(self) == int(other):
            return self.time_us > other.time_us
        return int(self) > int(other)


def has_places(seqs: Sequence[int]) -> bool:
    """Whether bookmarks are places; those of one batch are of one kind."""
    return len(seqs) > 0 and isinstance(seqs[0], SentPlace)


def place_texts(seqs: Sequence[int]) -> list[bytes]:
    """How bookmarks that are places are written: without a call for each line of a turn."""
    return [place.text for place in cast(Sequence[SentPlace], seqs)]


def bookmark_bytes(seq: int) -> bytes:
    """How a bookmark is written."""
    return seq.text if isinstance(seq, SentPlace) else b"%d" % seq


def ack(cid: str | None, kind: str, **more: object) -> Reply:
    """A command got as far as `kind`: processed, persisted or completed."""
    line: Reply = {"c": "ack", "a": kind, "status": "success"}
    if cid is not None:
        line["cid"] = cid
    line.update((name, value) for name, value in more.items() if value is not None)
    return line


def failure(cid: str | None, error: SowError, kind: str = "processed") -> Reply:
    """A command was refused; nothing of it was carried out."""
    line: Reply = {"c": "ack", "a": kind, "status": "failure"}
    if cid is not None:
        line["cid"] = cid
    return line | {"reason": error.reason, "detail": error.detail} | error.fields()


def group_begin(subscription: str) -> Reply:
    """A snapshot starts."""
    return {"c": "group_begin", "s": subscription}


def group_end(subscription: str, seq: int) -> Reply:
    """The snapshot is complete, exact as of bookmark `seq`."""
    return {"c": "group_end", "s": subscription, "bm": bookmark_bytes(seq).decode()}


def turn_end(subscription: str, seq: int) -> Reply:
    """A live window is complete as of bookmark `seq`: no line of a turn is missing."""
    return {"c": "turn_end", "s": subscription, "bm": str(seq)}


def unsubscribed(subscription: str, reason: str, detail: str | None = None) -> Reply:
    """The server ended a subscription; `detail` is a sentence for people."""
    line: Reply = {"c": "unsubscribed", "s": subscription, "reason": reason}
    return line if detail is None else line | {"detail": detail}


def heartbeat() -> Reply:
    """The server is there."""
    return {"c": "heartbeat"}


def conflated(messages: int, dropped: int) -> Reply:
    """A heartbeat with the number of messages that the client will not see, because newer ones
    replaced them or because their subscription was given up; both since the session began."""
    return {"c": "heartbeat", "conflated": messages, "dropped": dropped}


QUEUE_MEMORY = "queue memory"
"""Why a session is closed for which most waits (`sow.sessions.commands.queue_relief`)."""


def close(reason: str) -> Reply:
    """The last line before the server closes the connection."""
    return {"c": "close", "reason": reason}


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
    names the log `log_id` too: a browser sends it back to whichever server is there then. Events
    that are not `named` are of a browser's default type, `message`."""

    def __init__(self, log_id: str, named: bool = True) -> None:
        self.name = "events" if named else "unnamed events"
        self._log = log_id.encode()
        self._named = named

    def _head(self, event: str) -> bytes:
        return b"event: %b\n" % event.encode() if self._named else b""

    def reply(self, reply: Reply) -> bytes:
        """One line that is not a record. Failures are events of type error, and so is an end that
        the client has to know of: it has not read."""
        fails = reply.get("status") == "failure" or reply.get("reason") == QUEUE_MEMORY
        head = self._head("error" if fails else str(reply["c"]))
        if "bm" in reply:
            head += b"id: %b-%b\n" % (self._log, str(reply["bm"]).encode())
        return b"%bdata: %b\n\n" % (head, orjson.dumps(reply))

    def records(self, kind: str, lines: Sequence[bytes], seqs: Sequence[int]) -> list[bytes]:
        """Events of record lines. Only live ones move the client's Last-Event-ID."""
        head = self._head(kind)
        if kind == "sow":
            return [b"%bdata: %b\n\n" % (head, line) for line in lines]
        head += b"id: %b-" % self._log
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


def record_line(
    head: bytes,
    key: bytes | None,
    body: bytes,
    seq: int | None,
    ts_us: int | None,
    delta: bool = False,
    places: Sequence[int] = (),
) -> bytes:
    """One of the lines of `record_lines`, without columns: each update that is folded in the queue
    of a client is one."""
    parts = [head, b',"d":', body] if key is None else [head, b',"k":', key, b',"d":', body]
    if places:
        parts.append(b',"at":%d' % places[0])
    if ts_us is not None:
        parts.append(b',"ts":"%b"' % timestamp(ts_us).encode())
    if delta:
        parts.append(b',"delta":true')
    parts.append(b"}" if seq is None else b',"bm":"%b"}' % bookmark_bytes(seq))
    return b"".join(parts)


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
