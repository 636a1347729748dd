"""Clients have turns, and one that orders too much is waited for no more. What is late grows by
batches that cost nobody anything, and counts for its client."""

from dataclasses import replace
from itertools import islice

import pytest

from sow.core.definitions import Limits
from sow.protocol.replies import QUEUE_MEMORY
from sow.streaming import late_turns, router
from sow.streaming.late_turns import LateTurns
from sow.streaming.router import Latecomer
from tests.laws.harness import ORDERS, World


@pytest.fixture
def world():
    return World(ORDERS)


def channels(world, *clients):
    """Channels of the clients' subscriptions, of one for each."""
    for at, client in enumerate(clients):
        client.say(c="subscribe", t="orders", opts=f"select=[/f{at}]")
    return [feed.channel for feed in world.engine.topics["orders"].router.feeds()]


def test_clients_have_turns_however_many_channels_they_have(world):
    one, other = world.client(), world.client()
    late = LateTurns()
    for channel in channels(world, one, one, one, other):
        late.add(channel, 1)
    taken = [turn.client for turn in islice(late.turns(), 4)]
    assert taken == [client.session.memory.share for client in (one, other, one, other)]
    first = next(late.turns())
    latecomers = [*first.latecomers]
    late.yield_to_others(latecomers[0])
    assert [*first.latecomers] == [*latecomers[1:], latecomers[0]]


def test_one_that_orders_too_much_is_waited_for_no_more(world, monkeypatch):
    monkeypatch.setattr(late_turns, "ORDERED_US", 10)
    one, other = world.client(), world.client()
    late = LateTurns()
    few, *many = channels(world, other, one, one)
    for channel in (few, *many):
        late.add(channel, 6)
    assert [few.turn.is_awaited, many[0].turn.is_awaited] == [True, False]
    assert late.has_awaited
    late.discard(few)
    late.discard(few)
    assert not late.has_awaited
    assert (few.turn, len(late)) == (None, 2)


def test_one_that_is_late_with_little_again_and_again_is_waited_for(world, monkeypatch):
    monkeypatch.setattr(late_turns, "ORDERED_US", 10)
    client, late = world.client(), LateTurns()
    stays, *others = channels(world, *[client] * 9)
    late.add(stays, 4)
    for channel in others:
        late.add(channel, 4)
        late.discard(channel)
    assert late.has_awaited


def test_who_has_several_clients_or_none_has_turns_alone_and_is_waited_for(world, monkeypatch):
    monkeypatch.setattr(late_turns, "ORDERED_US", 10)
    for client in (world.client(), world.client()):
        client.say(c="subscribe", t="orders")
    (feed,) = world.engine.topics["orders"].router.feeds()
    late, views = LateTurns(), Latecomer()
    for latecomer in (feed.channel, views):
        late.add(latecomer, 100)
    assert [turn.client for turn in islice(late.turns(), 2)] == [feed.channel, views]
    assert late.has_awaited


COUNT = 20


@pytest.fixture
def late_world(monkeypatch):
    """A world in which each change is late for its followers, and nobody is waited for."""
    monkeypatch.setattr(router, "AT_ONCE_US", 1)
    monkeypatch.setattr(late_turns, "ORDERED_US", 1)
    return World(ORDERS)


def followed(world):
    client = world.client()
    for at in range(COUNT):
        client.say(c="subscribe", t="orders", opts=f"select=[/id,/f{at}]")
    return client, [feed.channel for feed in world.engine.topics["orders"].router.feeds()]


def publish(world, number):
    world.engine.publish("orders", [b'{"id":%d}' % number], world.now)


def test_a_batch_more_is_added_once_for_all(late_world):
    client, channels = followed(late_world)
    for number in range(10):
        publish(late_world, number)
    assert {len(channel.late) for channel in channels} == {1}
    assert len({id(channel.late[0]) for channel in channels}) == 1
    late_world.check()
    late_world.settle()
    lines = client.lines()
    for channel in channels:
        got = [line["d"]["id"] for line in lines if line["s"] == channel.name]
        assert got == [*range(10)]
    late_world.check()
    assert client.session.memory.waiting_bytes(1) == 0


def test_so_many_records_that_leave_at_once_are_added_to(late_world, monkeypatch):
    monkeypatch.setattr(late_turns, "TOGETHER_RECORDS", 3)
    _, channels = followed(late_world)
    for number in range(7):
        publish(late_world, number)
    assert {len(channel.late) for channel in channels} == {3}


@pytest.mark.usefixtures("late_world")
def test_changes_of_several_topics_stay_in_order():
    world = World(ORDERS, replace(ORDERS, name="other"))
    client = world.client()
    for at in range(COUNT):
        client.say(c="subscribe", t="^o.*r", opts=f"select=[/id,/f{at}]")
    topics = ["orders", "other", "orders", "orders", "other"]
    for number, topic in enumerate(topics):
        world.engine.publish(topic, [b'{"id":%d}' % number], world.now)
    world.settle()
    lines = client.lines()
    for name in {line["s"] for line in lines}:
        assert [line["t"] for line in lines if line["s"] == name] == topics


def test_who_has_taken_a_part_of_it_or_left_gets_the_rest_or_nothing(late_world):
    client, channels = followed(late_world)
    publish(late_world, 0)
    late_world.settle_once()
    publish(late_world, 1)
    name = channels[-1].name
    commands = b'{"c":"unsubscribe","s":"%s"}' % name.encode()
    client.execute(commands)
    publish(late_world, 2)
    late_world.settle()
    late_world.check()
    lines = client.lines()
    for channel in channels:
        got = [line["d"]["id"] for line in lines if line.get("s") == channel.name and "d" in line]
        assert got == ([0, 1] if channel.name == name else [0, 1, 2])


@pytest.mark.usefixtures("late_world")
def test_who_is_late_with_too_much_is_closed():
    world = World(ORDERS, limits=Limits(queue_memory_bytes_max=100_000))
    client, _ = followed(world)
    for number in range(50):
        publish(world, number)
    assert client.session.ended is None
    assert client.session.memory.waiting_bytes(1) > 0
    for number in range(COUNT * 10):
        publish(world, number)
    assert client.session.ended == QUEUE_MEMORY
    world.settle()
    world.check()
