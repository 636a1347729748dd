"""Tick to client: how long a published record takes to a subscriber, at a rate that is held.

    python -m tests.benchmarks.ticks publish HOST PORT RATE SECONDS
    python -m tests.benchmarks.ticks read HOST PORT COUNT [TOPIC]
    python -m tests.benchmarks.ticks relay COUNT

The publisher sends a frame each millisecond, whether the server keeps up or not (an open loop), and
writes into each record the moment at which it was due. So a wait of the publisher counts as latency
too. The first, the middle and the last subscriber read every record. Of the others the system
counts the bytes, now and then, or reading would cost more than what is measured. The floor is a
process that passes the same bytes on to as many sockets, without a disk, a key or a filter.
"""

import contextlib
import re
import selectors
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple, Self

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import Child, ServerProcess
from tests.benchmarks.records import configuration, every_order, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import READ_BYTES, Client, command, publishes

RATES = (1_000, 5_000, 20_000)
FOLLOWERS = (1, 10, 100)
CROWD_RATE = 10_000
CROWDS = (25, 50, 100, 150, 200, 300, 400, 500, 700, 1000)
CROWD_P99_MS = 10.0
TICK_S = 0.001
SECONDS_OF = {"full": 5.0, "quick": 2.0}
QUIET_S = 0.5
"""Nothing more comes after so long without a record."""
SKIM_S = 0.02
"""Interval at which each of the other sockets is emptied."""
SKIMMED_AT_ONCE = 8
"""So many of them between two looks at those that are read: a tenth of a millisecond."""
BUFFER_BYTES = 4 << 20
"""Receive buffer: more than arrives between two of these moments."""
KEYS = 20_000
CONFLATED_MS = 100
CONFLATED = f"""<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>{CONFLATED_MS}ms</Interval></ConflatedTopic>"""
STAMP = re.compile(rb'"ts":(\d{16})')
ERA_US = 10**15
"""Added to each moment, so that it always has 16 digits, as the field had before."""


def now_us() -> int:
    """Microseconds of a clock that all processes of this machine share."""
    return time.monotonic_ns() // 1000


class Latencies(NamedTuple):
    """What the sampled subscribers saw, in milliseconds, and how many records the fewest got."""

    p50_ms: float
    p99_ms: float
    p9999_ms: float
    fewest: int

    @classmethod
    def of(cls, taken_us: Sequence[Sequence[int]]) -> Self:
        """From the microseconds of each subscriber."""
        sorted_us = sorted(one for each in taken_us for one in each)
        if not sorted_us:
            raise ConnectionError("nothing was delivered")
        ranks = (sorted_us[int(len(sorted_us) * part)] / 1000 for part in (0.5, 0.99, 0.9999))
        return cls(*ranks, min(map(len, taken_us)))


# The children.


def publish(host: str, port: str, rate: str, seconds: str) -> None:
    """Send frames on time, for so long; write how many records they had once all are taken."""
    size = max(1, int(int(rate) * TICK_S))
    step_s = size / int(rate)
    frames = [bytearray(one) for one in publishes(updates(size * 256, KEYS), size)]
    places = [[found.span(1) for found in STAMP.finditer(frame)] for frame in frames]
    client = Client(host, int(port))
    client.socket.setblocking(False)
    begun_s = time.monotonic()
    for number in range(int(float(seconds) / step_s)):
        due_s = begun_s + number * step_s
        while (left_s := due_s - time.monotonic()) > 0:
            time.sleep(left_s)
        frame = frames[number % len(frames)]
        stamp = b"%d" % (ERA_US + int(due_s * 1e6))
        for start, end in places[number % len(frames)]:
            frame[start:end] = stamp
        _send(client.socket, frame)
    say(str((number + 1) * size))
    sys.stdin.readline()


def _send(connection: socket.socket, frame: bytearray) -> None:
    """Send a frame whole, and throw away the acks that have come."""
    rest = memoryview(frame)
    while rest:
        try:
            rest = rest[connection.send(rest) :]
        except BlockingIOError:
            time.sleep(TICK_S / 4)
        with contextlib.suppress(BlockingIOError):
            connection.recv(READ_BYTES)


class Sampled:
    """A subscriber that reads every record."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.taken_us: list[int] = []

    def read(self) -> None:
        """Take what has come; records may be cut anywhere."""
        piece = self._connection.recv(READ_BYTES)
        at_us = ERA_US + now_us()
        if not piece:
            raise ConnectionError("the server closed a subscriber's connection")
        data, end = self._rest + piece, 0
        for found in STAMP.finditer(data):
            self.taken_us.append(at_us - int(found[1]))
            end = found.end()
        self._rest = data[max(end, len(data) - 32) :]


def read(host: str, port: str, count: str, topic: str = "") -> None:
    """Subscribe so often; after a line of standard input write what has been seen."""
    connections = [_subscribed(host, int(port), topic) for _ in range(int(count))]
    chosen = {0, len(connections) // 2, len(connections) - 1}
    sampled = [Sampled(connections[at]) for at in sorted(chosen)]
    others = [one for at, one in enumerate(connections) if at not in chosen]
    selector = selectors.DefaultSelector()
    for one, at in zip(sampled, sorted(chosen), strict=True):
        selector.register(connections[at], selectors.EVENT_READ, one)
    selector.register(sys.stdin, selectors.EVENT_READ)
    say("ready")
    nothing, is_ending = bytearray(READ_BYTES), False
    starts = range(0, len(others), SKIMMED_AT_ONCE)
    parts = cycle([others[at : at + SKIMMED_AT_ONCE] for at in starts] or [[]])
    pause_s = SKIM_S / max(1, len(starts))
    skimmed_s = read_s = time.monotonic()
    while not is_ending or time.monotonic() - read_s < QUIET_S:
        for key, _ in selector.select(pause_s):
            if key.data is None:
                is_ending = True
                selector.unregister(sys.stdin)
            else:
                key.data.read()
                read_s = time.monotonic()
        if time.monotonic() - skimmed_s >= pause_s:
            skimmed_s = time.monotonic()
            for connection in next(parts):
                _skim(connection, nothing)
    say(" ".join(map(str, Latencies.of([one.taken_us for one in sampled]))))


def _subscribed(host: str, port: int, topic: str) -> socket.socket:
    connection = Client(host, port).socket if topic else socket.create_connection((host, port))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    if topic:
        connection.sendall(command(c="subscribe", t=topic, cid="1"))
        connection.recv(READ_BYTES)
    connection.setblocking(False)
    return connection


def _skim(connection: socket.socket, nothing: bytearray) -> None:
    size = READ_BYTES
    while size == READ_BYTES:
        try:
            size = connection.recv_into(nothing, READ_BYTES, socket.MSG_TRUNC)
        except BlockingIOError:
            return
    if not size:
        raise ConnectionError("the server closed a subscriber's connection")


def relay(count: str) -> None:
    """Pass what a publisher sends on to `count` sockets that have connected before it."""
    with socket.create_server(("127.0.0.1", 0), backlog=int(count) + 1) as listener:
        say(str(listener.getsockname()[1]))
        readers = [listener.accept()[0] for _ in range(int(count))]
        for reader in readers:
            # Else what is shorter than a segment waits for those before it to be acknowledged.
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        publisher = listener.accept()[0]
    publisher.recv(READ_BYTES)
    publisher.sendall(b"\r\n\r\n")
    while piece := publisher.recv(READ_BYTES):
        for reader in readers:
            reader.sendall(piece)
    sys.stdin.readline()


def say(line: str) -> None:
    print(line, flush=True)


# The parent.


Address = tuple[str, int]
"""A host, and a port of it."""


def _measured(
    publish_to: Address, read_from: Address, followers: int, rate: int, seconds: float, topic: str
) -> str:
    """What the readers of one run write, and how many records were published."""
    program = ("-m", "tests.benchmarks.ticks")
    with Child(*program, "read", *map(str, read_from), str(followers), topic) as readers:
        assert readers.hear() == "ready"
        with Child(
            *program, "publish", *map(str, publish_to), str(rate), str(seconds)
        ) as publisher:
            published = publisher.hear()
            readers.say("end")
            return f"{readers.hear()} {published}"


class Run(NamedTuple):
    """One rate to so many followers of a topic."""

    rate: int
    followers: int
    topic: str = "orders"

    def ours(
        self, server: ServerProcess, seconds: float, over: ServerProcess | None = None
    ) -> Latencies:
        """What the server's subscribers see, or those of one `over` which they follow; raises
        ConnectionError if records were lost."""
        there = over or server
        publish_to, read_from = (server.host, server.port), (there.host, there.port)
        text = _measured(publish_to, read_from, self.followers, self.rate, seconds, self.topic)
        return self._read(text)

    def floor(self, seconds: float) -> Latencies:
        """What those of the relay see."""
        with Child("-m", "tests.benchmarks.ticks", "relay", str(self.followers)) as relaying:
            here = "127.0.0.1", int(relaying.hear())
            text = _measured(here, here, self.followers, self.rate, seconds, "")
        return self._read(text)

    def _read(self, text: str) -> Latencies:
        *figures, fewest, published = text.split()
        if self.topic == "orders" and int(fewest) != int(published):
            raise ConnectionError(f"{fewest} of {published} records were delivered")
        return Latencies(*map(float, figures), int(fewest))


def ticks(sizes: Sizes) -> Iterator[Figure]:
    """Latency at each rate and number of followers, and how many followers one core serves."""
    seconds = SECONDS_OF.get(sizes.name, 0.2)
    is_tiny = sizes.name not in SECONDS_OF
    with ServerProcess(configuration(index=True).replace("</SOW>", CONFLATED + "</SOW>")) as server:
        client = Client(server.host, server.port)
        client.publish(publishes(every_order(KEYS), 1000), 8)
        client.close()
        for followers in FOLLOWERS[: 1 if is_tiny else None]:
            for rate in RATES[: 1 if is_tiny else None]:
                run = Run(rate, followers)
                yield from _figures(run, server, seconds, sizes.repetitions)
            conflated = Run(RATES[-1], followers, "orders-C")
            yield from _figures(conflated, server, seconds, sizes.repetitions)
        if not is_tiny:
            yield _crowd(server, seconds)


def _figures(run: Run, server: ServerProcess, seconds: float, repetitions: int) -> Iterator[Figure]:
    ours, floor = [], []
    for _ in range(min(3, repetitions)):
        ours.append(run.ours(server, seconds))
        floor.append(run.floor(seconds))
    worst_ms = max(one.p9999_ms for one in ours)
    kind = f", conflated {CONFLATED_MS} ms" if run.topic != "orders" else ""
    for name, at in (("p50", 0), ("p99", 1)):
        yield Figure(
            "tick to client",
            f"{run.rate:,}/s, {run.followers} followers{kind}, {name}",
            "ms",
            [one[at] for one in ours],
            [one[at] for one in floor],
            "a relay of the bytes",
            note=f"p99.99 {worst_ms:.3g} ms",
        )


def _crowd(server: ServerProcess, seconds: float) -> Figure:
    """The most followers whose 99th percentile is under `CROWD_P99_MS`, none of them dropped."""
    most, cores, p99_ms = {"ours": 0, "floor": 0}, 0.0, 0.0
    for followers in CROWDS:
        run, before_s = Run(CROWD_RATE, followers), server.cpu_s
        try:
            found = run.ours(server, seconds)
        except ConnectionError:
            break  # some did not keep up
        if found.p99_ms < CROWD_P99_MS:
            most["ours"] = followers
            cores, p99_ms = (server.cpu_s - before_s) / seconds, found.p99_ms
        if run.floor(seconds).p99_ms < CROWD_P99_MS:
            most["floor"] = followers
        if max(most.values()) < followers:
            break
    return Figure(
        "followers of one core",
        f"{CROWD_RATE:,}/s, p99 under {CROWD_P99_MS:g} ms",
        "followers",
        [most["ours"]],
        [most["floor"]],
        "a relay of the bytes",
        note=f"p99 {p99_ms:.3g} ms, {cores:.2f} cores",
    )


if __name__ == "__main__":
    {"publish": publish, "read": read, "relay": relay}[sys.argv[1]](*sys.argv[2:])
