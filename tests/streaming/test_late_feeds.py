"""What is late grows by batches that cost nobody anything, and counts for its client."""

from dataclasses import replace

import pytest

from sow.core.definitions import Limits
from sow.protocol.replies import QUEUE_MEMORY
from sow.streaming import late_feeds, late_turns, router
from tests.laws.harness import ORDERS, World

COUNT = 20


@pytest.fixture
def world(monkeypatch):
    """A world in which each change is late for its followers, and nobody is waited for."""
    monkeypatch.setattr(router, "AT_ONCE_US", 1)
    monkeypatch.setattr(late_turns, "ORDERED_US", 1)
    return World(ORDERS)


def followed(world):
    client = world.client()
    for at in range(COUNT):
        client.say(c="subscribe", t="orders", opts=f"select=[/id,/f{at}]")
    return client, [feed.channel for feed in world.engine.topics["orders"].router.feeds()]


def publish(world, number):
    world.engine.publish("orders", [b'{"id":%d}' % number], world.now)


def test_a_batch_more_is_added_once_for_all(world):
    client, channels = followed(world)
    for number in range(10):
        publish(world, number)
    assert {len(channel.late) for channel in channels} == {1}
    assert len({id(channel.late[0]) for channel in channels}) == 1
    world.check()
    world.settle()
    lines = client.lines()
    for channel in channels:
        got = [line["d"]["id"] for line in lines if line["s"] == channel.name]
        assert got == [*range(10)]
    world.check()
    assert client.session.memory.waiting_bytes(1) == 0


def test_so_many_records_that_leave_at_once_are_added_to(world, monkeypatch):
    monkeypatch.setattr(late_feeds, "TOGETHER_RECORDS", 3)
    _, channels = followed(world)
    for number in range(7):
        publish(world, number)
    assert {len(channel.late) for channel in channels} == {3}


def test_changes_of_several_topics_stay_in_order(world):
    world = World(ORDERS, replace(ORDERS, name="other"))
    client = world.client()
    for at in range(COUNT):
        client.say(c="subscribe", t="^o.*r", opts=f"select=[/id,/f{at}]")
    topics = ["orders", "other", "orders", "orders", "other"]
    for number, topic in enumerate(topics):
        world.engine.publish(topic, [b'{"id":%d}' % number], world.now)
    world.settle()
    lines = client.lines()
    for name in {line["s"] for line in lines}:
        assert [line["t"] for line in lines if line["s"] == name] == topics


def test_who_has_taken_a_part_of_it_or_left_gets_the_rest_or_nothing(world):
    client, channels = followed(world)
    publish(world, 0)
    world.settle_once()
    publish(world, 1)
    name = channels[-1].name
    commands = b'{"c":"unsubscribe","s":"%s"}' % name.encode()
    client.execute(commands)
    publish(world, 2)
    world.settle()
    world.check()
    lines = client.lines()
    for channel in channels:
        got = [line["d"]["id"] for line in lines if line.get("s") == channel.name and "d" in line]
        assert got == ([0, 1] if channel.name == name else [0, 1, 2])


def test_who_is_late_with_too_much_is_closed(monkeypatch):
    monkeypatch.setattr(router, "AT_ONCE_US", 1)
    monkeypatch.setattr(late_turns, "ORDERED_US", 1)
    world = World(ORDERS, limits=Limits(queue_memory_bytes_max=100_000))
    client, _ = followed(world)
    for number in range(50):
        publish(world, number)
    assert client.session.ended is None
    assert client.session.memory.waiting_bytes(1) > 0
    for number in range(COUNT * 10):
        publish(world, number)
    assert client.session.ended == QUEUE_MEMORY
    world.settle()
    world.check()
