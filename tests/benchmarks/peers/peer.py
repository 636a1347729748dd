"""A peer: what keeps the newest state of each record, ours or another's."""

import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from tests.benchmarks.peers.load import Load

START_S_MAX = 20.0
WINDOW = 64
"""Batches that may be unacknowledged, for those that take more than one at a time."""


class Missing(Exception):
    """The peer is not installed; `make bench-peers` installs it."""


class Peer(Protocol):
    """One of them. `durability` says what an acknowledgement promises."""

    name: str
    durability: str

    def open(self, folder: Path) -> None:
        """Start, or start again, on what is in `folder`. Raises Missing."""
        ...

    def publish(self, load: Load) -> Generator[int]:
        """Hand over the batches of a load; yields how many are acknowledged, up to all of them.

        The first is 0, when everything is made and nothing was sent.
        """
        ...

    def current(self) -> dict[int, bytes]:
        """The record of every key."""
        ...

    def cpu_s(self) -> float:
        """Processor time of whatever keeps the records, all threads."""
        ...

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def connected(port: int) -> socket.socket:
    """A connection to what was just started, as soon as it listens."""
    give_up = time.monotonic() + START_S_MAX
    while True:
        try:
            found = socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                raise
            # There is nothing to wait on but the port itself.
            time.sleep(0.02)
        else:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found


def ended(process: "subprocess.Popen[bytes]") -> None:
    """Ask a process to end, and wait until it has."""
    process.terminate()
    try:
        process.wait(START_S_MAX)
    finally:
        process.kill()
        process.wait()
