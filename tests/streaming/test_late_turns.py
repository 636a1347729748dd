"""Clients have turns, and one that orders too much is waited for no more."""

from itertools import islice

import pytest

from sow.streaming import late_turns
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
