"""Low rates: what a durable message costs a server that is hardly busy.

A server that is busy joins what waits into one group for the disk, and one that is not has a group
for nearly every frame. 20,000 messages come every second, in frames of 100 and in frames of 20 (a
thousand groups, where a frame is one). The floor is the same frames as fast as they are taken.
"""

import time
from collections.abc import Iterator

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import configuration, every_order, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes
from tests.benchmarks.steady import Publisher

RATE = 20_000
FRAME_SIZES = (100, 20)
WINDOW_MESSAGES = 6400
"""What is on its way at most where the pipe is full, as in `ingest`."""
SECONDS_OF = {"full": 5.0, "quick": 2.0}


def low_rates(sizes: Sizes) -> Iterator[Figure]:
    """Processor time of the server for each message."""
    seconds = SECONDS_OF.get(sizes.name, 0.2)
    for size in FRAME_SIZES:
        frames = publishes(updates(min(sizes.messages, 100_000), sizes.keys), size)
        with ServerProcess(configuration(index=True)) as server:
            client = Client(server.host, server.port)
            client.publish(publishes(every_order(sizes.keys), 1000), 8)
            ours, floor, rates = [], [], []
            for _ in range(min(3, sizes.repetitions)):
                floor.append(_full(server, client, frames, size))
                each_us, rate = _steady(server, frames, size, seconds)
                ours.append(each_us)
                rates.append(rate)
            client.close()
        yield Figure(
            "low rates",
            f"{RATE:,} messages/s in frames of {size}, durable",
            "µs/message",
            ours,
            floor,
            "as fast as they are taken",
            note=f"{min(rates):,.0f} messages/s were taken",
        )


def _full(server: ServerProcess, client: Client, frames: list[bytes], size: int) -> float:
    before_s = server.cpu_s
    client.publish(frames, WINDOW_MESSAGES // size)
    return (server.cpu_s - before_s) * 1e6 / (len(frames) * size)


def _steady(
    server: ServerProcess, frames: list[bytes], size: int, seconds: float
) -> tuple[float, float]:
    """Microseconds for each message, and how many came a second."""
    with Publisher(Client(server.host, server.port), frames, size, RATE) as publisher:
        time.sleep(seconds / 10)
        before, before_s = publisher.progress(), server.cpu_s
        time.sleep(seconds)
        after, taken_s = publisher.progress(), server.cpu_s - before_s
    return taken_s * 1e6 / (after.updates - before.updates), after.rate_since(before)
