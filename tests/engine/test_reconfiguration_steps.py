"""A reload in steps: it ends as if it had been one, and none of them is long."""

import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from sow import indexes
from sow.core.cooperative import run_to_completion
from sow.core.definitions import (
    View,
)
from sow.core.paths import value_at
from sow.engine.running_topics import CopyTopic
from sow.errors import InvalidTopic
from sow.topic import conflated_topic
from sow.topic import records as records_module
from tests.cases import all_cases
from tests.effort import seeds
from tests.engine.test_reconfiguration import COPIES, DESKS, FAST
from tests.laws.harness import ORDERS, SECOND, SLOW, World


@pytest.fixture
def world():
    return World(ORDERS, SLOW, DESKS, COPIES)


@pytest.fixture
def client(world):
    return world.client()


@pytest.fixture
def small_steps(monkeypatch):
    for module in (conflated_topic, indexes):
        monkeypatch.setattr(module, "STEP_ROWS", 2)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 2)


def change_something(world, random):
    """What clients may do between two steps; never a step of the engine's own time."""
    topic, at = random.choice(["orders", "/desk/1", "/desk/2"]), random.randrange(12)
    if random.random() < 0.3:
        found = world.engine.topics.get(topic)
        slot = None if found is None else found.records.table.slots.get(str(at))
        if slot is not None:
            run_to_completion(world.engine.removal(topic, np.array([slot]), world.now))
    else:
        world.publish(topic, {"id": at, "px": random.randrange(9), "a": random.randrange(3)})
    world.settle()


@all_cases("seed", seeds(15))
def test_whatever_changes_between_its_steps_a_reload_ends_as_if_it_had_been_one(seed, small_steps):
    random = Random(seed)
    world = World(ORDERS, SLOW, DESKS)
    for _ in range(30):
        change_something(world, random)
    world.advance(2 * SECOND)
    topics = (
        replace(ORDERS, hash_indexes=(("/a",),), indexes=("/px",)),
        replace(SLOW, filter="/px > 3"),
        replace(DESKS, hash_indexes=(("/a", "/px"),)),
        COPIES,
        replace(FAST, filter="/px < 6"),
    )
    for _ in world.executor.reconfiguration(replace(world.configuration, topics=topics), world.now):
        for _ in range(random.randrange(3)):
            change_something(world, random)
        if random.random() < 0.2:
            world.advance(random.randrange(SECOND))
        world.check()
    assert world.engine.configuration.topics == topics
    world.check()
    world.advance(3 * SECOND)
    for copy in (topic for topic in world.engine.topics.values() if isinstance(topic, CopyTopic)):
        condition = copy.copy.condition
        wanted = [
            one
            for one in world.records(copy.underlying)
            if condition is None or condition.holds([value_at(one, p) for p in condition.paths])
        ]
        assert sorted(world.records(copy.name), key=str) == sorted(wanted, key=str)
    assert {name for name in world.engine.topics if name.startswith("/desk/1")} in (
        {"/desk/1", "/desk/1-C"}, set(),
    )  # fmt: skip


def test_a_conflated_topic_cannot_be_queried_before_it_is_full(world, client, small_steps):
    world.publish("orders", *[{"id": at} for at in range(5)])
    topics = (ORDERS, SLOW, DESKS, COPIES, FAST)
    steps = world.executor.reconfiguration(replace(world.configuration, topics=topics), world.now)
    next(steps)
    (refused,) = client.say(c="sow", t="orders-F", cid="1")
    assert refused["status"] == "failure"
    world.publish("orders", {"id": 0, "px": 1}, {"id": 9})
    run_to_completion(steps)
    held = [record["id"] for record in world.records("orders-F")]
    assert held == [0, 1, 2, 3, 4, 9], "in the order of their first publication"
    assert world.records("orders-F")[0] == {"id": 0, "px": 1}


def test_names_are_kept_for_the_copies_that_are_being_filled(small_steps):
    every = replace(DESKS, pattern="^/desk/")
    world = World(ORDERS, every)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    world.publish("/desk/1", {"id": 1}, {"id": 2}, {"id": 3})
    first = replace(SLOW, name="/desk/first")
    steps = world.executor.reconfiguration(
        replace(world.configuration, topics=(ORDERS, every, first, COPIES)), world.now
    )
    next(steps)
    for name in ("/desk/first", "/desk/1-C"):
        with pytest.raises(InvalidTopic):
            world.publish(name, {"id": 1})
    world.publish("/desk/2", {"id": 1})
    assert "/desk/2-C" in world.engine.topics, "a topic that comes meanwhile has its copy at once"
    run_to_completion(steps)
    assert len(world.records("/desk/1-C")) == len(world.records("/desk/first")) == 3
    world.check()


def test_new_indexes_serve_when_they_are_complete_and_the_old_ones_until_then(world, small_steps):
    world.publish("orders", *[{"id": at, "a": at % 2} for at in range(6)])
    changed = replace(ORDERS, hash_indexes=(("/a",),), indexes=("/px",))
    records = world.engine.topics["orders"].records
    before = records.indexes
    steps = world.executor.reconfiguration(
        replace(world.configuration, topics=(changed, SLOW, DESKS, COPIES)), world.now
    )
    next(steps)
    world.publish("orders", {"id": 1, "a": 7})
    assert records.indexes is before
    records.check()
    run_to_completion(steps)
    assert [str(path) for path in records.indexes.watched] == ["/a"]
    records.check()


def test_a_reload_that_ends_with_the_server_leaves_what_there_was(world, small_steps):
    world.publish("orders", *[{"id": at, "a": at % 2} for at in range(6)])
    changed = replace(ORDERS, hash_indexes=(("/a",),))
    for topics in ((changed, SLOW, DESKS, COPIES), (ORDERS, SLOW, DESKS, COPIES, FAST)):
        steps = world.executor.reconfiguration(
            replace(world.configuration, topics=topics), world.now
        )
        next(steps)
        steps.close()
        world.publish("orders", {"id": 1, "a": 9})
        assert "orders-F" not in world.engine.topics
        assert world.configuration.topics == world.engine.configuration.topics
        world.check()


ROWS = View("orders-V", "json", ("orders",), ("/id", "MAX(/px) AS /px"), ("/id",))


@pytest.mark.parametrize("added", [FAST, ROWS], ids=["conflated topic", "view"])
def test_what_a_topic_begins_with_is_sent_in_steps_and_is_of_one_moment(world, added, monkeypatch):
    monkeypatch.setattr(records_module, "INTRODUCED_AT_ONCE", 2)
    world.publish("orders", *({"id": number, "px": 0} for number in range(9)))
    followers = [world.client() for _ in range(3)]
    followers[0].say(c="subscribe", t="^orders-[FV]", opts="oof")
    followers[1].say(c="subscribe", t="^orders-[FV]", opts="conflation=1s")
    configuration = replace(world.configuration, topics=(ORDERS, SLOW, DESKS, COPIES, added))
    requested = False
    steps = world.executor.reconfiguration(configuration, world.now)
    for step, _ in enumerate(steps, 1):
        world.publish("orders", {"id": step % 9, "px": step})
        if world.engine.atomic.topic is not None and not requested and step % 2:
            requested = True
            followers[2].execute(b'{"c":"sow_and_subscribe","t":"orders-[FV]"}')
            assert world.engine.atomic.topic is None, "who asks takes the steps that are left"
        world.engine.check()
    assert requested
    world.advance(3 * SECOND)
    for follower in followers:
        held = {}
        for line in follower.lines():
            if line.get("t") == added.name:
                assert held.get(line["d"]["id"]) != line["d"], "a repeat"
                held[line["d"]["id"]] = line["d"]
        assert sorted(held.items()) == [(one["id"], one) for one in by_id(world, added.name)]


def by_id(world, topic):
    return sorted(world.records(topic), key=lambda one: one["id"])


# Of very many definitions.


def copied(count, **more):
    """So many conflated topics, each with a filter of its own."""
    return [replace(SLOW, name=f"c{at}", filter=f"/px > {at}", **more) for at in range(count)]


def longest_step(before, after):
    """The most calls in one step of a reload from these conflated topics to those."""
    world, counts = World(ORDERS, *before), [0]
    configuration = replace(world.configuration, topics=(ORDERS, *after))

    def count(_frame, event, _argument):
        counts[-1] += event == "call" or event == "c_call"

    sys.setprofile(count)
    try:
        for _ in world.executor.reconfiguration(configuration, world.now):
            counts.append(0)
    finally:
        sys.setprofile(None)
    assert len(world.engine.topics) == 1 + len(after)
    return max(counts)


@pytest.mark.parametrize(
    ("before", "after", "calls_max"),
    [
        (copied, lambda count: [replace(one, line=9) for one in copied(count)], 8),
        (copied, lambda count: copied(count, interval_us=9), 12),
        (copied, lambda _count: [], 10),
        (lambda _count: [], copied, 32),
    ],
    ids=["none is different", "other intervals", "removed", "added"],
)
def test_no_step_of_a_reload_is_long_however_many_definitions_there_are(before, after, calls_max):
    few, many = 100, 300
    more = longest_step(before(many), after(many)) - longest_step(before(few), after(few))
    assert more / (many - few) <= calls_max, "calls for each definition in the longest step"
