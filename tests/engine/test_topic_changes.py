"""Topics that come, go and change, asked of the engine without a configuration that says so."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic, View
from sow.engine import topic_changes
from sow.engine.topic_changes import TopicChanges
from tests.laws.harness import ORDERS, SECOND, SLOW, World

FAST = ConflatedTopic("fast", "json", "orders", interval_us=SECOND // 10)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
EACH = View("each", "json", ("orders",), ("SUM(/qty) AS /qty", "/id"), ("/id",))


@pytest.fixture
def world():
    world = World(ORDERS, SLOW, DESKS)
    world.publish("orders", *[{"id": at, "qty": at} for at in range(3)])
    return world


@pytest.fixture
def changes(world):
    return TopicChanges(world.engine)


def followed(world, name):
    client = world.client()
    client.say(c="sow_and_subscribe", t=name, opts="oof")
    return client


def test_a_copy_is_full_before_it_can_be_queried(world, changes):
    world.engine.catalog.expect(FAST)
    for _ in changes.add_copies(FAST):
        assert "fast" not in world.engine.topics
        world.publish("orders", {"id": 0, "qty": 9})
    world.advance(SECOND)
    assert world.records("fast") == world.records("orders")
    world.check()


def test_a_view_is_full_before_it_can_be_queried(world, changes):
    world.engine.catalog.expect(EACH)
    run_to_completion(changes.add_view(EACH))
    assert world.records("each") == [{"id": at, "qty": at} for at in range(3)]
    world.check()


def test_copies_that_were_alike_part_and_keep_what_they_hold():
    world = World(ORDERS, SLOW, ConflatedTopic("same", "json", "orders", interval_us=SECOND))
    slow, same = world.engine.topics["orders-C"], world.engine.topics["same"]
    assert slow.is_shared
    world.publish("orders", {"id": 1})
    TopicChanges(world.engine).retime(same, replace(FAST, name="same"))
    assert not slow.is_shared
    world.advance(SECOND // 10)
    assert [len(world.records(name)) for name in ("orders-C", "same")] == [0, 1]
    world.advance(SECOND)
    assert world.records("orders-C") == [{"id": 1}]
    world.check()


def test_who_follows_a_view_that_is_changed_is_sent_the_difference(world, changes):
    world.engine.catalog.expect(EACH)
    run_to_completion(changes.add_view(EACH))
    client = followed(world, "each")
    other = View("each", "json", ("orders",), EACH.projection, EACH.grouping, filter="/qty != 1")
    run_to_completion(changes.change_view(world.engine.topics["each"], other))
    world.settle()
    assert [(line["c"], line["d"]["id"]) for line in client.lines()] == [("oof", 1)]


def test_a_topic_goes_with_its_copies_a_few_records_in_each_step(world, changes, monkeypatch):
    monkeypatch.setattr(topic_changes, "EMPTIED_AT_ONCE", 2)
    world.publish("/desk/1", *[{"id": at} for at in range(5)])
    ended, left = [], []
    for _ in changes.give_up(world.engine.topics["/desk/1"], ended.append):
        left.append(len(world.engine.topics["/desk/1"].records.table) if not ended else None)
    assert left == [3, 1, None]
    assert [topic.name for topic in ended] == ["/desk/1"]
    assert "/desk/1" not in world.engine.topics
    world.check()


def test_a_view_for_a_client_that_nobody_waits_for_leaves_nothing(world, changes):
    usage = world.engine.catalog.usage
    before, steps = usage.bytes, changes.add_private(EACH, usage)
    next(steps)
    assert usage.bytes > before
    steps.close()
    assert "each" not in world.engine.topics
    world.advance(1)  # in which what was kept of its groups is forgotten
    assert usage.bytes == before
    world.check()


def test_a_view_for_a_client_goes_once(world, changes):
    topic = run_to_completion(changes.add_private(EACH, world.engine.catalog.usage))
    assert len(world.records("each")) == 3
    for _ in range(2):
        changes.remove_private(topic)
    assert "each" not in world.engine.topics
    world.check()
