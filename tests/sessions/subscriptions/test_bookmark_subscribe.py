"""Subscriptions that begin at a bookmark: the log first, then live, or a range and no more."""

import pytest

from sow.core.definitions import Topic
from tests.laws.harness import World, short


@pytest.fixture
def world():
    world = World()
    world.publish("orders", *({"id": number} for number in range(3)))
    return world


def test_what_is_in_the_log_is_sent_first_and_then_what_is_live(world):
    client = world.client()
    said = client.say(c="subscribe", t="orders", bm="1", cid="1", a="completed")
    assert short(said) == [("p", {"id": 1}), ("p", {"id": 2})]
    assert said[-1]["a"] == "completed"
    world.publish("orders", {"id": 3})
    assert client.data() == [("p", {"id": 3})]
    world.check()


def test_until_it_is_live_no_router_knows_it(world):
    client = world.client()
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    (one,) = client.subscriptions.values()
    assert one.replay is not None
    assert list(world.engine.topics["orders"].router.feeds()) == []
    world.check()
    client.lines()
    assert one.replay is None
    assert list(world.engine.topics["orders"].router.feeds()) == [one.feeds["orders"]]


def test_a_range_ends_by_itself(world):
    client = world.client()
    said = client.say(c="subscribe", t="orders", bm="[1:2]", cid="1", a="completed")
    assert short(said) == [("p", {"id": 0}), ("p", {"id": 1})]
    assert client.subscriptions == {}
    world.check()


def test_one_that_ends_before_it_is_live_reads_no_further(world):
    client = world.client()
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert client.data() == []
    assert client.subscriptions == {}
    world.check()


def test_topics_of_a_pattern_are_met_by_the_log_first_and_live_afterwards():
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    world.publish("/desk/0", {"id": 0})
    world.publish("/desk/1", {"id": 1})
    client = world.client()
    client.execute(b'{"c":"subscribe","t":"^/desk/","bm":"1"}')
    (one,) = client.subscriptions.values()
    assert one.feeds == {}
    world.publish("/desk/2", {"id": 2})
    assert client.data() == [("p", {"id": 1}), ("p", {"id": 2})]
    assert list(one.feeds) == ["/desk/1", "/desk/2"]
    for number in range(4):
        world.publish(f"/desk/{number}", {"id": 10 + number})
    assert client.data() == [("p", {"id": 10 + number}) for number in range(4)]
    world.check()
