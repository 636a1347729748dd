"""A pinger: a process of its own that asks a server every 4 ms whether it is there.

    python -m tests.benchmarks.pinger HOST PORT [TOKEN]

opens a WebSocket and sends a ping (RFC 6455 §5.5.2) every `EVERY_S`, whether the earlier ones were
answered or not, so that one long wait is seen by all who would have waited. For each line on its
standard input it begins anew, and writes what it saw since the last one: the longest wait, and how
many pings there were.
"""

import os
import selectors
import sys
import time

from tests.benchmarks.processes import Child
from tests.benchmarks.sockets import NO_MASK, READ_BYTES, Client

EVERY_S = 0.004
SIZE = 8
"""Bytes in a ping: its number."""
PONG = bytes((0x8A, SIZE))
FRAME_BYTES = len(PONG) + SIZE


class Pinger(Child):
    """The parent's end of such a process."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        super().__init__("-m", "tests.benchmarks.pinger", host, str(port), token)
        assert self.hear() == "ready"

    def longest_ms(self) -> tuple[float, int]:
        """The longest wait since the last call, and how many pings there were."""
        self.say("how long?")
        longest, count = self.hear().split()
        return float(longest), int(count)


class Waits:
    """When each ping was sent, and how long the longest answer took."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._sent_s: dict[bytes, float] = {}
        self._rest = b""

    def ping(self, now_s: float) -> bytes:
        """The frame of the next ping."""
        self.count += 1
        number = self.count.to_bytes(SIZE, "big")
        self._sent_s[number] = now_s
        return bytes((0x89, 0x80 | SIZE)) + NO_MASK + number

    def feed(self, piece: bytes, now_s: float) -> None:
        """Take in what a read gave: pongs, cut anywhere."""
        data = self._rest + piece
        whole = len(data) - len(data) % FRAME_BYTES
        for at in range(0, whole, FRAME_BYTES):
            assert data[at : at + 2] == PONG, f"no pong: {data[at : at + 50]!r}"
            sent_s = self._sent_s.pop(data[at + 2 : at + FRAME_BYTES])
            self.longest_s = max(self.longest_s, now_s - sent_s)
        self._rest = data[whole:]

    @property
    def unanswered(self) -> bool:
        """Some pings have no answer yet."""
        return bool(self._sent_s)

    def begin(self) -> None:
        """Count anew."""
        self.longest_s, self.count = 0.0, 0


def main(host: str, port: str, token: str = "") -> None:
    """The child."""
    socket = Client(host, int(port), token).socket
    socket.setblocking(False)
    waits, requested = Waits(), False
    next_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(socket, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select(max(0.0, next_s - time.monotonic())):
                if key.fileobj is not socket:
                    if not os.read(0, 64):
                        return
                    requested = True
                else:
                    waits.feed(socket.recv(READ_BYTES), time.monotonic())
            if requested and not waits.unanswered:
                print(waits.longest_s * 1000, waits.count, flush=True)
                waits.begin()
                requested = False
            if not requested and (now_s := time.monotonic()) >= next_s:
                socket.send(waits.ping(now_s))
                next_s = max(next_s + EVERY_S, now_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
