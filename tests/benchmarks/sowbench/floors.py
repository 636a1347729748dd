"""Floors: what this machine itself takes for the parts that no server can do without.

Measured again before each workload, since a shared machine is another one some minutes later.
"""

import os
import socket
import tempfile
import threading
from typing import NamedTuple

import orjson

from tests.benchmarks.measure import seconds, seconds_each
from tests.benchmarks.sowbench.load import Load

WRITE_BYTES = 20_000
"""About what a batch of 100 records takes."""
SEND_BYTES = 8 << 20


class Floors(NamedTuple):
    """Of one moment."""

    fdatasync_ms: float
    """20 KB appended to a file, then fdatasync."""
    echo_ms: float
    """A record to another thread over loopback and back."""
    send_mb_s: float
    """Bytes over loopback, read."""
    loads_us: float
    """`orjson.loads` of a record."""
    copy_mb_s: float
    """Bytes copied in memory."""

    def tick_ms(self) -> float:
        """A record written, and passed on once."""
        return self.fdatasync_ms + self.echo_ms / 2


def measured() -> Floors:
    """Now."""
    ((_, body),) = Load(1, 1, 1).records()
    content = bytes(SEND_BYTES)
    return Floors(
        _fdatasync_ms(),
        _echo_ms(body),
        SEND_BYTES / 1e6 / _send_s(content),
        seconds_each(lambda: orjson.loads(body)) * 1e6,
        SEND_BYTES / 1e6 / seconds_each(lambda: bytearray(content)),
    )


def _fdatasync_ms() -> float:
    content = bytes(WRITE_BYTES)
    with tempfile.TemporaryFile() as file:

        def once() -> None:
            os.write(file.fileno(), content)
            os.fdatasync(file.fileno())

        return seconds_each(once, 0.1) * 1000


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
    for each in (one, other):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one, other


def _echo_ms(body: bytes) -> float:
    one, other = _pair()

    def echo() -> None:
        while piece := other.recv(4096):
            other.sendall(piece)

    def once() -> None:
        one.sendall(body)
        left = len(body)
        while left:
            left -= len(one.recv(left))

    thread = threading.Thread(target=echo)
    with other, one:
        thread.start()
        found = seconds_each(once, 0.1) * 1000
        one.shutdown(socket.SHUT_WR)
        thread.join()
    return found


def _send_s(content: bytes) -> float:
    one, other = _pair()
    nothing = bytearray(1 << 18)

    def once() -> None:
        thread = threading.Thread(target=one.sendall, args=(content,))
        thread.start()
        left = len(content)
        while left:
            left -= other.recv_into(nothing)
        thread.join()

    with other, one:
        return seconds(once)
