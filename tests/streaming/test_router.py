"""A batch reaches listeners, feeds that the index finds, and all other feeds."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Topic
from sow.expressions import compile_filter
from sow.protocol.replies import LINES
from sow.streaming import predicate_index
from sow.streaming.channel import DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ConflatedFeed, DirectFeed
from sow.streaming.router import FeedIndex, PatternSubscriptions, Router
from sow.streaming.update_encoder import FeedKey
from tests.laws.harness import World
from tests.topic.making import put, records

FILED, UNFILED = "/symbol = 'A'", "/px > 3"


class Following:
    """A router, and feeds that record the batches that reach them."""

    def __init__(self):
        self.topic = records()
        self.router = Router(self.topic, PatternSubscriptions())

    def feed(self, name, condition=None, **key):
        compiled = compile_filter(condition) if condition else None
        channel = DirectChannel(name, LINES)
        made = self.router.make(channel, FeedKey(condition, **key), compiled)
        self.router.add(made)
        return made

    def reached(self, *documents, seq=1):
        batch = put(self.topic, *documents, seq=seq)
        return sorted(feed.name for feed in self.router.route(batch, 0)[0])


@pytest.fixture
def following():
    return Following()


def test_feeds_hear_what_they_want_whether_they_are_found_or_requested(following):
    for name, condition in (("all", None), ("filed", FILED), ("unfiled", UNFILED)):
        following.feed(name, condition)
    assert following.reached({"id": 1, "symbol": "A", "px": 1}) == ["all", "filed"]
    assert following.reached({"id": 2, "symbol": "B", "px": 5}, seq=2) == ["all", "unfiled"]
    both = ({"id": 3, "symbol": "B", "px": 1}, {"id": 4, "symbol": "A", "px": 9})
    assert following.reached(*both, seq=3) == ["all", "filed", "unfiled"]


def test_who_was_removed_hears_no_more_and_wants_no_fields(following):
    following.feed("stays", FILED)
    fields = set(following.topic.read([b'{"id":1}']).columns)
    made = [following.feed(name, name) for name in (FILED, UNFILED)]
    for feed in made:
        following.router.remove(feed)
        following.router.remove(feed)
    assert following.reached({"id": 1, "symbol": "A", "px": 5}) == ["stays"]
    assert [feed.name for feed in following.router.feeds()] == ["stays"]
    assert set(following.topic.read([b'{"id":1}']).columns) == fields


def test_equal_subscriptions_share_a_feed_under_another_name(following):
    one = following.feed("one", FILED)
    key = FeedKey(FILED)
    assert following.router.shared(key, ()) is one
    assert following.router.shared(key, {"one"}) is None
    assert following.router.shared(FeedKey(FILED, oof=True), ()) is None


def test_a_feed_that_has_given_account_is_not_shared(following):
    one = following.feed("one", accounts=True, oof=True)
    key = FeedKey(accounts=True, oof=True)
    assert following.router.shared(key, ()) is one
    following.reached({"id": 1})
    assert following.router.shared(key, ()) is None


def test_a_feed_is_of_the_kind_of_its_channel(following):
    channel = ConflatedChannel("c", LINES, 1000)
    assert isinstance(following.router.make(channel, FeedKey(), None), ConflatedFeed)


def test_listeners_hear_before_feeds(following):
    order = []

    class Listener:
        late_us = 0

        def on_batch(self, batch, now_us):
            order.append(("listener", len(batch), now_us))

    following.feed("all")
    following.router.follow(Listener())
    following.reached({"id": 1}, {"id": 2})
    assert order == [("listener", 2, 0)]


TOPIC = Topic("orders", "json", keys=("/id",))
values = st.sampled_from(
    ["A", "B", "5", "5.0", "1e3", 5, 5.0, 1000, -0.0, 10**30, True, 1, None, "", ["A", 5], [], {}]
)
filters = st.sampled_from(
    [
        "/s = 'A'",
        "/s = 5",
        "/s = '5.0'",
        "/s IN ('A', 5)",
        "/s = 'A' AND /v > 3",
        "/v > 3 AND /s IN ('B', '5')",
        "NOT /s = 'A'",
        "/s = NULL",
        "/v > 3",
        "/v BETWEEN 2 AND 4",
        "/s >= 5",
        "/s < 'B' AND /s > '5'",
        "/s LIKE '^A' OR /v = 1",
        "/s LIKE '^5' AND /v <= 3",
        "/none = 1 OR /v < 1",
    ]
)
operations = st.lists(st.tuples(st.integers(0, 4), values, st.integers(0, 6)), max_size=12)


@pytest.mark.parametrize("retain", [True, False])
@pytest.mark.parametrize("conflation", ["", ",conflation=1s"])
def test_feeds_hear_the_same_with_and_without_the_index(retain, conflation, monkeypatch):
    monkeypatch.setattr(predicate_index, "CROWD_MIN", 2)
    topic = TOPIC if retain else replace(TOPIC, durability="transient", retain=False)

    @given(st.lists(st.tuples(filters, st.booleans()), min_size=1, max_size=8), operations)
    def law(subscriptions, log):
        with_index, without = World(topic), World(topic)
        index = without.engine.topics["orders"].router._attributes = FeedIndex()
        index.add = lambda feed: False
        assert received(with_index, subscriptions, log) == received(without, subscriptions, log)

    def received(world, subscriptions, log):
        client = world.client()
        for condition, oof in subscriptions:
            command = "sow_and_subscribe" if retain else "subscribe"
            options = "oof" * oof + conflation
            client.say(c=command, t="orders", filter=condition, opts=options.strip(","))
        for at in range(0, len(log), 3):
            documents = [{"id": key, "s": s, "v": v} for key, s, v in log[at : at + 3]]
            world.publish("orders", *documents)
            world.check()
            world.advance(600_000)
        if retain:
            world.delete("orders", "/id < 3")
        world.advance(2_000_000)
        lines = client.lines()
        for session in world.executor.sessions:
            world.executor.sessions.close(session)
        world.check()
        assert list(world.engine.topics["orders"].router.feeds()) == []
        return sorted(json.dumps(line, sort_keys=True) for line in lines)

    law()


@pytest.mark.parametrize(
    "form",
    ["/s = 'S{0}'", "/v > {0} AND /v < {0}.5", "/s LIKE '^S{0}$'", "/s = 'S{0}' OR /w = {0}"],
)
def test_a_thousand_feeds_are_found_by_their_terms(form, monkeypatch):
    world = World(TOPIC)
    client = world.client()
    for number in range(1000):
        client.say(c="subscribe", t="orders", filter=form.format(number))
    router = world.engine.topics["orders"].router
    assert router._unfiled == {}
    client.lines()
    requested = []
    took = lambda feed, *_: requested.append(feed.condition.text)  # noqa: E731
    monkeypatch.setattr(DirectFeed, "on_records", took)
    world.publish("orders", {"id": 1, "s": "S77", "v": 77.25}, {"id": 2, "s": "other"})
    assert requested == [form.format(77)]


def test_where_nothing_is_stored_who_keeps_account_is_requested():
    world = World(replace(TOPIC, durability="transient", retain=False))
    client = world.client()
    client.say(c="subscribe", t="orders", filter="/s = 'A'", opts="oof")
    world.publish("orders", {"id": 1, "s": "A"})
    world.publish("orders", {"id": 1, "s": "B"})
    assert [line["c"] for line in client.lines() if "d" in line] == ["p", "oof"]


class Place:
    def __init__(self):
        self.met = 0
        self.met_by = []


class Follower:
    def __init__(self, name):
        self.name = name

    def meet(self, place):
        place.met_by.append(self.name)

    def awaits(self, place):
        return self.name != "b"


@pytest.fixture
def followers():
    return PatternSubscriptions()


def test_a_place_meets_each_once_in_the_order_in_which_they_came(followers):
    place = Place()
    a, b, c = map(Follower, "abc")
    followers.add(a)
    followers.add(b)
    followers.meet(place)
    followers.add(c)
    assert place.met < followers.newest
    followers.meet(place)
    followers.meet(place)
    assert place.met_by == ["a", "b", "c"]
    assert place.met == followers.newest
    followers.check()


def test_who_has_gone_is_not_met(followers):
    place, one = Place(), Follower("a")
    followers.add(one)
    followers.add(Follower("c"))
    followers.remove(one)
    followers.remove(one)
    followers.meet(place)
    assert place.met_by == ["c"]


def test_who_waits_to_be_met_is_counted(followers):
    place = Place()
    for name in "abc":
        followers.add(Follower(name))
    assert followers.awaiting(place) == 2
    followers.meet(place)
    assert followers.awaiting(place) == 0


def test_check_finds_another_order(followers):
    followers.add(Follower("a"))
    followers.newest = -5
    followers.add(Follower("b"))
    with pytest.raises(AssertionError, match="out of the order"):
        followers.check()
