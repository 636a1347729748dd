"""Topics that come, go and change, asked of the engine without a configuration that says so; and
those that another configuration has no place for.
"""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Limits, Topic, View
from sow.engine import bulk_publish, reconfiguration, topic_changes
from sow.engine.topic_changes import TopicChanges
from sow.errors import ConfigError, InvalidTopic, StoreFailing
from tests.laws.harness import ORDERS, SECOND, SLOW, World

FAST = ConflatedTopic("fast", "json", "orders", interval_us=SECOND // 10)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
NUMBERED = replace(DESKS, pattern="^/desk/[0-9]$")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
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


def test_topics_that_have_no_place_are_given_up_when_that_is_allowed():
    wide = replace(NUMBERED, pattern="^/desk/")
    world = World(wide)
    client = world.client()
    client.say(c="sow_and_subscribe", t="^/desk/", opts="oof")
    for name in ("/desk/1", "/desk/1-C", "/desk/2"):
        world.publish(name, {"id": 1})
    client.lines()
    configuration = replace(
        world.configuration, topics=(wide, COPIES), limits=Limits(pattern_topics_max=2)
    )
    with pytest.raises(ConfigError, match="PatternTopics of 2 is less than the 3 there are"):
        world.executor.reconfigure(configuration, world.now)
    given = {}
    changes = world.executor.reconfigure(configuration, world.now, noting(given))
    world.settle()
    assert {topic.name for topic in given} == {"/desk/1-C", "/desk/2"}
    assert "topic /desk/1-C given up, with 1 records" in changes
    assert ("deleted", {"id": 1}) in client.data()
    assert world.records("/desk/1-C") == [{"id": 1}]
    world.publish("/desk/1", {"id": 1, "a": 1})
    world.advance(2 * SECOND)
    assert world.records("/desk/1-C") == [{"id": 1, "a": 1}]
    assert "/desk/2" not in world.engine.topics
    again = World(wide, COPIES, journal=world.journal, checkpoints=world.checkpoints)
    assert again.records("/desk/1") == [{"id": 1, "a": 1}]
    world.check()


def test_topics_that_come_while_others_are_closed_are_given_up_too(monkeypatch):
    monkeypatch.setattr(reconfiguration, "CLOSED_AT_ONCE", 2)
    wide = replace(NUMBERED, pattern="^/desk/")
    world = World(wide)
    for number in range(6):
        world.publish(f"/desk/{number}", {"id": 1})
    smaller = replace(world.configuration, limits=Limits(pattern_topics_max=3))
    given = {}
    steps = world.executor.reconfiguration(smaller, world.now, noting(given))
    for step, _ in enumerate(steps):
        if step < 2:
            world.publish(f"/desk/more-{step}", {"id": 1})
    assert {topic.name for topic in given} == {
        "/desk/3", "/desk/4", "/desk/5", "/desk/more-0", "/desk/more-1",
    }  # fmt: skip
    assert list(world.engine.topics) == ["/desk/0", "/desk/1", "/desk/2"]
    world.publish("/desk/0", {"id": 2})
    world.check()


def test_a_topic_that_is_given_up_takes_its_copies_with_it():
    world = World(NUMBERED, COPIES)
    world.publish("/desk/1", {"id": 1})
    world.publish("/desk/2", {"id": 1})
    world.advance(2 * SECOND)
    limits = Limits(pattern_topics_max=1)
    configuration = replace(world.configuration, limits=limits)
    world.executor.reconfigure(configuration, world.now, noting({}))
    world.settle()
    assert set(world.engine.topics) == {"/desk/1", "/desk/1-C"}
    world.advance(5 * SECOND)


def test_of_a_topic_that_is_given_up_nothing_is_lost_and_few_records_go_in_a_step(monkeypatch):
    monkeypatch.setattr(topic_changes, "EMPTIED_AT_ONCE", 4)
    world, given = World(NUMBERED, COPIES), {}
    for desk in ("/desk/0", "/desk/1"):
        world.publish(desk, *[{"id": at} for at in range(30)])
    world.advance(SECOND)
    follower = world.client()
    follower.say(c="sow_and_subscribe", t="/desk/1-C", opts="oof")
    configuration = replace(world.configuration, limits=Limits(pattern_topics_max=1))
    steps = world.executor.reconfiguration(configuration, world.now, noting(given))
    next(steps)
    # While its records are written out it takes no others; a topic that comes goes, too.
    with pytest.raises(InvalidTopic, match="is being given up"):
        world.publish("/desk/1", {"id": 31})
    (refused,) = world.client().say(c="sow_delete", t="/desk/1", filter="1=1", cid="1")
    assert refused["reason"] == InvalidTopic.reason
    world.publish("/desk/2", {"id": 1})
    going = [world.engine.topics[name].records.table for name in ("/desk/1", "/desk/1-C")]
    held = sum(map(len, going))
    for _ in steps:
        assert held - sum(map(len, going)) <= 2 * 4  # the last of one, and the first of the next
        held = sum(map(len, going))
        world.settle()
    assert {topic.name: count for topic, count in given.items()} == {"/desk/1": 30, "/desk/2": 1}
    assert set(world.engine.topics) == {"/desk/0", "/desk/0-C"}
    oofs = [line["k"] for line in follower.lines() if line["c"] == "oof"]
    assert len(set(oofs)) == len(oofs) == 30
    world.check()


def test_a_topic_whose_records_cannot_be_written_out_stays():
    world = World(NUMBERED)
    world.publish("/desk/1", {"id": 1})

    def failing(_topics):
        yield
        raise StoreFailing("it fails")

    configuration = replace(world.configuration, limits=Limits(pattern_topics_max=0))
    for end in (next, Generator.close):
        steps = world.executor.reconfiguration(configuration, world.now, failing)
        next(steps)
        with pytest.raises(InvalidTopic):
            world.publish("/desk/1", {"id": 2})
        with suppress(StoreFailing):
            end(steps)
        world.publish("/desk/1", {"id": 2})
    assert world.records("/desk/1") == [{"id": 1}, {"id": 2}]


def noting(given):
    """Takes topics that go as a server does that writes their records out."""

    def give_up(topics):
        for topic in topics:
            given[topic] = len(topic.records.table)
            yield

    return give_up


@pytest.mark.parametrize("name", ["/desk/1", "/desk/.*"])
def test_a_replay_of_a_topic_that_is_given_up_goes_on_or_is_ended_by_name(name):
    world = World(NUMBERED)
    for desk in ("/desk/0", "/desk/1"):
        world.publish(desk, {"id": 1})
    client, left = world.client(), world.client()
    for one in (client, left):
        one.execute(b'{"c":"subscribe","t":"%b","bm":"0"}' % name.encode())
    limits = Limits(pattern_topics_max=1)
    configuration = replace(world.configuration, limits=limits)
    world.executor.reconfigure(configuration, world.now, noting({}))
    world.settle()
    world.executor.sessions.close(left.session)
    said = [(line["c"], line.get("reason", line.get("t"))) for line in client.lines()]
    goes_on = [("p", "/desk/0")]
    assert said == (goes_on if name == "/desk/.*" else [("unsubscribed", "REMOVAL")])
    world.publish("/desk/0", {"id": 2})
    assert client.data() == ([("p", {"id": 2})] if name == "/desk/.*" else [])


def test_a_topic_is_given_up_when_what_is_published_to_it_has_come(monkeypatch):
    world = World(NUMBERED)
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    engine = world.engine
    world.publish("/desk/1", {"id": 0})
    topic = engine.publishable("/desk/1")
    bodies = [b'{"id":%d}' % at for at in range(6)]
    read = run_to_completion(
        bulk_publish.reading(bodies, lambda part: engine.read(topic, part, now_us=world.now))
    )
    publish = engine.publications.carry_out("/desk/1", read, world.now)
    next(publish)
    given = {}
    configuration = replace(world.configuration, limits=Limits(pattern_topics_max=0))

    def give_up(topics):
        given.update({topic.name: len(topic.records.table) for topic in topics})
        yield

    run_to_completion(world.executor.reconfiguration(configuration, world.now, give_up))
    assert given == {"/desk/1": 6}
    assert run_to_completion(publish) == 7
    assert "/desk/1" not in engine.topics
