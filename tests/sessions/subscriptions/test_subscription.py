"""The register: what it knows of subscriptions, and that it notices what does not agree.

Ending: the last one out ends the feeds, and what was said before still leaves.
"""

from weakref import WeakSet

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import SessionSettings, Topic
from sow.expressions import compile_filter
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.sessions import subscriptions
from sow.sessions.subscriptions import Register, Subscription
from sow.streaming.channel import DirectChannel
from sow.streaming.update_encoder import FeedKey
from tests.laws.harness import World, short


@pytest.fixture
def session():
    return World().client().session


def subscribed(register, session, text=None, **key):
    """A subscription that has joined its strand."""
    channel = DirectChannel(register.new_name("f"), LINES)
    condition = None if text is None else compile_filter(text)
    one = Subscription("t", channel, {}, session, FeedKey(**key), condition, complete=True)
    register.add(one)
    channel.join(session)
    register.check()
    return one


def test_what_a_session_follows_is_found_by_name_until_it_ends(session):
    register = Register()
    first, second = (subscribed(register, session) for _ in "12")
    assert register.of(session) == {first.name: first, second.name: second}
    register.remove(first)
    register.remove(first)
    register.check()
    assert register.of(session) == {second.name: second}
    register.remove(second)
    assert register.of(session) == {}


def test_filters_are_counted_and_those_at_the_clients_pace_are_known(session):
    register = Register()
    filtered = subscribed(register, session, "/a LIKE 'b'")
    paced = subscribed(register, session, auto=True)
    assert register.followed(session).filter_chars == len("/a LIKE 'b'")
    assert register.followed(session).search_cost == 1
    assert [*register.followed(session).at_own_pace] == [paced]
    register.remove(filtered)
    register.check()
    assert (register.followed(session).filter_chars, register.followed(session).search_cost) == (
        0,
        0,
    )
    register.remove(paced)
    assert [*register.followed(session).at_own_pace] == []
    assert register.followed(session).search_cost == 0


def test_check_finds_a_member_that_is_not_sent(session):
    register = Register()
    one = subscribed(register, session)
    one.channel.leave(session)
    with pytest.raises(AssertionError, match="a member that receives nothing"):
        register.check()


NEWS = Topic("news", "json", keys=("/id",), conflation_policy="unsubscribe")


@pytest.fixture
def world():
    return World(NEWS, sessions=SessionSettings(queue_messages_max=3))


def feeds(world):
    return list(world.engine.topics["news"].router.feeds())


def test_the_last_one_out_ends_the_feed(world):
    first, second = world.client(), world.client()
    for client in (first, second):
        client.say(c="subscribe", t="news")
    first.say(c="unsubscribe", s="all")
    assert len(feeds(world)) == 1
    world.executor.sessions.close(second.session)
    assert feeds(world) == []
    world.check()


def test_a_session_is_sent_what_it_is_not_worth_keeping_up_with(world):
    client = world.client()
    client.say(c="subscribe", t="news")
    world.publish("news", *({"id": number} for number in range(5)))
    assert [line["reason"] for line in client.lines() if line["c"] == "unsubscribed"] == [
        "BACK_PRESSURE"
    ]
    assert client.subscriptions == {}
    assert feeds(world) == []


def test_a_session_that_follows_much_ends_some_at_a_time(world, monkeypatch):
    monkeypatch.setattr(subscriptions, "ENDED_AT_ONCE", 2)
    client = world.client()
    for number in range(5):
        client.say(c="subscribe", t="news", filter=f"/v = {number}")
    world.executor.sessions.close(client.session)
    assert len(feeds(world)) == 3
    assert list(world.executor.sessions) == []
    world.publish("news", {"id": 1, "v": 4})
    assert not client.session.outbox, "nothing gathers for who has gone"
    world.check()
    world.engine.advance(world.now)
    assert len(feeds(world)) == 1
    world.advance(0)
    assert feeds(world) == []
    assert world.due_us() is None
    world.check()


def test_much_is_unsubscribed_some_at_a_time_and_acknowledged_at_the_end(world, monkeypatch):
    monkeypatch.setattr(subscriptions, "ENDED_AT_ONCE", 2)
    client = world.client()
    for number in range(5):
        client.say(c="subscribe", t="news", filter=f"/v = {number}")
    commands = read_frame(b'{"c":"unsubscribe","s":"all","cid":"1"}')
    steps = world.executor.carry_out(client.session, commands, lambda: world.now)
    next(steps)
    assert len(feeds(world)) == 3
    world.executor.subscriptions.give_up(client.session, next(iter(client.subscriptions)))
    run_to_completion(steps)
    world.settle()
    assert [line["c"] for line in client.lines()] == ["unsubscribed", "ack"]
    assert feeds(world) == []


def test_a_topic_that_goes_ends_what_names_it_and_not_what_follows_a_pattern():
    world = World()
    named, patterned = world.client(), world.client()
    named.say(c="subscribe", t="orders-C")
    patterned.say(c="subscribe", t="^orders")
    world.publish("orders", {"id": 1})
    world.executor.subscriptions.end_topic(world.engine.topics["orders-C"])
    world.settle()
    assert [line["reason"] for line in named.lines() if line["c"] == "unsubscribed"] == ["REMOVAL"]
    assert named.subscriptions == {}
    (one,) = patterned.subscriptions.values()
    assert list(one.feeds) == ["orders"]
    assert short(patterned.lines()) == [("p", {"id": 1})]


def test_what_many_topics_of_a_pattern_have_made_falls_due(monkeypatch):
    monkeypatch.setattr(subscriptions, "FEEDS_AT_ONCE", 2)
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    client = world.client()
    client.say(c="sow_and_subscribe", t="^/desk/")
    for number in range(5):
        world.publish(f"/desk/{number}", {"id": 1})
    (one,) = client.subscriptions.values()
    client.lines()
    client.say(c="unsubscribe", s="all", cid="1")
    assert len(one.feeds) == 3
    world.check()
    for number in range(5):
        world.publish(f"/desk/{number}", {"id": 2})
    assert not one.channel.rendered, "nothing gathers for who has gone"
    world.advance(0)
    assert one.feeds == {}
    assert not any([*topic.router.feeds()] for topic in world.engine.topics.values())
    assert world.due_us() is None
    world.check()


def test_what_has_ended_is_freed_in_the_step_that_ends_it(world, monkeypatch):
    """Not all of it with the last: ten thousand take a tenth of a second."""
    monkeypatch.setattr(subscriptions, "ENDED_AT_ONCE", 2)
    client = world.client()
    for number in range(6):
        client.say(c="subscribe", t="news", filter=f"/v = {number}")
    followed = world.executor.subscriptions.of(client.session)
    left = WeakSet(one.channel for one in followed.values())
    steps = world.executor.carry_out(
        client.session, read_frame(b'{"c":"unsubscribe","s":"all"}'), lambda: world.now
    )
    counts = [len(left) for _ in steps]
    assert counts == [5, 3], "and the last of each step"
