"""Catalog: which topics there are, who may come, and how they go."""

import gc
from dataclasses import replace

import pytest

from sow.core.definitions import WRITES, ConflatedTopic, Limits, Topic, View, stored
from sow.engine.running_topics import CopyTopic
from sow.errors import ClientError, InvalidTopic, TooLarge, UnknownTopic
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, put
from tests.laws.harness import World

SLOWER = ConflatedTopic("slower", "json", "copies", interval_us=1_000, topic_format="%n-slow")


def test_topics_of_the_configuration_are_there_from_the_start():
    made, _ = catalog(ORDERS, SLOW, DESKS, COPIES)
    assert list(made.topics) == ["orders", "slow"]
    assert list(made.patterns) == ["desks", "copies"]
    made.check()


def test_a_topic_of_a_pattern_comes_with_its_copies_once():
    made, _ = catalog(DESKS, COPIES, SLOWER)
    topic = made.publishable("/desk/1")
    assert "/desk/1" not in made.topics
    assert [one.name for one in made.enter(topic)] == ["/desk/1", "/desk/1-C", "/desk/1-C-slow"]
    assert made.enter(topic) == ()
    assert made.with_copies(topic) == ["/desk/1-C-slow", "/desk/1-C", "/desk/1"]
    assert made.pattern_of(topic).members == {"/desk/1": topic}
    made.check()


def test_a_conflated_topic_that_is_added_has_a_copy_of_each_topic():
    made, _ = catalog(DESKS)
    for name in ("/desk/1", "/desk/2"):
        made.enter(made.publishable(name))
    assert [topic.name for topic in made.add(COPIES)] == ["/desk/1-C", "/desk/2-C"]
    assert [topic.name for topic in made.members("copies")] == ["/desk/1-C", "/desk/2-C"]
    made.check()


@pytest.mark.parametrize(("followed", "room"), [(False, 4), (True, 3)])
def test_topics_have_no_more_objects_than_reported(followed, room):
    world, count = World(DESKS, COPIES), 200
    client = world.client()
    if followed:
        client.say(c="subscribe", t="^/desk/.*-C$")

    def come(first):
        for at in range(first, first + count):
            world.publish(f"/desk/{at}", {"id": 1})
        world.advance(10_000_000)
        client.data()
        gc.collect()
        return len(gc.get_objects()), world.engine.catalog.objects_max()

    (there, said), (then, says) = come(0), come(count)
    assert then - there <= says - said <= room * (then - there)


def test_a_removed_topic_gets_no_changes_and_is_not_counted():
    made, _ = catalog(DESKS, COPIES)
    topic = made.publishable("/desk/1")
    made.enter(topic)
    copy = made.topics["/desk/1-C"]
    copy.copy.on_batch(put(topic, {"id": 1}), 0)
    copy.copy.advance(10**6)
    both = made.usage.bytes
    made.unfollow("copies")
    made.forget(copy)
    made.remove("copies")
    assert (list(made.topics), topic.router.copies()) == (["/desk/1"], [])
    assert made.usage.bytes < both
    made.check()
    made.forget(topic)
    assert (made.usage.bytes, made.pattern_of(topic).members) == (0, {})


def test_an_unknown_topic_is_sent_the_nearest_and_a_pattern_is_no_topic():
    made, _ = catalog(ORDERS, DESKS, WRITES)
    with pytest.raises(UnknownTopic, match="orders"):
        made.topic("order")
    with pytest.raises(InvalidTopic, match="is a pattern of topics"):
        made.topic("desks")
    assert made.account(WRITES) is made.topics[WRITES.name]
    assert [topic.name for topic in made.listed()] == ["orders"]


def test_only_sources_that_are_not_the_servers_own_are_changed():
    made, _ = catalog(ORDERS, SLOW, WRITES)
    assert made.publishable("orders") is made.deletable("orders") is made.topics["orders"]
    with pytest.raises(InvalidTopic, match="a copy of orders; publish to orders"):
        made.publishable("slow")
    with pytest.raises(InvalidTopic, match="the server's own account"):
        made.deletable(WRITES.name)


def test_only_who_writes_batches_changes_a_view_that_spark_runs():
    view = View("by-desk", "json", ("orders",), ("/desk",), ("/desk",), engine="spark")
    made, _ = catalog(ORDERS, stored(view))
    assert made.publishable("by-desk", "write to") is made.topics["by-desk"]
    expected = "by-desk is a view, made of orders by Spark; publish to orders"
    with pytest.raises(InvalidTopic, match=expected):
        made.publishable("by-desk")
    with pytest.raises(InvalidTopic, match="delete from orders"):
        made.deletable("by-desk")


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [
        ("/desk/\n", ClientError, "cannot be a topic's name"),
        ("/desk/" + "x" * 250, ClientError, "at most 255 characters"),
        ("/desk/1-C", InvalidTopic, "calls its copy of /desk/1"),
        ("/desk/taken", InvalidTopic, "would have a copy /desk/taken-C, which is a topic"),
    ],
)
def test_names_that_no_topic_may_have(name, error, expected):
    made, _ = catalog(Topic("/desk/taken-C", "json", keys=("/id",)), DESKS, COPIES)
    with pytest.raises(error, match=expected):
        made.publishable(name)


def test_a_pattern_has_so_many_topics_but_a_restart_is_not_requested():
    made, _ = catalog(DESKS, limits=Limits(pattern_topics_max=1))
    made.enter(made.publishable("/desk/1"))
    with pytest.raises(TooLarge, match="has 1 topics, as many as one may have"):
        made.publishable("/desk/2")
    assert made.placed("/desk/2").name == "/desk/2"
    assert made.placed("nobody") is None


def test_entries_count_from_the_set_number_for_new_topics_too():
    made, _ = catalog(ORDERS, DESKS)
    made.count_from(lambda definition, name: len(definition) + len(name))
    made.enter(made.publishable("/desk/1"))
    since = {topic.name: topic.records.since_seq for topic in made}
    assert since == {"orders": 12, "/desk/1": 12}


def test_a_copy_that_is_not_subscribed_is_found_out():
    made, _ = catalog(ORDERS, SLOW)
    assert isinstance(made.topics["slow"], CopyTopic)
    made.topics["orders"].router.unfile(made.topics["slow"].copy)
    with pytest.raises(AssertionError, match="misses what it copies"):
        made.check()


def test_copies_that_are_alike_and_new_are_one_under_several_names():
    other, third = replace(SLOW, name="other"), replace(SLOW, name="third", filter="/px > 1")
    made, _ = catalog(ORDERS, SLOW, other, third)
    orders = made.topics["orders"]
    slow, other, third = (made.topics[name] for name in ("slow", "other", "third"))
    assert slow.copy is other.copy is not third.copy
    assert made.with_copies(orders) == ["slow", "other", "third", "orders"]
    orders.route(put(orders, {"id": 1, "px": 2}), 0)
    assert [b.changes.topic for b in slow.copy.advance(10**7)] == ["slow", "other"]
    made.check()


def test_a_copy_that_comes_when_others_hold_something_is_one_of_its_own():
    made, _ = catalog(ORDERS, SLOW)
    orders = made.topics["orders"]
    orders.route(put(orders, {"id": 1}), 0)
    (late,) = made.add(replace(SLOW, name="late"))
    assert late.copy is not made.topics["slow"].copy
    made.check()


def test_of_copies_that_are_alike_one_can_go():
    made, _ = catalog(ORDERS, SLOW, replace(SLOW, name="other"))
    orders, other = made.topics["orders"], made.topics["other"]
    orders.route(put(orders, {"id": 1}), 0)
    made.forget(made.topics["slow"])
    made.check()
    assert [batch.changes.topic for batch in other.copy.advance(10**7)] == ["other"]
    orders.route(orders.remove(["1"], "delete", 10**7), 10**7)
    assert [batch.changes.reason for batch in other.copy.advance(10**8)] == ["deleted"]
    made.forget(other)
    assert orders.router.copies() == []
    made.check()
