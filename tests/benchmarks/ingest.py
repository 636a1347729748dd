"""Ingest: from a publisher's frame to its acknowledgement, and the engine's part of it alone.

The floor is what no server can do without: split each frame and decode each record once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import product

import orjson

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes

VARIANTS = {
    "bare": (False, False),
    "hash index": (True, False),
    "hash index + conflated": (True, True),
}
WINDOW_MESSAGES = 6400
"""Unacknowledged messages on their way: 64 frames of 100."""
SUBSCRIBE_COPY = '{"c":"subscribe","t":"orders-C","cid":"1"}'
FLOOR = "split + orjson.loads"


def over_websocket(sizes: Sizes) -> Iterator[Figure]:
    """A real server and a publisher in another process, `persisted` acks; what costs most once more
    on uvloop, where that is installed."""
    for (variant, (index, conflated)), durable in product(VARIANTS.items(), (True, False)):
        label = f"{variant}, {'durable' if durable else 'transient'}"
        xml = configuration(index, conflated, durable)
        yield from _over_websocket(sizes, label, xml, conflated)
    if find_spec("uvloop") is not None:
        label = "hash index + conflated, durable, on uvloop"
        yield from _over_websocket(sizes, label, configuration(True, True), True, "uvloop")


def _over_websocket(
    sizes: Sizes, label: str, xml: str, conflated: bool, loop: str = "asyncio"
) -> Iterator[Figure]:
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(xml, loop=loop))
        readers: list[Readers] = []
        if conflated:
            readers = [Readers(server.host, server.port, 1, SUBSCRIBE_COPY)]
            stack.enter_context(readers[0]).ready()
        client = Client(server.host, server.port)
        stack.callback(client.close)
        client.publish(publishes(every_order(sizes.keys), 1000), WINDOW_MESSAGES // 1000)
        for size in sizes.frame_sizes:
            yield _published(sizes, size, label, server, client)
            for reader in readers:
                reader.check()


def _published(
    sizes: Sizes, size: int, label: str, server: ServerProcess, client: Client
) -> Figure:
    bodies = updates(sizes.singles if size == 1 else sizes.messages, sizes.keys)
    frames = publishes(bodies, size)
    window = max(2, min(1000, WINDOW_MESSAGES // size))
    cpu_s: list[float] = []

    def ours() -> float:
        before_s = server.cpu_s
        taken_s = seconds(lambda: client.publish(frames, window))
        cpu_s.append(server.cpu_s - before_s)
        return len(bodies) / taken_s

    ours_each, floor_each = in_turn(sizes.repetitions, ours, decoding(framed(bodies, size)))
    counted = cpu_s[1:]  # the first turn does not count
    return Figure(
        "ingest over WebSocket",
        f"frames of {size}, {label}",
        "messages/s",
        ours_each,
        floor_each,
        FLOOR,
        server_cpu_us=sum(counted) / len(counted) / len(bodies) * 1e6,
    )


def numbered(sizes: Sizes) -> Iterator[Figure]:
    """What numbers cost a publisher that uses them: with and without, in turn, on one connection;
    by the processor's time of the server."""
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(configuration(False, False)))
        client = Client(server.host, server.port)
        stack.callback(client.close)
        client.publish(publishes(every_order(sizes.keys), 1000), WINDOW_MESSAGES // 1000)
        client.ask(c="logon", client="feed", sequence=True, cid="1")
        turns = NumberedTurns(server, client)
        for size in sizes.frame_sizes:
            turns.begin(updates(sizes.singles if size == 1 else sizes.messages, sizes.keys), size)
            ours, floor = in_turn(sizes.repetitions, turns.with_numbers, turns.without)
            yield Figure(
                "ingest with numbers",
                f"frames of {size}",
                "messages/s",
                ours,
                floor,
                "without, both by the server's processor time",
            )


class NumberedTurns:
    """Publishes the same bodies with and without numbers; returns messages for each second of the
    server's processor time."""

    def __init__(self, server: ServerProcess, client: Client) -> None:
        self._server = server
        self._client = client
        self._seq = 1
        self._size = 1
        self._bodies: Sequence[bytes] = ()

    def begin(self, bodies: Sequence[bytes], size: int) -> None:
        """These bodies from now on, so many in a frame."""
        self._bodies, self._size = bodies, size

    def with_numbers(self) -> float:
        """The next numbers of the name."""
        seq, self._seq = self._seq, self._seq + len(self._bodies)
        return self._rate(seq)

    def without(self) -> float:
        """As anybody publishes."""
        return self._rate(None)

    def _rate(self, seq: int | None) -> float:
        frames = publishes(self._bodies, self._size, seq=seq)
        before_s = self._server.cpu_s
        self._client.publish(frames, max(2, min(1000, WINDOW_MESSAGES // self._size)))
        return len(self._bodies) / max(self._server.cpu_s - before_s, 1e-9)


def in_engine(sizes: Sizes) -> Iterator[Figure]:
    """The same without network and disk: `Engine.publish`, `flush`, `release`."""
    for variant, (index, conflated) in VARIANTS.items():
        driver = EngineDriver(configuration(index, conflated))
        driver.load(every_order(sizes.keys))
        for size in sizes.frame_sizes:
            bodies = updates(sizes.singles if size == 1 else sizes.messages, sizes.keys)
            frames = framed(bodies, size)
            ours, floor = in_turn(
                sizes.repetitions, _publishing(driver, frames, len(bodies)), decoding(frames)
            )
            yield Figure(
                "ingest in the engine",
                f"frames of {size}, {variant}",
                "messages/s",
                ours,
                floor,
                FLOOR,
            )


def _publishing(driver: EngineDriver, frames: Sequence[bytes], count: int) -> Callable[[], float]:
    frame_us = max(1, 4 * count // len(frames))
    return lambda: count / seconds(lambda: driver.publish(frames, frame_us))


def series(sizes: Sizes) -> Iterator[Figure]:
    """Appends to a series in the engine, beside plain ingest of the same frames."""
    xml, retain = configuration(), "<Series><Retain>limit 100</Retain></Series></Topic>"
    plain, driver = EngineDriver(xml), EngineDriver(xml.replace("</Topic>", retain))
    for size in sizes.frame_sizes:
        bodies = updates(sizes.singles if size == 1 else sizes.messages, sizes.keys)
        frames = framed(bodies, size)
        count = len(bodies)
        ours, floor = in_turn(
            sizes.repetitions,
            _publishing(driver, frames, count),
            _publishing(plain, frames, count),
        )
        yield Figure(
            "series", f"frames of {size}", "appends/s", ours, floor, "ingest of a plain topic"
        )


def decoding(frames: Sequence[bytes]) -> Callable[[], float]:
    """The floor of ingest, in messages a second."""

    def decode() -> None:
        for frame in frames:
            for line in frame.split(b"\n"):
                orjson.loads(line)

    count = sum(frame.count(b"\n") + 1 for frame in frames)
    return lambda: count / seconds(decode)
