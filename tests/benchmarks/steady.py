"""A steady publisher: frames at the moments meant for them, beside whatever is measured."""

import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from tests.benchmarks.sockets import Client


class Progress(NamedTuple):
    """How many updates were acknowledged by when."""

    updates: int
    at_s: float

    def rate_since(self, before: "Progress") -> float:
        """Updates a second since then."""
        return (self.updates - before.updates) / (self.at_s - before.at_s)


class Publisher:
    """Publishes at a steady rate in a thread of its own, until it is stopped."""

    def __init__(self, client: Client, frames: Sequence[bytes], size: int, rate: float) -> None:
        """Over a client that is given away: `frames` again and again, `size` updates in each."""
        self._client, self._frames = client, frames
        self._size, self._taken = size, 0
        self._step_s = size / rate
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Publish no more; everything is acknowledged then."""
        self._stopped.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        due, number = time.perf_counter(), 0
        while not self._stopped.wait(max(0.0, due - time.perf_counter())):
            self._client.socket.sendall(self._frames[number % len(self._frames)])
            number, due = number + 1, due + self._step_s
            while self._client.read() < number:
                pass
            self._taken = number

    def progress(self) -> Progress:
        """What is acknowledged now."""
        return Progress(self._taken * self._size, time.perf_counter())
