"""Relief of queue memory: its steps in their order, clients, and a bound that a reload lowers.

The bound is that of `Limits/QueueMemory`.
"""

import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Limits
from sow.protocol import replies
from sow.protocol.replies import QUEUE_MEMORY, EventEncoding
from sow.streaming import sessions
from sow.streaming.outbox import conflate, outbox
from tests.laws.narrow import (
    KB,
    PAD,
    at,
    away,
    memory,
    named,
    open_ones,
    own,
    publish,
    settled,
    world_of,
)
from tests.laws.slow import kinds, topic

# What is done beyond it, in this order.


def test_first_what_was_sent_is_forgotten_and_nobody_is_closed_for_it():
    world = world_of(200 * KB)
    clients = [named(world, number) for number in range(6)]
    for number in range(100):
        publish(world, number)
        assert [len(client.data()) for client in clients] == [1] * 6
        settled(world)
        assert memory(world).used <= 200 * KB
    assert len(open_ones(world)) == 6


def test_the_largest_recovery_buffers_are_shortened_first():
    world = world_of(400 * KB)
    small, *large = [named(world, number) for number in range(6)]
    publish(world, 1, 5)
    small.lines()
    small.say(c="unsubscribe", s="all")
    before = small.session.recovery.held_bytes
    for number in range(80):
        publish(world, number)
        for client in large:
            client.lines()
        settled(world)
    assert small.session.recovery.held_bytes >= before > 0


def test_then_topics_that_may_be_given_up_are_and_what_else_waits_stays():
    world = world_of(200 * KB, topic(), topic("u", conflation_policy="unsubscribe"))
    giving, keeping = own(world, 1, topic="u"), own(world, 2)
    for number in range(1, 60):
        publish(world, number)
        publish(world, number, name="u")
        keeping.say(c="heartbeat")
        if "unsubscribed" in kinds(giving.lines() if number == 59 else []):
            break
    assert giving.subscriptions == {} or giving.session.overflow.dropped > 0
    assert giving.session.ended is keeping.session.ended is None


def test_subscriptions_are_given_up_in_steps_and_no_line_follows_what_was_dropped(monkeypatch):
    monkeypatch.setattr(sessions, "GIVEN_UP_AT_ONCE", 3)
    monkeypatch.setattr(conflate, "FREED_AT_ONCE", 7)
    world = world_of(4_000 * KB, topic(conflation_policy="unsubscribe"), queue_messages_max=100)
    client, steps = own(world, 1), 0
    for number in range(1, 20):
        client.say(c="subscribe", t="t", select=f"-/g{number}")
    client.lines()
    for value in range(5):
        world.publish("t", {"id": 1, "v": value})
    session = client.session
    session.conflate(world.now)
    while session.fold_some(world.now):
        steps += 1
        world.publish("t", {"id": 1, "v": 100 + steps})
        world.check()
    assert steps >= 3, "a publish has a step done, too"
    assert client.subscriptions == {}
    settled(world)
    sent = kinds(client.lines())
    assert (sent.count("unsubscribed"), sent.count("p")) == (20, 0)
    settled(world)
    assert memory(world).used == 0
    assert session.overflow.given_up[0].subscriptions == 20


def test_then_the_largest_queues_are_folded_until_it_fits():
    world = world_of(400 * KB)
    large, small = [own(world, number) for number in (1, 2)], own(world, 3)
    for number in range(8):
        publish(world, number)
    for _ in range(150):
        world.publish("t", {"id": 1, "pad": PAD})
        settled(world)
        small.lines()
    assert memory(world).used <= 400 * KB
    assert all(client.session.outbox.folded for client in large)
    assert small.session.outbox.folded == 0
    assert len(open_ones(world)) == 3


def test_a_long_queue_is_looked_through_in_steps(monkeypatch):
    world = world_of(400 * KB)
    client = own(world, 1)
    for number in range(10):
        world.publish("t", {"id": number}, {"id": number + 1})
    box = client.session.outbox
    at_once = run_to_completion(box.folded_bytes(1.0))
    monkeypatch.setattr(outbox, "LOOKED_AT_ONCE", 4)
    estimates, steps = [], 0

    def estimating():
        estimates.append((yield from box.folded_bytes(1.0)))

    for _ in estimating():
        steps += 1
        client.lines()  # what has left meanwhile is in the estimate
    assert (steps, estimates) == (4, [at_once])


def test_what_many_wait_for_is_not_copied_for_each_of_them():
    world = world_of(400 * KB)
    for number in range(40):
        at(world, f"192.0.2.{number}").say(c="subscribe", t="t")
    greedy = [own(world, number) for number in (101, 102, 103, 104, 105, 106)]
    publish(world, 1, 60)
    assert memory(world).used <= 400 * KB
    counts = {s: s.outbox.queue.count for s in open_ones(world)}
    copied = [s for s, c in counts.items() if s.outbox.folded or (c and c.own > 20 * KB)]
    assert len(copied) <= len(greedy) + 1


@pytest.mark.parametrize("freed_at_once", [1, 1_000])
def test_then_sessions_are_closed_one_by_one_the_largest_first(monkeypatch, freed_at_once):
    monkeypatch.setattr(conflate, "FREED_AT_ONCE", freed_at_once)
    world = world_of(400 * KB)
    small = own(world, 1, filter="/id < 10")
    large = [own(world, number) for number in range(2, 8)]
    publish(world, 1, 55)
    closed = [client for client in large if client.session.ended == QUEUE_MEMORY]
    assert 0 < len(closed) < len(large), "no more than needed"
    assert small.session.ended is None
    assert kinds(closed[0].lines())[-1:] == ["close"]
    assert memory(world).used <= 400 * KB


def test_topics_that_may_not_be_folded_are_not_folded():
    world = world_of(200 * KB, topic(conflation_policy="off"))
    clients = [own(world, number) for number in range(6)]
    for _ in range(60):
        publish(world, 1)
    assert all(client.session.outbox.folded == 0 for client in clients)
    assert any(client.session.ended == QUEUE_MEMORY for client in clients)


def test_who_wants_every_update_is_not_folded():
    world = world_of(200 * KB)
    every, folded = own(world, 1), own(world, 2)
    every.session.allow_folding(False)
    for _ in range(100):
        publish(world, 1)
    assert every.session.outbox.folded == 0
    assert every.session.ended == QUEUE_MEMORY
    assert folded.session.ended is None


# Clients.


def test_one_client_takes_no_more_than_its_quarter_and_others_pay_nothing():
    world = world_of(400 * KB)
    others = [own(world, number, filter="/id < 20") for number in range(2, 4)]
    greedy = [at(world, "192.0.2.1") for _ in range(10)]
    for number, client in enumerate(greedy):
        client.say(c="subscribe", t="t", select=f"-/g{number}")
    publish(world, 1, 60)
    share = greedy[0].session.memory.share
    assert share.used <= 100 * KB
    assert any(client.session.ended == QUEUE_MEMORY for client in greedy)
    assert all(client.session.ended is None for client in others)
    assert all(client.session.outbox.folded == 0 for client in others)


def test_kept_away_sessions_with_select_lists_of_their_own_stay_within_the_bound():
    world = world_of(1_000 * KB)
    clients = [away(world, named(world, number)) for number in range(100)]
    for number in range(100):
        publish(world, number)
        assert memory(world).used <= 1_000 * KB
    gone = world.executor.sessions.closed[QUEUE_MEMORY]
    assert 0 < gone < 100
    assert gone + len(open_ones(world)) == len(clients)
    returning = next(c for c in clients if not world.executor.sessions.has(c.session))
    answer = world.client().say(c="logon", client="x", session=returning.session.name)[-1]
    assert (answer["resumed"], answer["reason"]) == (False, "closed for queue memory")


def test_a_reload_that_lowers_it_holds_at_once():
    world = world_of(4_000 * KB)
    clients = [own(world, number) for number in range(10)]
    publish(world, 1, 50)
    assert len(open_ones(world)) == len(clients)
    narrower = replace(world.configuration, limits=Limits(queue_memory_bytes_max=400 * KB))
    world.executor.reconfigure(narrower, world.now)
    settled(world)
    assert memory(world).used <= 400 * KB
    assert 0 < len(open_ones(world)) < len(clients)


def test_a_publisher_waits_until_there_is_room():
    """However much is published in one request: a slice is what may come beyond the bound."""
    world = world_of(400 * KB)
    for number in range(20):
        own(world, number)
    bodies = [json.dumps({"id": number, "pad": PAD}).encode() for number in range(1000)]
    topic_of = world.engine.publishable("t")
    read = [world.engine.read(topic_of, bodies[n : n + 10], now_us=world.now)
            for n in range(0, 1000, 10)]  # fmt: skip
    most = 0
    for _ in world.engine.publications.carry_out("t", read, world.now):
        world.settle()
        most = max(most, memory(world).used)
    settled(world)
    assert most < 20 * 11 * 3 * KB + 400 * KB
    assert memory(world).used <= 400 * KB


def test_an_event_stream_ends_with_an_error_of_that_reason():
    event = EventEncoding("0123456789abcdef").reply(replies.close(QUEUE_MEMORY))
    assert event == b'event: error\ndata: {"c":"close","reason":"queue memory"}\n\n'
