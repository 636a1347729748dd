"""A bare WebSocket client: the least a client can cost, so that the server is what is measured.

Frames are built beforehand and masked with zeros, which the protocol allows (RFC 6455 §5.3) and
the server unmasks like any other. Of what comes back only the lines are counted; anything
that says that the server refused something ends the benchmark.
"""

import socket
from collections.abc import Sequence
from typing import NoReturn

import orjson

HANDSHAKE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
NO_MASK = bytes(4)
PONG = b"\x8a\x80" + NO_MASK
BINARY, CLOSE, PING = 2, 8, 9
READ_BYTES = 256 * 1024
REFUSALS = (b'"status":"failure"', b'"c":"close"', b'"c":"unsubscribed"')


def frame(payload: bytes) -> bytes:
    """One client's frame, final, binary."""
    size = len(payload)
    if size < 126:
        head = bytes((0x82, 0x80 | size))
    elif size < 65536:
        head = b"\x82\xfe" + size.to_bytes(2, "big")
    else:
        head = b"\x82\xff" + size.to_bytes(8, "big")
    return head + NO_MASK + payload


def command(**fields: object) -> bytes:
    """A frame of one command."""
    return frame(orjson.dumps(fields))


def publishes(
    bodies: Sequence[bytes], size: int, topic: str = "orders", seq: int | None = None
) -> list[bytes]:
    """Frames that publish `size` bodies each, to be acknowledged once durable; with numbers from
    `seq` on, if it is given."""
    frames = []
    for start in range(0, len(bodies), size):
        part = bodies[start : start + size]
        fields: dict[str, object] = {"c": "publish"}
        if seq is not None:
            fields["seq"] = seq + start
        fields |= {"t": topic, "n": len(part), "cid": "1", "a": "persisted"}
        frames.append(frame(b"\n".join((orjson.dumps(fields), *part))))
    return frames


def refused(data: bytes) -> NoReturn:
    """The server said no."""
    raise ConnectionError(f"the server refused: {data[-300:]!r}")


class LineCounter:
    """Counts the lines in a stream of frames that arrives in pieces cut anywhere."""

    def __init__(self) -> None:
        self.lines = 0
        self.frames = 0
        self.bytes = 0
        self.pings = 0
        self.left = 0
        """Bytes of the last frame that are still to come."""
        self._head = b""

    def feed(self, piece: bytes) -> None:
        """Take in what a read gave; raises ConnectionError for a refusal."""
        self.bytes += len(piece)
        at = 0
        while at < len(piece):
            if not self.left:
                at = self._begin(piece, at)
                continue
            end = min(len(piece), at + self.left)
            self.lines += piece.count(b"\n", at, end)
            self.left -= end - at
            at = end
        for refusal in REFUSALS:
            if refusal in piece:
                refused(piece)

    def _begin(self, piece: bytes, at: int) -> int:
        """Read the head of a frame; returns where its payload begins, if all of it is here."""
        before = len(self._head)
        head = self._head + piece[at : at + 10 - before]
        size = head[1] if len(head) > 1 else 0
        wanted = 2 if size < 126 else 4 if size == 126 else 10
        if len(head) < wanted:
            self._head = head
            return len(piece)
        self._head = b""
        self.left = size if size < 126 else int.from_bytes(head[2:wanted], "big")
        kind = head[0] & 15
        self.lines += kind <= BINARY
        self.frames += kind <= BINARY
        self.pings += kind == PING
        if kind == CLOSE:
            refused(piece)
        return at + wanted - before


class Client:
    """One WebSocket connection, blocking. With a token it says who it is."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = b"Authorization: Bearer %b\r\n\r\n" % token.encode() if token else b"\r\n"
        self.socket.sendall(HANDSHAKE.removesuffix(b"\r\n") + who)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(READ_BYTES)
        self._counter = LineCounter()
        self._counter.feed(answer.partition(b"\r\n\r\n")[2])

    def read(self) -> int:
        """Wait for something to come; returns how many lines have begun so far."""
        counter = self._counter
        piece = self.socket.recv(READ_BYTES)
        if not piece:
            raise ConnectionError("the server closed the connection")
        counter.feed(piece)
        for _ in range(counter.pings):
            self.socket.sendall(PONG)
        counter.pings = 0
        return counter.lines

    def ask(self, **fields: object) -> None:
        """Send a command and wait for its ack."""
        answered = self._counter.lines + 1
        self.socket.sendall(command(**fields))
        while self.read() < answered:
            pass

    def publish(self, frames: Sequence[bytes], window: int) -> None:
        """Send frames, at most `window` of them unacknowledged; return when all are."""
        before = self._counter.lines
        sent = acknowledged = 0
        while acknowledged < len(frames):
            limit = min(len(frames), acknowledged + window)
            if sent < limit:
                self.socket.sendall(b"".join(frames[sent:limit]))
                sent = limit
            acknowledged = self.read() - before

    def close(self) -> None:
        """Give the connection back."""
        self.socket.close()
