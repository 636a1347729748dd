"""Peers: the same records at the same rate through another server, in the same run.

Redis pub/sub is what many a desk bends into this job. It has no conflation, so every subscriber is
sent every update. It is started when `redis-server` is installed, and left out when it is not; its
protocol is simple enough to be spoken here without a library.
"""

import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.benchmarks.followers import BODY, Scene, played
from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import cpu_s, line_from, python, stop
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import READ_BYTES

SCENE = Scene("100 follow 10,000 keys at 1 s", 100, 20_000, 10_000, 1000)
BATCH = 100
START_S_MAX = 10.0


def peers(sizes: Sizes) -> Iterator[Figure]:
    """Ours beside Redis, if there is one."""
    program = shutil.which("redis-server")
    if program is None:
        return
    seconds = {"full": 20.0, "quick": 6.0, "tiny": 0.5}[sizes.name]
    scene = SCENE if sizes.name != "tiny" else Scene("3 follow", 3, 1000, 50, 100)
    ours = [played(scene, seconds) for _ in range(2)]
    theirs = [_redis(program, scene, seconds) for _ in range(2)]
    times = sum(size for _, size in theirs) / max(1, sum(run.bytes_each for run in ours))
    yield Figure(
        "peers",
        f"{scene.case}, cores",
        "cores",
        [run.cores for run in ours],
        [cores for cores, _ in theirs],
        "Redis pub/sub, every update",
        note=f"Redis sends each follower {times:.1f} times the bytes",
    )


def _redis(program: str, scene: Scene, seconds: float) -> tuple[float, int]:
    """Cores that Redis takes for the scene, and bytes that each subscriber gets."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        publisher = _connected(port)
        with publisher:
            drain = python("-m", "tests.benchmarks.peers", str(port), str(scene.followers))
            try:
                assert line_from(drain) == "ready"
                before_s = cpu_s(server.pid)
                _publish(publisher, scene, seconds)
                cores = (cpu_s(server.pid) - before_s) / seconds
                assert drain.stdin is not None
                drain.stdin.write("how much?\n")
                return cores, int(line_from(drain))
            finally:
                stop(drain)
    finally:
        server.terminate()
        server.wait()


def _connected(port: int) -> socket.socket:
    give_up = time.monotonic() + START_S_MAX
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            if time.monotonic() > give_up:
                raise
            # It has just been started; there is nothing to wait on but the port itself.
            selectors.DefaultSelector().select(0.05)


def _publish(publisher: socket.socket, scene: Scene, seconds: float) -> None:
    size = min(BATCH, scene.rate)
    begin, step = time.monotonic(), size / scene.rate
    with selectors.DefaultSelector() as selector:
        selector.register(publisher, selectors.EVENT_READ)
        for batch in range(round(seconds / step)):
            while (left := begin + batch * step - time.monotonic()) > 0:
                if selector.select(left):
                    publisher.recv(READ_BYTES)
            commands = []
            for number in range(batch * size, (batch + 1) * size):
                key = number % scene.keys
                body = (BODY % (key, number, key, number % 1000)).encode()
                commands.append(resp(b"PUBLISH", b"orders", body))
            publisher.sendall(b"".join(commands))


def resp(*words: bytes) -> bytes:
    """A command in Redis's protocol: an array of counted strings."""
    parts = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
    return b"".join(parts)


def main(port: str, count: str) -> None:
    """The child: subscribes so many times, reads everything, and says how much each one got."""
    total = 0
    with selectors.DefaultSelector() as selector:
        for _ in range(int(count)):
            subscriber = _connected(int(port))
            subscriber.sendall(resp(b"SUBSCRIBE", b"orders"))
            subscriber.recv(READ_BYTES)
            selector.register(subscriber, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        print("ready", flush=True)
        nothing = bytearray(READ_BYTES)
        while True:
            for key, _ in selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    if not sys.stdin.readline():
                        return
                    print(total // int(count), flush=True)
                else:
                    # For TCP the system then counts and drops without copying (tcp(7)).
                    total += key.fileobj.recv_into(nothing, READ_BYTES, socket.MSG_TRUNC)


if __name__ == "__main__":
    main(*sys.argv[1:])
