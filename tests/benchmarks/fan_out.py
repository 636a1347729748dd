"""Fan-out: what it costs to give a frame of 100 records to one more equal subscription.

A process of readers counts every line that arrives; the clock stops when the last of them has
everything. The floor is this process sending the same bytes to as many sockets of the same
readers. A frame is published
when the one before it is durable, since the server would join frames and so send less often than
the floor. The wall clock therefore holds a commit to disk a frame, and with few subscribers
little else; what fan-out costs is told by the processor time.
"""

import socket
import time
from collections.abc import Iterator, Sequence

from sow.engine.engine import Engine
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.boot.app import new_session_name
from sow.sessions.commands.executor import Executor
from tests.benchmarks.engines import parsed
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import configuration, framed, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes
from tests.store.in_memory import MemoryJournal

FRAME = 100
WINDOW = 1
"""Frames on their way; with more, the server joins them and so sends less often than the floor."""
BURST = 50
"""Frames between two waits for the readers, so that no session's queue overflows."""
SUBSCRIBE = '{"c":"subscribe","t":"orders","cid":"1"}'


def fan_out(sizes: Sizes) -> Iterator[Figure]:
    """Equal subscriptions of one topic."""
    for subscribers, frames in sizes.fan_out:
        yield from _fanned(sizes, subscribers, frames)


def _fanned(sizes: Sizes, subscribers: int, frames: int) -> Iterator[Figure]:
    bodies = updates(frames * FRAME, sizes.keys)
    published = publishes(bodies, FRAME)
    each_us = 1e6 / frames / subscribers
    delivered: list[tuple[int, int]] = []
    cpu: dict[str, list[float]] = {"ours": [], "floor": []}
    with (
        ServerProcess(configuration(durable=False)) as server,
        Readers(server.host, server.port, subscribers, SUBSCRIBE) as readers,
        Blaster(subscribers) as blaster,
    ):
        readers.ready()
        client = Client(server.host, server.port)
        frame = as_delivered(bodies[:FRAME])

        def deliver() -> None:
            for start in range(0, frames, BURST):
                burst = published[start : start + BURST]
                readers.expect(len(burst) * FRAME)
                client.publish(burst, WINDOW)
                delivered.append(readers.wait())

        def ours() -> float:
            before_s = server.cpu_s
            taken_s = seconds(deliver)
            cpu["ours"].append((server.cpu_s - before_s) * each_us)
            return taken_s * each_us

        def floor() -> float:
            before_s = time.process_time()
            taken_s = seconds(lambda: blaster.send(frame, frames))
            cpu["floor"].append((time.process_time() - before_s) * each_us)
            return taken_s * each_us

        wall = in_turn(sizes.repetitions, ours, floor)
        client.close()
    # The first turn does not count.
    yield _figure(subscribers, "server CPU", cpu["ours"][1:], cpu["floor"][1:], delivered)
    yield _figure(subscribers, "wall clock", wall[0], wall[1], delivered)


def _figure(
    subscribers: int,
    clock: str,
    ours: Sequence[float],
    floor: Sequence[float],
    delivered: Sequence[tuple[int, int]],
) -> Figure:
    size, frames = (sum(column) for column in zip(*delivered, strict=True))
    return Figure(
        "fan-out",
        f"{subscribers} subscribers, {clock}",
        "µs/frame/session",
        ours,
        floor,
        "send() of the same bytes",
        note=f"{size / frames / 1000:.0f} kB a frame",
    )


def as_delivered(bodies: Sequence[bytes]) -> bytes:
    """The frame that a subscriber of `orders` gets when these bodies are published."""
    engine = Engine(parsed(configuration(durable=False)))
    executor = Executor(engine, MemoryJournal(), new_session_name)
    session = executor.sessions.open(LINES, 1)
    for command in read_frame(SUBSCRIBE.encode()):
        executor.execute(session, command, 1)
    engine.sequencer.release(engine.flush())
    session.outbox.clear()
    (frame,) = framed(bodies, len(bodies))
    engine.publish("orders", frame.split(b"\n"), 2)
    engine.sequencer.release(engine.flush())
    delivered = session.pull(engine.sequencer.released, 0)
    assert delivered is not None
    return delivered


class Blaster:
    """Sends bytes to as many plain sockets of a process of readers."""

    def __init__(self, connections: int) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=connections) as listener:
            self._readers = Readers("127.0.0.1", listener.getsockname()[1], connections)
            self._sockets = [listener.accept()[0] for _ in range(connections)]
        self._readers.ready()

    def send(self, frame: bytes, times: int) -> None:
        """Send `frame` so many times to each; return when all of it has been read."""
        self._readers.expect(times * (frame.count(b"\n", 10) + 1))
        for _ in range(times):
            for connection in self._sockets:
                connection.sendall(frame)
        self._readers.wait()

    def __enter__(self) -> "Blaster":
        return self

    def __exit__(self, *_exception: object) -> None:
        self._readers.__exit__(None, None, None)
        for connection in self._sockets:
            connection.close()
