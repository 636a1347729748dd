"""Following: who shares what, and topics that come later."""

import pytest

from sow.core.definitions import Topic
from tests.laws.harness import World, short

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
FLAT = Topic("t", "json", keys=("/id",))


@pytest.fixture
def world():
    return World(FLAT, DESKS)


def followed(world, **command):
    client = world.client()
    said = client.say(**({"c": "subscribe", "cid": "1"} | command))
    (ack,) = [line for line in said if line["c"] == "ack"]
    assert ack["status"] == "success", ack
    return client.subscriptions[ack["s"]]


@pytest.mark.parametrize("topic", ["t", "^(t|/desk/.*)$"])
def test_equal_subscriptions_of_two_sessions_share_a_channel_and_its_feeds(world, topic):
    first, second = (followed(world, t=topic, filter="/a = 1") for _ in "12")
    assert first.channel is second.channel
    assert first.feeds is second.feeds
    assert list(first.channel.members) == [first.session, second.session]


@pytest.mark.parametrize(
    "other", [{"filter": "/a = 2"}, {"opts": "oof"}, {"opts": "conflation=auto"}]
)
def test_others_share_nothing(world, other):
    first, second = followed(world, t="t"), followed(world, t="t", **other)
    assert first.channel is not second.channel
    assert first.feeds["t"] is not second.feeds["t"]


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_a_topic_that_comes_later_is_followed_from_its_beginning(world, command):
    one = followed(world, c=command, t="^/desk/")
    assert one.feeds == {}
    world.publish("/desk/1", {"id": 1})
    assert list(one.feeds) == ["/desk/1"]
    assert list(world.engine.topics["/desk/1"].router.feeds()) == [one.feeds["/desk/1"]]


def test_a_pattern_is_followed_without_a_word_to_its_topics(world):
    for number in range(3):
        world.publish(f"/desk/{number}", {"id": 1})
    one = followed(world, t="^/desk/")
    assert one.feeds == {}
    topics = [world.engine.topics[f"/desk/{number}"] for number in range(3)]
    assert [topic.router.subscription_count for topic in topics] == [1, 1, 1]
    world.publish("/desk/1", {"id": 2})
    assert list(one.feeds) == ["/desk/1"]
    assert [topic.router.subscription_count for topic in topics] == [1, 1, 1]
    assert world.engine.topics["t"].router.subscription_count == 0
    world.check()


def test_who_joins_late_shares_what_topics_have_met_and_what_they_have_not(world):
    for number in range(2):
        world.publish(f"/desk/{number}", {"id": 1})
    first = followed(world, t="^/desk/")
    world.publish("/desk/0", {"id": 2})
    second = followed(world, t="^/desk/")
    assert second.feeds is first.feeds
    counts = [world.engine.topics[f"/desk/{n}"].router.subscription_count for n in range(2)]
    assert counts == [2, 2]
    world.publish("/desk/1", {"id": 2})
    world.executor.subscriptions.end_all(first.session)
    world.publish("/desk/1", {"id": 3})
    assert list(second.channel.members) == [second.session]
    world.check()


def test_a_snapshot_in_part_is_what_its_session_is_sent_of_from_then_on(world):
    client = world.client()
    for number in range(2):
        world.publish(f"/desk/{number}", {"id": 1}, {"id": 2})
    client.say(c="sow_and_subscribe", t="^/desk/", opts="top_n=1,oof")
    for number in range(2):
        world.engine.publish(f"/desk/{number}", [b'{"id":3}'], world.now)
        topic = world.engine.catalog.deletable(f"/desk/{number}")
        world.engine.remove(topic, ["1", "2", "3"], "delete", world.now)
    world.settle()
    told = [(line["c"], line["t"], line["d"]["id"]) for line in client.lines()]
    # Of the records only the first was in the snapshot, and one was told since.
    assert sorted(told) == sorted(
        (kind, f"/desk/{number}", key)
        for number in range(2)
        for kind, key in (("p", 3), ("oof", 1), ("oof", 3))
    )
    world.check()


def test_a_session_may_follow_so_many_patterns(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.subscriptions.subscribe.PATTERNS_MAX", 2)
    client = world.client()
    for number in range(2):
        client.say(c="subscribe", t=f"^/{number}/")
    (ack,) = client.say(c="subscribe", t="^/desk/", cid="1")
    assert ack["reason"] == "too large"
    assert "one pattern match more topics" in ack["detail"]
    assert client.say(c="subscribe", t="t", cid="2")[0]["status"] == "success"
    client.say(c="unsubscribe", s=next(iter(client.subscriptions)))
    assert client.say(c="subscribe", t="^/desk/", cid="3")[0]["status"] == "success"
    world.check()


@pytest.fixture
def logged():
    logged = World()
    logged.publish("orders", *({"id": number} for number in range(3)))
    return logged


def test_what_is_in_the_log_is_sent_first_and_then_what_is_live(logged):
    client = logged.client()
    said = client.say(c="subscribe", t="orders", bm="1", cid="1", a="completed")
    assert short(said) == [("p", {"id": 1}), ("p", {"id": 2})]
    assert said[-1]["a"] == "completed"
    logged.publish("orders", {"id": 3})
    assert client.data() == [("p", {"id": 3})]
    logged.check()


def test_until_it_is_live_no_router_knows_it(logged):
    client = logged.client()
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    (one,) = client.subscriptions.values()
    assert one.replay is not None
    assert list(logged.engine.topics["orders"].router.feeds()) == []
    logged.check()
    client.lines()
    assert one.replay is None
    assert list(logged.engine.topics["orders"].router.feeds()) == [one.feeds["orders"]]


def test_a_range_ends_by_itself(logged):
    client = logged.client()
    said = client.say(c="subscribe", t="orders", bm="[1:2]", cid="1", a="completed")
    assert short(said) == [("p", {"id": 0}), ("p", {"id": 1})]
    assert client.subscriptions == {}
    logged.check()


def test_one_that_ends_before_it_is_live_reads_no_further(logged):
    client = logged.client()
    client.execute(b'{"c":"subscribe","t":"orders","bm":"0"}')
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert client.data() == []
    assert client.subscriptions == {}
    logged.check()


def test_topics_of_a_pattern_are_met_by_the_log_first_and_live_afterwards():
    logged = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    logged.publish("/desk/0", {"id": 0})
    logged.publish("/desk/1", {"id": 1})
    client = logged.client()
    client.execute(b'{"c":"subscribe","t":"^/desk/","bm":"1"}')
    (one,) = client.subscriptions.values()
    assert one.feeds == {}
    logged.publish("/desk/2", {"id": 2})
    assert client.data() == [("p", {"id": 1}), ("p", {"id": 2})]
    assert list(one.feeds) == ["/desk/1", "/desk/2"]
    for number in range(4):
        logged.publish(f"/desk/{number}", {"id": 10 + number})
    assert client.data() == [("p", {"id": 10 + number}) for number in range(4)]
    logged.check()
