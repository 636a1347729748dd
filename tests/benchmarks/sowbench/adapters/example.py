"""An example to begin a new adapter with: a server of sixty lines that keeps records in memory.

Its protocol is lines: `put N`, followed by N lines of a key and a body, is answered `ok`; `all` is
answered with the number of records and the records; after `follow` come records as they are put.
The other variants are wrong on purpose, one way each, and the tests see that this is found.
"""

import socket
import socketserver
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, ClassVar

import orjson

from tests.benchmarks.sowbench.adapter import (
    Cannot,
    Following,
    How,
    Pace,
    Setup,
    connected,
    exchanged,
)
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.questions import Answer, Question

WRONG_AT = 5
"""Of the updates, the one that a wrong variant does something else with."""


class Adapter:
    """The server runs in a thread of this process: a real one would be a process."""

    VARIANTS = ("right", "loses", "repeats", "swaps", "alters", "forgets", "misses")
    promise = "none: kept in memory"
    kept: ClassVar[dict[Path, dict[int, bytes]]] = {}
    """What survives a kill, by folder."""

    def __init__(self, variant: str) -> None:
        self.name = f"example, {variant}"
        self.address = ""
        self.pid = 0
        self._variant = variant
        self._server: Server | None = None

    def start(self, folder: Path, setup: Setup) -> None:
        """On a free port."""
        if setup.view or setup.conflated_ms:
            raise Cannot("an example")
        kept = {} if self._variant == "forgets" else self.kept
        port = int(self.address or 0)
        self._server = Server(self._variant, kept.setdefault(folder, {}), port)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.address = str(self._server.server_address[1])

    def stop(self, kill: bool = False) -> None:
        """Whether it is killed makes no difference to it."""
        server, self._server = self._server, None
        if server is not None:
            server.end()

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """A `put` for each batch."""
        frames = [
            b"put %d\n" % len(batch) + b"".join([b"%d %b\n" % record for record in batch])
            for batch in load.batches()
        ]
        acknowledged = 0

        def acks(piece: bytes) -> int:
            nonlocal acknowledged
            acknowledged += piece.count(b"ok")
            return acknowledged

        return exchanged(connected(self.address), frames, acks, pace)

    def follow(self, how: How) -> Following:
        """Every record from now on."""
        if how.symbols or how.snapshot or how.conflated_ms:
            raise Cannot("an example")
        client = connected(self.address)
        client.sendall(b"follow\n")
        assert client.recv(3) == b"ok\n"
        return Following(client)

    def query(self, question: Any) -> Answer:
        """A look at all records."""
        if not isinstance(question, Question) or question.top:
            raise Cannot("an example")
        start = time.perf_counter()
        rows = [row for row in map(orjson.loads, self.state().values()) if question.holds(row)]
        if self._variant == "misses":
            del rows[:1]
        return Answer((time.perf_counter() - start) * 1000, rows)

    def state(self) -> dict[int, bytes]:
        """All records."""
        with connected(self.address) as client, client.makefile("rb") as answers:
            client.sendall(b"all\n")
            lines = [answers.readline().rstrip() for _ in range(int(answers.readline()))]
        return {int(key): body for key, _, body in (line.partition(b" ") for line in lines)}


class Server(socketserver.ThreadingTCPServer):
    """The server: records, and who follows."""

    daemon_threads = True
    request_queue_size = 100

    allow_reuse_address = True

    def __init__(self, variant: str, records: dict[int, bytes], port: int) -> None:
        super().__init__(("127.0.0.1", port), Session)
        self.variant, self.records = variant, records
        self.lock = threading.Lock()
        self.followers: list[socket.socket] = []
        self.connections: list[socket.socket] = []
        self.count = 0

    def put(self, lines: list[tuple[int, bytes]]) -> None:
        """Take a batch, and tell of it."""
        with self.lock:
            self.records.update(lines)
            bodies = [body for _, body in lines]
            at = WRONG_AT - self.count - 1
            self.count += len(lines)
            if 0 < at < len(bodies):
                self._go_wrong(bodies, at, lines[at][0])
            for follower in self.followers:
                follower.sendall(b"".join([b"%b\n" % body for body in bodies]))

    def _go_wrong(self, bodies: list[bytes], at: int, key: int) -> None:
        if self.variant == "loses":
            del bodies[at], self.records[key]
        elif self.variant == "repeats":
            bodies.insert(at, bodies[at])
        elif self.variant == "swaps":
            bodies.reverse()
        elif self.variant == "alters":
            bodies[at] = self.records[key] = bodies[at].replace(b"buy", b"bye")

    def end(self) -> None:
        """Close everything."""
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            connection.close()


class Session(socketserver.StreamRequestHandler):
    """A connection."""

    server: Server

    def handle(self) -> None:
        """Its commands."""
        self.server.connections.append(self.connection)
        for line in self.rfile:
            word, _, count = line.partition(b" ")
            if word == b"put":
                lines = [self.rfile.readline().rstrip().partition(b" ") for _ in range(int(count))]
                self.server.put([(int(key), body) for key, _, body in lines])
                self.wfile.write(b"ok\n")
            elif word == b"all\n":
                with self.server.lock:
                    held = [b"%d %b\n" % each for each in self.server.records.items()]
                self.wfile.write(b"%d\n" % len(held) + b"".join(held))
            else:
                with self.server.lock:
                    self.wfile.write(b"ok\n")
                    self.server.followers.append(self.connection)
