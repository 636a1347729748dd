"""Memory: what a server has grown by for each record it holds, against the bare bytes; and what a
view adds for each of its groups, against the records that are grouped."""

from collections.abc import Iterator

from tests.benchmarks.measure import Figure
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.queries import load
from tests.benchmarks.records import configuration
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.views import BY_ACCOUNT, ENDING

REPETITIONS_MAX = 3
"""Counting bytes varies little and loading takes long."""
GROUPED_SHARE = 5
"""Records that are grouped are this part of all: each is a group by itself, of which so many tell
what one takes."""
LEAST_BYTES = 1
"""What is less is a system that had as much left over, as with the few records of a smoke test."""


def memory(sizes: Sizes) -> Iterator[Figure]:
    """A topic with one hash index, filled over a WebSocket; and another one with a view."""
    records, groups = sizes.records, sizes.records // GROUPED_SHARE
    plain = configuration()
    by_order = BY_ACCOUNT.replace("/acct", "/order/id")
    viewed = plain.replace(ENDING, by_order + ENDING)
    ours, raw, grouped, ungrouped = [], [], [], []
    for _ in range(min(REPETITIONS_MAX, sizes.repetitions)):
        grown, body_bytes = _filled(configuration(index=True), records)
        ours.append(grown / records)
        raw.append(body_bytes / records)
        without, _ = _filled(plain, groups)
        grown, _ = _filled(viewed, groups)
        grouped.append(max(LEAST_BYTES, grown - without) / groups)
        ungrouped.append(max(LEAST_BYTES, without) / groups)
    yield Figure("memory", f"{records} records, hash index", "B/record", ours, raw, "raw bytes")
    yield Figure(
        "memory of a view",
        f"{groups} groups of a record, five aggregates",
        "B/group",
        grouped,
        ungrouped,
        "the records",
    )


def _filled(xml: str, records: int) -> tuple[int, int]:
    """By how many bytes a server grows that is filled, and how many were published."""
    with ServerProcess(xml) as server:
        before = server.memory_bytes
        body_bytes = load(server, records)
        return server.memory_bytes - before, body_bytes
