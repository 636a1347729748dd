"""Requests that take many steps are one turn to live windows, and nobody is held back for long."""

import pytest

from sow.engine import bulk_publish
from sow.engine.output import HELD_US_MAX
from sow.protocol.publish_batching import read_frames
from tests.laws.harness import World
from tests.laws.window_reader import WindowReader


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(9)])
    return world


def reader_of(world, topic="orders", **more):
    reader = WindowReader(world.client(), topic, "/px DESC", **{"top_n": 3, **more})
    reader.begin()
    return reader


def steps_of(world, *documents):
    """The steps of a publish that is carried out a slice at a time."""
    engine, topic = world.engine, world.engine.publishable("orders")
    bodies = [b'{"id":%d,"px":%d}' % document for document in documents]
    read = [
        engine.read(topic, bodies[at : at + 2], now_us=world.now) for at in range(0, len(bodies), 2)
    ]
    return engine.publications.carry_out("orders", read, world.now)


def test_a_publish_in_slices_is_sent_when_its_last_one_is_there(world):
    reader, other = reader_of(world), world.client()
    other.say(c="subscribe", t="orders")
    sent = 0
    for _ in steps_of(world, (0, 10), (1, 11), (2, 12), (3, 13), (4, 14)):
        world.settle()
        assert reader.client.lines() == []
        sent += len(other.lines())
        world.check()
    world.settle()
    assert sent, "who follows each change is sent as it comes"
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_frame_of_many_commands_is_one_turn(world):
    reader, client = reader_of(world), world.client()
    publish = b'{"c":"publish","t":"orders","d":{"id":%d,"px":%d}}'
    delete = b'{"c":"sow_delete","t":"orders","filter":"/id = %d"}'
    pairs = [(publish % (at, 20 + at), delete % (at + 1)) for at in range(0, 6, 2)]
    frame = b"\n".join(line for pair in pairs for line in pair)
    for _ in world.executor.carry_out(client.session, read_frames([frame]), lambda: world.now):
        world.settle()
        assert reader.client.lines() == []
    world.settle()
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_delete_of_many_is_one_turn(world, monkeypatch):
    monkeypatch.setattr("sow.engine.bulk_delete.RECORDS_AT_ONCE", 1)
    reader = reader_of(world)
    client = world.client()
    client.say_in_steps(world.settle, c="sow_delete", t="orders", filter="/id > 3", cid="1")
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_cancelled_request_holds_nothing_back(world):
    reader = reader_of(world)
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    steps.close()
    world.settle()
    world.check()
    reader.read()
    reader.check(world)


def test_a_request_that_takes_very_long_is_sent_in_parts(world):
    reader = reader_of(world)
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    assert reader.client.lines() == []
    world.advance(HELD_US_MAX - 1)
    assert reader.client.lines() == []
    world.advance(1)
    reader.read()
    reader.check(world)
    steps.close()


def test_a_request_that_changes_another_topic_holds_nothing_back(world):
    copied = reader_of(world, topic="orders-C")
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.advance(2 * HELD_US_MAX)
    copied.read()
    copied.check(world)
    steps.close()


def test_an_interval_that_ends_meanwhile_waits_for_the_end(world):
    reader = reader_of(world, opts=("conflation=100ms",))
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    world.advance(200_000)
    assert reader.client.lines() == []
    for _ in steps:
        world.settle()
    world.settle()
    reader.read()
    reader.check(world)
    assert reader.turns == 1
