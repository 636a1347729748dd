"""A snapshot: a whole topic as NDJSON over HTTP, and how much memory the server takes for it.

The floor is the same bytes sent through a socket of this process.
"""

import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Thread

from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.queries import WAY, load
from tests.benchmarks.records import configuration
from tests.benchmarks.sizes import Sizes

READ_BYTES = 256 * 1024
NDJSON = {"Accept": "application/x-ndjson"}


def snapshot(sizes: Sizes) -> Iterator[Figure]:
    """All records of a topic by one reader."""
    with ServerProcess(configuration(index=True)) as server:
        size = load(server, sizes.records) + sizes.records
        content = bytes(size)
        peaks: list[int] = []

        def ours() -> float:
            server.forget_peak()
            before = server.resident_bytes
            taken_s = seconds(lambda: fetch(server, size))
            peaks.append(server.memory_peak_bytes - before)
            return sizes.records / taken_s

        taken = in_turn(
            sizes.repetitions, ours, lambda: sizes.records / seconds(lambda: send(content))
        )
    note = f"at its peak {max(peaks) / 1e6:.0f} MB over what it held"
    yield Figure(
        "snapshot over HTTP",
        f"{sizes.records} records, NDJSON",
        "rows/s",
        taken[0],
        taken[1],
        "the same bytes through a socket",
        note=note,
    )


def fetch(server: ServerProcess, size: int) -> None:
    """Read a whole topic and check that it is whole."""
    connection = HTTPConnection(server.host, server.port)
    connection.request("GET", WAY, headers=NDJSON)
    response = connection.getresponse()
    taken = 0
    while piece := response.read(READ_BYTES):
        taken += len(piece)
    connection.close()
    assert taken == size, f"{taken} bytes instead of {size}"


def send(content: bytes) -> None:
    """Send bytes over the loopback interface and read them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    with sender, receiver:
        thread = Thread(target=sender.sendall, args=(content,))
        thread.start()
        left = len(content)
        while left:
            left -= len(receiver.recv(READ_BYTES))
        thread.join()
