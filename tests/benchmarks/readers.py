"""Readers: a process that holds many connections and counts what arrives on each.

    python -m tests.benchmarks.readers HOST PORT COUNT [COMMAND]

connects COUNT times, as WebSockets that send COMMAND first if there is one, else as plain
sockets, and writes "ready". For each number it then reads from its standard input it writes
"done BYTES" once every connection has got that many more lines. It reads whatever arrives in
between as well, so a server never waits for it longer than it must.
"""

import os
import selectors
import socket
import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.benchmarks.processes import line_from, python, stop
from tests.benchmarks.sockets import PONG, READ_BYTES, Client, LineCounter, frame


class Readers:
    """The parent's end of such a process."""

    def __init__(self, host: str, port: int, count: int, command: str = "") -> None:
        arguments = [host, str(port), str(count), *([command] if command else [])]
        self._process: subprocess.Popen[str] = python("-m", "tests.benchmarks.readers", *arguments)

    def ready(self) -> None:
        """Wait until all are connected and have subscribed."""
        assert line_from(self._process) == "ready"

    def expect(self, lines: int) -> None:
        """Say how many more lines each connection is going to get."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{lines}\n")
        assert line_from(self._process) == "expecting"

    def wait(self) -> int:
        """Wait until they have come; returns how many bytes came with them, over all."""
        word, count = line_from(self._process).split()
        assert word == "done"
        return int(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        stop(self._process)


class Drain:
    """The child: reads every connection and standard input as they have something."""

    def __init__(self, connections: list[socket.socket]) -> None:
        self._selector = selectors.DefaultSelector()
        self._counters = {connection: LineCounter() for connection in connections}
        self._wanted = self._bytes_before = 0
        self._short = 0
        """Connections that still lack lines; 0 also when nothing is expected."""
        for connection in connections:
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> None:
        """Read until standard input ends."""
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)
                elif not self._expect(os.read(0, 64)):
                    return

    def _expect(self, line: bytes) -> bool:
        if not line:
            return False
        for counter in self._counters.values():
            counter.lines = 0
        self._wanted, self._short = int(line), len(self._counters)
        self._bytes_before = self._bytes()
        say("expecting")
        return True

    def _bytes(self) -> int:
        return sum(counter.bytes for counter in self._counters.values())

    def _read(self, connection: socket.socket) -> None:
        counter = self._counters[connection]
        lacked = counter.lines < self._wanted
        try:
            piece = connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not piece:
            raise ConnectionError("the server closed a reader's connection")
        counter.feed(piece)
        for _ in range(counter.pings):
            connection.send(PONG)
        counter.pings = 0
        if lacked and counter.lines >= self._wanted:
            self._short -= 1
            if not self._short:
                say(f"done {self._bytes() - self._bytes_before}")


def say(line: str) -> None:
    print(line, flush=True)


def connect(host: str, port: int, command: str | None) -> socket.socket:
    if command is None:
        return socket.create_connection((host, port))
    client = Client(host, port)
    client.socket.sendall(frame(command.encode()))
    client.read()
    return client.socket


def main(host: str, port: str, count: str, command: str | None = None) -> None:
    drain = Drain([connect(host, int(port), command) for _ in range(int(count))])
    say("ready")
    drain.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
