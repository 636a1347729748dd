"""NATS JetStream: a stream that keeps the last message of each subject, in files.

Its protocol is spoken here without a library. The variants: `message`, an fsync before each
acknowledgement, one a message; `batched`, the same with a batch as one atomic publish, which is
acknowledged as a whole; `default`, as it does by itself, an fsync every two minutes. A record's
subject is its symbol and its key, so who follows has filters by symbol.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.sockets import READ_BYTES
from tests.benchmarks.sowbench.adapter import (
    Cannot,
    Following,
    How,
    Missing,
    Pace,
    Setup,
    connected,
    ended,
    exchanged,
    free_port,
)
from tests.benchmarks.sowbench.adapters.redis import symbol
from tests.benchmarks.sowbench.load import Load, Record
from tests.benchmarks.sowbench.questions import Answer, Question

STREAM = {
    "name": "orders",
    "subjects": ["orders.*.*"],
    "storage": "file",
    "max_msgs_per_subject": 1,
    "allow_direct": True,
    "allow_atomic": True,
}
HEAD = re.compile(rb"(?:MSG (\S+) \S+ (?:\S+ )?|HMSG (\S+) \S+ (?:\S+ )?(\d+) )(\d+)\r\n")
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"no_responders":false,"headers":true}\r\n'
BATCH = b"NATS/1.0\r\nNats-Batch-Id:%b.%d\r\nNats-Batch-Sequence:%d\r\n%b\r\n"
COMMIT = b"Nats-Batch-Commit:1\r\n"
SYNC = {
    "message": "fsync before each acknowledgement, one a message",
    "batched": "fsync before each acknowledgement, a batch is one atomic publish",
    "default": "fsync every 2 minutes: they may go with the machine",
}
BESIDE = Path(sys.executable).parent
"""Where pip puts it."""
PENDING_BYTES = 1 << 30
"""For a client that is sent a snapshot: with the default of 64 MB it would be cut off."""
PING, PONG = b"PING\r\n", b"PONG\r\n"


class Adapter:
    """A server of its own."""

    VARIANTS = ("message", "batched", "default")

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self.name = f"NATS JetStream, {variant}"
        self.promise = SYNC[variant]
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path, setup: Setup) -> None:
        """Start a server on the folder, and make the stream if there is none."""
        program = shutil.which("nats-server", path=f"{os.environ['PATH']}:{BESIDE}")
        if program is None:
            raise Missing("nats-server")
        if setup.view:
            raise Cannot("no views")
        port = int(self.address or free_port())
        interval = "" if self._variant == "default" else "sync_interval: always"
        settings = folder / "nats.conf"
        jetstream = f'jetstream {{ store_dir: "{folder}"\n{interval} }}'
        settings.write_text(f"{jetstream}\nmax_pending: {PENDING_BYTES}\n")
        self._process = subprocess.Popen(
            [program, "-c", str(settings), "-p", str(port), "-a", "127.0.0.1"],
            stderr=subprocess.DEVNULL,
        )
        self.address, self.pid = str(port), self._process.pid
        self._ask("$JS.API.STREAM.CREATE.orders", STREAM)

    def stop(self, kill: bool = False) -> None:
        """End it."""
        process, self._process = self._process, None
        ended(process, kill)

    def _ask(self, subject: str, request: object) -> Any:
        """A request of the API; raises AssertionError if it is refused."""
        found = json.loads(self._answer(subject, json.dumps(request).encode()))
        assert "error" not in found, found
        return found

    def _answer(self, subject: str, body: bytes) -> bytes:
        with connected(self.address) as client:
            messages = Messages(client)
            head = b"PUB %b %b %d" % (subject.encode(), messages.subject, len(body))
            client.sendall(b"%b\r\n%b\r\n" % (head, body))
            while not (said := messages.read()):
                pass
        return said[0][1]

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """A message for each record; what belongs to a batch is sent together."""
        connection = connected(self.address)
        messages = Messages(connection)
        make = _atomic if self._variant == "batched" else _singles
        frames = [make(n, messages.subject, each) for n, each in enumerate(load.batches())]
        sizes = [1 if self._variant == "batched" else len(batch) for batch in load.batches()]
        acknowledged = rest = 0

        def acks(piece: bytes) -> int:
            nonlocal acknowledged, rest
            for _, said in messages.take(piece):
                # The first of an atomic publish is answered with nothing: it is known.
                assert b'"error"' not in said, said[:500]
                rest += b'"seq"' in said
            while acknowledged < len(sizes) and rest >= sizes[acknowledged]:
                rest -= sizes[acknowledged]
                acknowledged += 1
            return acknowledged

        return exchanged(connection, frames, acks, pace)

    def follow(self, how: How) -> Following:
        """A plain subscription, or one for each symbol; with a snapshot an ordered consumer that
        begins with the last message of each subject."""
        if how.conflated_ms:
            raise Cannot("no conflation: a follower is sent every update")
        client = connected(self.address)
        if how.snapshot:
            settings = {
                "deliver_subject": Messages(client).subject.decode(),
                "deliver_policy": "last_per_subject",
                "filter_subject": "orders.>",
                "ack_policy": "none",
            }
            request = {"stream_name": "orders", "config": settings}
            self._ask("$JS.API.CONSUMER.CREATE.orders", request)
            return Subscribed(client)
        subjects = [b"orders.%b.*" % each.encode() for each in how.symbols] or [b"orders.*.*"]
        client.sendall(
            CONNECT + b"".join([b"SUB %b %d\r\n" % (s, n) for n, s in enumerate(subjects)]) + PING
        )
        said = b""
        while not said.endswith(PONG):
            said += client.recv(READ_BYTES)
        return Subscribed(client)

    def query(self, question: Any) -> Answer:
        """By key alone, and that by its subject."""
        if not isinstance(question, Question) or question.key is None:
            raise Cannot("by subject alone: a key, or a symbol's messages one by one")
        start = time.perf_counter()
        subject = f"orders.S{question.key % Load(1, 1, 1).symbols}.{question.key}"
        body = self._answer(f"$JS.API.DIRECT.GET.orders.{subject}", b"")
        return Answer((time.perf_counter() - start) * 1000, [body] if body else [])

    def state(self) -> dict[int, bytes]:
        """The last message of every subject, by a consumer of its own."""
        held: dict[int, bytes] = {}
        count = self._ask("$JS.API.STREAM.INFO.orders", {})["state"]["messages"]
        with self.follow(How(snapshot=True)).socket as client:
            messages = Messages(client, subscribe=False)
            while len(held) < count:
                for subject, body in messages.read():
                    held[int(subject.rpartition(b".")[2])] = body
        return held


def _singles(_number: int, inbox: bytes, batch: Sequence[Record]) -> bytes:
    return b"".join([
        b"PUB orders.%b.%d %b %d\r\n%b\r\n" % (symbol(body), key, inbox, len(body), body)
        for key, body in batch
    ])  # fmt: skip


def _atomic(number: int, inbox: bytes, batch: Sequence[Record]) -> bytes:
    parts = []
    for place, (key, body) in enumerate(batch, 1):
        head = BATCH % (inbox, number, place, COMMIT * (place == len(batch)))
        subject = b"orders.%b.%d" % (symbol(body), key)
        sizes = len(head), len(head) + len(body)
        parts.append(b"HPUB %b %b %d %d\r\n%b%b\r\n" % (subject, inbox, *sizes, head, body))
    return b"".join(parts)


class Subscribed(Following):
    """A connection that answers the pings of the server."""

    alive = PONG

    def read(self) -> bytes:
        """What has come."""
        piece = super().read()
        if piece.endswith(PING):
            self.socket.send(PONG)
        return piece


class Messages:
    """What comes to a connection, cut anywhere: subjects and bodies; `subject` is its own."""

    def __init__(self, client: socket.socket, subscribe: bool = True) -> None:
        self._client = client
        self._rest = b""
        self.subject = b"inbox.%b" % secrets.token_hex(8).encode()
        if subscribe:
            client.sendall(CONNECT + b"SUB %b 1\r\n" % self.subject)

    def read(self) -> list[tuple[bytes, bytes]]:
        """The messages of one read; possibly none."""
        piece = self._client.recv(READ_BYTES)
        assert piece, "NATS has closed the connection"
        return self.take(piece)

    def take(self, piece: bytes) -> list[tuple[bytes, bytes]]:
        """The messages that are complete with this piece."""
        data, at, found = self._rest + piece, 0, []
        while (end := data.find(b"\r\n", at)) >= 0:
            head = HEAD.match(data, at)
            if head is None:
                line = data[at:end]
                assert not line.startswith(b"-ERR"), line
                if line == b"PING":
                    self._client.send(PONG)
                at = end + 2
                continue
            stop = head.end() + int(head[4])
            if len(data) < stop + 2:
                break
            body = data[head.end() + int(head[3] or 0) : stop]
            found.append((head[1] or head[2], body))
            at = stop + 2
        self._rest = data[at:]
        return found
