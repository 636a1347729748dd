"""Readers: a process that holds many connections and counts what arrives on each.

    python -m tests.benchmarks.readers HOST PORT COUNT [COMMAND [TOKEN]]

connects COUNT times, as WebSockets that send COMMAND first if there is one, else as plain
sockets, and writes "ready". In COMMAND, and in the TOKEN by which they may say who they are, `{n}`
is the number of each, and `{digit}` the last digit of it. For each number it then reads from its
standard input it writes "done BYTES FRAMES", of one connection, once every one has got that many
more lines. It reads whatever arrives in between as well, so a server never waits for it longer than
it must.
"""

import os
import selectors
import socket
import sys
import time

from tests.benchmarks.processes import Child
from tests.benchmarks.sockets import PONG, READ_BYTES, Client, LineCounter, frame

PING_BYTES = 2
"""A ping on its own; no frame with a line in it is as short."""
HEADER_BYTES = 10
"""The longest header of a frame: another connection may get the same lines in fewer frames."""
PONG_EVERY_S = 5.0
"""A ping may have come with a line, unseen: a pong that nobody has asked for answers it."""


class Readers(Child):
    """The parent's end of such a process."""

    def __init__(
        self, host: str, port: int, count: int, command: str = "", token: str = ""
    ) -> None:
        arguments = [host, str(port), str(count), *([command, token] if command else [])]
        super().__init__("-m", "tests.benchmarks.readers", *arguments)

    def ready(self) -> None:
        """Wait until all are connected and have subscribed."""
        assert self.hear() == "ready"

    def expect(self, lines: int) -> None:
        """Say how many more lines each connection is going to get."""
        self.say(str(lines))
        assert self.hear() == "expecting"

    def wait(self) -> tuple[int, int]:
        """Wait until they have come; returns the bytes and frames that each connection got."""
        word, size, frames = self.hear().split()
        assert word == "done"
        return int(size), int(frames)

    def check(self) -> None:
        """Raise ConnectionError if the server has closed one of the connections."""
        if self.has_ended:
            raise ConnectionError("a reader has given up; see what it wrote")


class Drain:
    """The child: reads every connection and standard input as they have something.

    All connections get the same lines, so only the first one is read and its lines counted. Of
    the others the system counts the bytes and throws them away, or readers would cost more
    than what they measure.
    """

    def __init__(self, connections: list[socket.socket]) -> None:
        self._selector = selectors.DefaultSelector()
        self._first, self._counter = connections[0], LineCounter()
        self._bytes = dict.fromkeys(connections[1:], 0)
        self._ponged_s = dict.fromkeys(connections, 0.0)
        self._lines_wanted = 0
        self._nothing = bytearray(READ_BYTES)
        for connection in connections:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> None:
        """Read until standard input ends."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._first:
                    self._read()
                elif isinstance(key.fileobj, socket.socket):
                    self._skim(key.fileobj)
                elif not self._expect(os.read(0, 64)):
                    return
            if self._lines_wanted and self._counter.lines >= self._lines_wanted:
                self._finish()

    def _expect(self, line: bytes) -> bool:
        if not line:
            return False
        self._counter.lines = self._counter.bytes = self._counter.frames = 0
        self._bytes = dict.fromkeys(self._bytes, 0)
        self._lines_wanted = int(line)
        say("expecting")
        return True

    def _finish(self) -> None:
        """Say that all is here, if every other connection is as far as the first."""
        each, frames = self._counter.bytes, self._counter.frames
        least = each - HEADER_BYTES * frames
        if not self._counter.left and min(self._bytes.values(), default=each) >= least:
            self._lines_wanted = 0
            say(f"done {each} {frames}")

    def _read(self) -> None:
        piece = self._first.recv(READ_BYTES)
        if not piece:
            raise ConnectionError("the server closed a reader's connection")
        self._counter.feed(piece)
        for _ in range(self._counter.pings):
            self._first.send(PONG)
        self._counter.pings = 0

    def _skim(self, connection: socket.socket) -> None:
        # For TCP the system then counts and drops without copying (tcp(7)).
        size = connection.recv_into(self._nothing, READ_BYTES, socket.MSG_TRUNC)
        if not size:
            raise ConnectionError("the server closed a reader's connection")
        now_s = time.monotonic()
        if size == PING_BYTES or now_s - self._ponged_s[connection] > PONG_EVERY_S:
            self._ponged_s[connection] = now_s
            connection.send(PONG)
        if size != PING_BYTES:
            self._bytes[connection] += size


def say(line: str) -> None:
    print(line, flush=True)


def connect(host: str, port: int, command: str | None, token: str, number: int) -> socket.socket:
    if command is None:
        return socket.create_connection((host, port))
    client = Client(host, port, token.replace("{n}", str(number)))
    text = command.replace("{n}", str(number)).replace("{digit}", str(number % 10))
    client.socket.sendall(frame(text.encode()))
    client.read()
    return client.socket


def main(host: str, port: str, count: str, command: str | None = None, token: str = "") -> None:
    drain = Drain([connect(host, int(port), command, token, n) for n in range(int(count))])
    say("ready")
    drain.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
