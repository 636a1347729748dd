"""Patterns of very many topics: what one takes, and that nobody waits for all of them."""

import gc
import tracemalloc

import pytest

from sow.definitions import ConflatedTopic, Topic
from tests.core.harness import SECOND, World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/", durability="transient")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")


# Memory.


@pytest.mark.parametrize(
    ("definitions", "bytes_max"),
    [((DESKS,), 2_000), ((DESKS, COPIES), 4_000)],
    ids=["alone", "with a conflated topic"],
)
def test_a_topic_takes_little_memory_beside_its_records(definitions, bytes_max):
    world = World(*definitions)

    def publish(numbers):
        for number in numbers:
            world.engine.publish(f"/desk/{number}", [b'{"id":1}'], world.now)
            world.settle()
        world.advance(2 * SECOND)
        world.engine.refresh_indexes(10**9)
        gc.collect()

    publish(range(100))  # what all of them share
    tracemalloc.start(1)
    try:
        publish(range(100, 600))
        taken = tracemalloc.get_traced_memory()[0] / 500
    finally:
        tracemalloc.stop()
    assert len(world.engine.topics) >= 600
    assert taken < bytes_max, "some 1,420 and 3,440 bytes were measured"
