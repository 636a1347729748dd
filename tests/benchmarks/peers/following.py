"""Following: what it costs to keep followers current, and how late they are.

Updates come at a steady rate, each at the moment that was meant for it, whether the earlier ones
were taken or not. Ours go through a conflated topic of one second, which is what it is for; Redis
and NATS have no conflation, so each follower is sent every update. Lateness is counted from the
moment an update was meant to be sent; of ours that of the first update that a line stands for, the
interval included.
"""

import re
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.benchmarks.followers import BODY, Scene, played_whole
from tests.benchmarks.peers.nats import CONNECT, Nats
from tests.benchmarks.peers.peer import connected
from tests.benchmarks.peers.redis import Redis, resp
from tests.benchmarks.processes import Child
from tests.benchmarks.sockets import READ_BYTES

BATCH = 100
NUMBER = re.compile(rb'"n":(\d+),')
TAIL_BYTES = 64
SUBSCRIBE = {
    "Redis": resp(b"SUBSCRIBE", b"orders"),
    "NATS": CONNECT + b"SUB orders 1\r\nPING\r\n",
}
SUBSCRIBED = {"Redis": b":1\r\n", "NATS": b"PONG\r\n"}


class Followed(NamedTuple):
    """What one round gave: cores, bytes to each follower, and how late each line came, in ms."""

    cores: float
    bytes_each: int
    late_ms: Sequence[float]


def ours(scene: Scene, seconds: float) -> Followed:
    """By a conflated topic."""
    run, ages_ms = played_whole(scene, seconds)
    assert not run.lost, f"{run.lost} acknowledged updates were not taken"
    return Followed(run.cores, run.bytes_each, ages_ms)


def theirs(kind: str, scene: Scene, seconds: float) -> Followed:
    """By Redis or NATS: publish and subscribe, nothing stored."""
    server: Redis | Nats = Redis("none") if kind == "Redis" else Nats("default")
    with TemporaryDirectory(prefix="peers-") as folder:
        server.open(Path(folder))
        drain = None
        try:
            if scene.followers > 1:
                drain = Child("-m", __name__, kind, str(server.port), str(scene.followers - 1))
                assert drain.hear() == "ready"
            with connected(server.port) as publisher, connected(server.port) as probe:
                subscribe(kind, probe)
                before_s = server.cpu_s()
                late_ms, size = _published(kind, publisher, probe, scene, seconds)
                return Followed((server.cpu_s() - before_s) / seconds, size, late_ms)
        finally:
            if drain is not None:
                drain.end()
            server.close()


def subscribe(kind: str, client: socket.socket) -> None:
    """Return when the server knows of it."""
    client.sendall(SUBSCRIBE[kind])
    said = b""
    while not said.endswith(SUBSCRIBED[kind]):
        said += client.recv(READ_BYTES)


def _published(
    kind: str, publisher: socket.socket, probe: socket.socket, scene: Scene, seconds: float
) -> tuple[list[float], int]:
    size = min(BATCH, scene.rate)
    step = size / scene.rate
    count = round(seconds / step)
    late_ms: list[float] = []
    rest, total = b"", 0
    if kind == "NATS":
        publisher.sendall(CONNECT)
    begin = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(publisher, selectors.EVENT_READ)
        selector.register(probe, selectors.EVENT_READ)

        def take(until: float) -> None:
            nonlocal rest, total
            while True:
                left = until - time.monotonic()
                for key, _ in selector.select(max(0.0, left)):
                    piece = key.fileobj.recv(READ_BYTES)  # type: ignore[union-attr]
                    if key.fileobj is publisher:
                        continue
                    now, data, end = time.monotonic(), rest + piece, 0
                    total += len(piece)
                    for found in NUMBER.finditer(data):
                        meant = begin + int(found[1]) // size * step
                        late_ms.append((now - meant) * 1000)
                        end = found.end()
                    rest = data[max(end, len(data) - TAIL_BYTES) :]
                if left <= 0:
                    return

        for batch in range(count):
            take(begin + batch * step)
            publisher.sendall(b"".join(_messages(kind, scene, batch * size, size)))
        give_up = time.monotonic() + 30
        while len(late_ms) < count * size:
            take(time.monotonic() + 0.01)
            assert time.monotonic() < give_up, f"{kind}: {len(late_ms)} of {count * size} came"
    return late_ms, total


def _messages(kind: str, scene: Scene, first: int, count: int) -> list[bytes]:
    bodies = [
        (BODY % (n % scene.keys, n, n % scene.keys, n % 1000)).encode()
        for n in range(first, first + count)
    ]
    if kind == "Redis":
        return [resp(b"PUBLISH", b"orders", body) for body in bodies]
    return [b"PUB orders %d\r\n%b\r\n" % (len(body), body) for body in bodies]


def main(kind: str, port: str, count: str) -> None:
    """The child: subscribes so many times and reads everything."""
    nothing = bytearray(READ_BYTES)
    with selectors.DefaultSelector() as selector:
        for _ in range(int(count)):
            subscriber = connected(int(port))
            subscribe(kind, subscriber)
            selector.register(subscriber, selectors.EVENT_READ)
        print("ready", flush=True)
        while True:
            for key, _ in selector.select():
                found = key.fileobj
                assert isinstance(found, socket.socket)
                # For TCP the system then counts and drops without copying (tcp(7)).
                if not found.recv_into(nothing, READ_BYTES, socket.MSG_TRUNC):
                    return


if __name__ == "__main__":
    main(*sys.argv[1:])
