"""Memory: what a server has grown by for each record it holds, against the bare bytes."""

from collections.abc import Iterator

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.queries import load
from tests.benchmarks.records import configuration
from tests.benchmarks.sizes import Sizes

REPETITIONS_MAX = 3
"""Counting bytes varies little and loading takes long."""


def memory(sizes: Sizes) -> Iterator[Figure]:
    """A topic with one hash index, filled over a WebSocket."""
    ours, floor = [], []
    for _ in range(min(REPETITIONS_MAX, sizes.repetitions)):
        with ServerProcess(configuration(index=True)) as server:
            before = server.memory_bytes
            body_bytes = load(server, sizes.records)
            ours.append((server.memory_bytes - before) / sizes.records)
            floor.append(body_bytes / sizes.records)
    yield Figure(
        "memory", f"{sizes.records} records, hash index", "B/record", ours, floor, "raw bytes"
    )
