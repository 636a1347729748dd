"""The attribute index leaves out only feeds that could not have matched."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sow.definitions import Topic
from tests.core.harness import World

TOPIC = Topic("orders", "json", keys=("/id",))
values = st.sampled_from(["A", "B", "5", "5.0", 5, 5.0, True, 1, None, "", ["A", 5], [], {"x": 1}])
filters = st.sampled_from(
    [
        "/s = 'A'",
        "/s = '5'",
        "/s = 5",
        "/s = '5.0'",
        "/s IN ('A', 5)",
        "/s = 1",
        "/s = 'A' AND /v > 3",
        "/v > 3 AND /s IN ('B', '5')",
        "/s = 'A' AND /s = 'B'",
        "NOT /s = 'A'",
        "/s = NULL",
    ]
)
operations = st.lists(st.tuples(st.integers(0, 4), values, st.integers(0, 6)), max_size=12)


@settings(deadline=None)
@given(st.lists(st.tuples(filters, st.booleans()), min_size=1, max_size=8), operations)
def test_feeds_hear_the_same_with_and_without_the_index(subscriptions, log):
    with_index, without = World(TOPIC), World(TOPIC)
    without.engine.topics["orders"].router._attributes.add = lambda feed: False
    heard = []
    for world in (with_index, without):
        client = world.client()
        for condition, oof in subscriptions:
            client.say(c="sow_and_subscribe", t="orders", filter=condition, opts="oof" * oof)
        for at in range(0, len(log), 3):
            documents = [{"id": key, "s": s, "v": v} for key, s, v in log[at : at + 3]]
            world.publish("orders", *documents)
        world.delete("orders", "/id < 3")
        lines = client.lines()
        for session in list(world.executor.sessions.values()):
            world.executor.close(session)
        assert list(world.engine.topics["orders"].router.feeds()) == []
        heard.append(sorted(json.dumps(line, sort_keys=True) for line in lines))
    assert heard[0] == heard[1]


def test_a_thousand_feeds_are_found_by_their_value():
    world = World(TOPIC)
    client = world.client()
    for number in range(1000):
        client.say(c="subscribe", t="orders", filter=f"/s = 'S{number}'")
    world.publish("orders", {"id": 1, "s": "S77"}, {"id": 2, "s": "other"})
    assert [line["d"]["s"] for line in client.lines()] == ["S77"]
    router = world.engine.topics["orders"].router
    assert router._unfiled == {}
