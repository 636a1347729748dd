"""Patterns of very many topics: what one takes, and that no client waits for all of them."""

import gc
import tracemalloc
from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from sow.engine.running_topics import CopyTopic
from tests.laws.harness import SECOND, World, short

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/", durability="transient")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")


# Memory.


@pytest.mark.parametrize(
    ("definitions", "bytes_max"),
    [((DESKS,), 2_300), ((DESKS, COPIES), 5_000)],
    ids=["alone", "with a conflated topic"],
)
def test_a_topic_takes_little_memory_beside_its_records(definitions, bytes_max):
    world = World(*definitions)

    def publish(numbers):
        for number in numbers:
            world.engine.publish(f"/desk/{number}", [b'{"id":1}'], world.now)
            world.settle()
        world.advance(2 * SECOND)
        world.engine.catalog.refresh_indexes(10**9)
        gc.collect()

    def taken(numbers):
        tracemalloc.start(1)
        try:
            publish(numbers)
            return tracemalloc.get_traced_memory()[0] / len(numbers)
        finally:
            tracemalloc.stop()

    publish(range(100))  # what all of them share
    # Threads that other tests have left take something meanwhile: one of two counts is enough.
    least = min(taken(range(first, first + 500)) for first in (100, 600))
    assert len(world.engine.topics) >= 1_100
    assert least < bytes_max, "some 2,220 and 4,870 bytes were measured"


# Steps.


@pytest.fixture
def world():
    """Seven topics, each with a conflated one."""
    world = World(DESKS, COPIES)
    for number in range(7):
        world.publish(f"/desk/{number}", {"id": 1})
    world.advance(2 * SECOND)
    return world


def test_conflated_topics_go_some_at_a_time_and_no_more_come_into_being(world, monkeypatch):
    monkeypatch.setattr("sow.engine.topic_changes.LEAVING_AT_ONCE", 2)
    client = world.client()
    client.say(c="sow_and_subscribe", t="-C$", opts="oof")
    without = replace(world.configuration, topics=(DESKS,))
    steps = world.executor.reconfiguration(without, world.now)
    left = []
    for number, _ in enumerate(steps):
        world.publish(f"/desk/new-{number}", {"id": 1})
        world.check()
        left.append(sum(isinstance(topic, CopyTopic) for topic in world.engine.catalog))
    assert left[0] > left[-1]
    assert not any(isinstance(topic, CopyTopic) for topic in world.engine.catalog)
    gone = [line["t"] for line in client.lines() if line["c"] == "oof"]
    assert gone == [f"/desk/{number}-C" for number in range(7)]
    world.check()


def test_a_storm_of_new_topics_is_bounded_and_costs_connected_clients_nothing(world):
    limits = replace(world.configuration.limits, pattern_topics_max=9)
    world.executor.reconfigure(replace(world.configuration, limits=limits), world.now)
    follower, hostile = world.client(), world.client()
    follower.say(c="subscribe", t="^/desk/[0-9]$")
    reasons = [
        hostile.say(c="publish", t=f"/desk/{number}", d={"id": 1}, cid="1")[0].get("reason")
        for number in range(100, 110)
    ]
    assert reasons == [None] * 2 + ["too large"] * 8
    world.publish("/desk/3", {"id": 2})
    assert short(follower.lines()) == [("p", {"id": 2})]
    world.check()


@pytest.mark.parametrize("length", [256, 1_000, 1_025])
def test_a_name_of_many_characters_makes_no_topic_and_no_long_answer(world, length):
    client = world.client()
    name = "/desk/" + "x" * (length - 6)
    (ack,) = client.say(c="publish", t=name, d={"id": 1}, cid="1")
    assert ack["status"] == "failure"
    assert len(ack["detail"]) < 300
    assert name not in world.engine.topics
    for command in ("sow", "subscribe"):
        (ack,) = client.say(c=command, t=name, cid="2")
        assert (ack["status"], len(ack["detail"]) < 300) == ("failure", True)
