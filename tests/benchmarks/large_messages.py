"""Large messages: how often a server goes through the bytes of a message of 10 KB and more.

The floor is one pass: msgspec reads the message once for its key, which checks its JSON from end to
end. Ours is all that is done with the line of a publish, less what the same takes with a message of
one leg: so the floor goes into it as often as there are passes over the bytes. Over WebSocket,
network, log and disk are passes, too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from statistics import median

import msgspec
import orjson

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, frame

SIZES_BYTES = (10_000, 100_000)
LEG_BYTES = 150
WINDOW_BYTES, WINDOW_MAX = 400_000, 200
LEAST_US = 1e-3
HEAD = b'{"c":"publish","t":"orders","cid":"1","a":"persisted","d":'


class Order(msgspec.Struct):
    """The field by which records are told apart."""

    id: int


class Keyed(msgspec.Struct):
    """The least that has to be read of a message."""

    order: Order


def large_messages(sizes: Sizes) -> Iterator[Figure]:
    """An order with as many legs as make its size, in frames of one."""
    for size_bytes in SIZES_BYTES:
        count = max(2, sizes.messages * 10 // size_bytes)
        small, bodies = orders(LEG_BYTES, 10 * count), orders(size_bytes, count)
        beside = Beside(sizes, size_bytes, small, bodies)
        yield beside.figure("in the engine", _in_engine)
        with ServerProcess(configuration()) as server:
            client = Client(server.host, server.port)
            sent = partial(_over_websocket, server, client)
            yield beside.figure("over WebSocket, durable", sent)
            client.close()


def orders(size_bytes: int, count: int) -> list[bytes]:
    """Different orders of about this size, of numbers and texts as trades have them."""
    draw = Random(3)
    return [_order(key, size_bytes, draw) for key in range(count)]


def _order(key: int, size_bytes: int, draw: Random) -> bytes:
    legs = [
        {
            "symbol": f"S{draw.randrange(5000)}",
            "px": round(draw.random() * 1000, 3),
            "qty": draw.randrange(1000),
            "side": "buy" if draw.random() < 0.5 else "sell",
            "note": "a leg of an order, with some text beside its numbers",
            "ts": 1731000000000000 + draw.randrange(10**9),
        }
        for _ in range(size_bytes // LEG_BYTES)
    ]
    return bytes(memoryview(orjson.dumps({"order": {"id": key}, "legs": legs})))


def lines(bodies: Sequence[bytes]) -> list[bytes]:
    """The publish of each message."""
    return [HEAD + body + b"}" for body in bodies]


def _each_us(work: Callable[[], object], count: int) -> float:
    return cpu_seconds(work) * 1e6 / count


Sent = Callable[[Sequence[bytes]], Callable[[], float]]
"""Given messages, what measures how many microseconds each of them takes."""


class Beside:
    """Large messages beside small ones."""

    def __init__(
        self, sizes: Sizes, size_bytes: int, small: Sequence[bytes], bodies: Sequence[bytes]
    ) -> None:
        self._sizes = sizes
        self._size_bytes = size_bytes
        self._small, self._bodies = small, bodies

    def figure(self, where: str, sent: Sent) -> Figure:
        """What a large message takes more than a small one."""
        read = msgspec.json.Decoder(Keyed).decode
        bodies = self._bodies
        small, large, floor = in_turn(
            self._sizes.repetitions,
            sent(self._small),
            sent(bodies),
            lambda: _each_us(lambda: [read(body) for body in bodies], len(bodies)),
        )
        ours = [max(LEAST_US, more - less) for less, more in zip(small, large, strict=True)]
        case = f"{self._size_bytes // 1000} KB, {where}"
        note = f"beside the {median(small):.0f} µs of a small one"
        return Figure(
            "large messages", case, "µs/message", ours, floor, "msgspec reads it once", note=note
        )


def _in_engine(bodies: Sequence[bytes]) -> Callable[[], float]:
    driver = EngineDriver(configuration())
    frames = lines(bodies)
    return lambda: _each_us(lambda: driver.send(frames), len(bodies))


def _over_websocket(
    server: ServerProcess, client: Client, bodies: Sequence[bytes]
) -> Callable[[], float]:
    frames = [frame(line) for line in lines(bodies)]
    window = min(WINDOW_MAX, max(2, WINDOW_BYTES // len(bodies[0])))

    def measure() -> float:
        before_s = server.cpu_s
        client.publish(frames, window)
        return (server.cpu_s - before_s) * 1e6 / len(bodies)

    return measure
