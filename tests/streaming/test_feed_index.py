"""Feeds report the same with and without the index: records that come, change and leave."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Topic
from sow.streaming import predicate_index
from sow.streaming.feed_index import FeedIndex
from tests.laws.harness import World

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
def test_a_thousand_feeds_are_found_by_their_terms(form):
    world = World(TOPIC)
    client = world.client()
    for number in range(1000):
        client.say(c="subscribe", t="orders", filter=form.format(number))
    router = world.engine.topics["orders"].router
    assert router._unfiled == {}
    client.lines()
    requested = []
    for feed in router.feeds():
        feed.on_records = lambda batch, at, now_us, feed=feed: requested.append(feed.condition.text)
    world.publish("orders", {"id": 1, "s": "S77", "v": 77.25}, {"id": 2, "s": "other"})
    assert requested == [form.format(77)]


def test_where_nothing_is_stored_who_keeps_account_is_requested():
    world = World(replace(TOPIC, durability="transient", retain=False))
    client = world.client()
    client.say(c="subscribe", t="orders", filter="/s = 'A'", opts="oof")
    world.publish("orders", {"id": 1, "s": "A"})
    world.publish("orders", {"id": 1, "s": "B"})
    assert [line["c"] for line in client.lines() if "d" in line] == ["p", "oof"]
