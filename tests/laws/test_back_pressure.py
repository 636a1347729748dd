"""Full queues: when they are conflated, by which policy, and when a session is given up.

The rules are 12 and 13 of docs/semantics.md.
"""

import json
import sys
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sow.core.definitions import SessionSettings, Topic
from sow.streaming.sessions import SLOW
from tests.laws.harness import SECOND, World, short
from tests.laws.slow import kinds, slow, topic, world_of
from tests.laws.tables import play

# When.


def test_a_queue_within_its_bounds_is_left_alone():
    world = world_of(topic())
    client = slow(world)
    for px in range(10):
        world.publish("t", {"id": 1, "px": px})
    assert [document["px"] for _, document in client.data()] == list(range(10))


def test_the_message_that_finds_the_queue_full_takes_part():
    world = world_of(topic())
    client = slow(world)
    for px in range(11):
        world.publish("t", {"id": 1, "px": px})
    lines = client.lines()
    assert short(lines) == [("p", {"id": 1, "px": 10})]
    assert lines[-1] == {"c": "heartbeat", "conflated": 10, "dropped": 0}


def test_bytes_are_a_bound_of_their_own():
    world = world_of(topic(), queue_messages_max=10_000, queue_bytes_max=1000)
    client = slow(world)
    for px in range(30):
        world.publish("t", {"id": 1, "px": px, "text": "x" * 100})
        assert client.session.outbox.size_bytes <= 1000
        world.check()
    assert client.data()[-1][1]["px"] == 29


def test_a_queue_that_conflation_does_not_help_ends_the_session_after_some_patience():
    world = world_of(topic())
    client = slow(world)
    world.publish("t", *({"id": number} for number in range(12)))
    assert client.session.ended is None
    world.advance(2 * SECOND)
    world.publish("t", {"id": 99})
    assert kinds(client.lines()) == ["close"]


@pytest.mark.parametrize("bound", [10, 60])
@pytest.mark.parametrize("away", [False, True])
def test_a_queue_holds_as_many_records_as_its_bound_however_slowly_they_change(bound, away):
    world = world_of(topic(), queue_messages_max=bound)
    client = slow(world)
    session = client.session
    if away:
        session.disconnect()
    for px in range(12 * bound):
        world.publish("t", {"id": px % bound, "px": px})
        world.advance(5 * SECOND // bound)
        assert session.outbox.message_count <= 1.1 * bound + 2, "a tenth more, and the notice"
    world.check()
    assert session.ended is None
    if not away:
        latest = {document["id"]: document["px"] for _, document in client.data()}
        assert latest == {px % bound: px for px in range(11 * bound, 12 * bound)}
    for px in range(2 * bound):
        world.publish("t", {"id": px % (bound + 1), "px": px})
        world.advance(5 * SECOND // bound)
    assert session.ended == SLOW


def test_an_update_for_a_client_that_does_not_read_takes_few_calls():
    """Its line is made when it leaves, and not for each update that is folded into it."""
    counts, rounds = [], 10
    for follows in (False, True):
        world = world_of(topic(), queue_messages_max=100)
        session = slow(world, *[{"c": "subscribe", "t": "t"}] * follows, {"c": "flush"}).session

        def turn(px, world=world, session=session):
            world.publish("t", *({"id": number, "px": px} for number in range(100)))
            while session.folds:
                world.executor.sessions.fold_some(world.now)

        for px in range(3):
            turn(px)
        with calls_counted() as calls:
            for px in range(3, 3 + rounds):
                turn(px)
        counts.append(calls.total() / rounds / 100)
    assert session.outbox.message_count == 101
    assert counts[1] - counts[0] <= 55, counts


@contextmanager
def calls_counted():
    """What is called meanwhile, of Python and of C."""
    calls = Counter()

    def count(_frame, event, _called):
        if event in ("call", "c_call"):
            calls[event] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_client_that_reads_a_burst_away_is_kept():
    play("""
    sessions  QueueMaxMessages=2
    topic     t  Key=/id

    at 0.0  subscribe
            stop
            publish  {"id":1} {"id":2} {"id":3} {"id":4}
    at 0.9  read
            said     p {"id":1}  p {"id":2}  p {"id":3}  p {"id":4}
            stop
    at 9.0  publish  {"id":5}
    at 9.5  read
            said     p {"id":5}
    """)


def test_control_lines_are_never_dropped_or_moved():
    world = world_of(topic())
    client = slow(world)
    for px in range(8):
        world.publish("t", {"id": 1, "px": px})
        client.execute(b'{"c":"flush","cid":"%d"}' % px)
    lines = client.lines()
    assert [line["cid"] for line in lines if line["c"] == "ack"] == [str(px) for px in range(8)]
    assert short(lines) == [("p", {"id": 1, "px": 7})]


def test_a_snapshot_that_waits_is_not_touched():
    world = world_of(topic())
    world.publish("t", *({"id": number} for number in range(5)))
    client = world.client()
    client.execute(b'{"c":"sow_and_subscribe","t":"t","cid":"1"}')
    for px in range(21):
        world.publish("t", {"id": 1, "px": px})
    lines = client.lines()
    assert kinds(lines)[:8] == ["ack", "group_begin", *["sow"] * 5, "group_end"]
    assert short(lines)[5:] == [("p", {"id": 1, "px": 20})]


def test_deletes_are_not_conflated_away():
    world = world_of(topic())
    client = slow(world, opts="oof", c="sow_and_subscribe")
    world.publish("t", {"id": 1}, {"id": 2})
    client.lines()
    for px in range(6):
        world.publish("t", {"id": 1, "px": px}, {"id": 3, "px": px})
    world.delete("t", "/id IN (1, 3)")
    client.session.conflate(world.now)
    assert short(client.lines()) == [("deleted", {"id": 1})]


def test_a_dropped_session_is_conflated_by_the_same_rules():
    world = world_of(topic())
    client = slow(world, {"c": "logon", "client": "x"}, {"c": "subscribe", "t": "t"})
    world.executor.sessions.drop(client.session, world.now)
    for px in range(50):
        world.publish("t", {"id": 1, "px": px})
    assert client.session.outbox.message_count < 12
    world.publish("t", *({"id": number} for number in range(20)))
    assert client.session not in list(world.executor.sessions), "without a socket no patience"


def test_one_slow_session_costs_the_others_nothing():
    world = world_of(topic())
    slow(world)
    healthy = slow(world)
    for px in range(100):
        world.publish("t", {"id": 1, "px": px})
        assert healthy.data() == [("p", {"id": 1, "px": px})]


def test_background_conflation_begins_before_the_queue_is_full():
    world = world_of(topic(), background_conflation_fraction=0.5)
    client = slow(world)
    for px in range(6):
        world.publish("t", {"id": 1, "px": px})
    assert client.session.outbox.message_count == 6
    assert world.executor.sessions.conflate_in_background(world.now) is False
    assert short(client.lines()) == [("p", {"id": 1, "px": 5})]


# Policies.


def test_off_loses_and_reorders_nothing_while_others_are_conflated():
    play("""
    sessions  QueueMaxMessages=5
    topic     t    Key=/id
    topic     off  Key=/id  ConflationPolicy=off

    at 0.0  subscribe t
            subscribe off
            stop
            publish t    {"id":1,"t":1}
            publish off  {"id":1,"off":1}
            publish t    {"id":1,"t":2}
            publish off  {"id":1,"off":2}
            publish t    {"id":1,"t":3}
            publish off  {"id":1,"off":3}
    at 0.5  read
            said  p {"id":1,"t":3}  p {"id":1,"off":1}  p {"id":1,"off":2}  p {"id":1,"off":3}
    """)


def test_unsubscribe_gives_the_subscription_up_and_says_so():
    world = world_of(topic(conflation_policy="unsubscribe"))
    client = slow(world)
    for px in range(12):
        world.publish("t", {"id": px})
    lines = client.lines()
    (line,) = [line for line in lines if line["c"] == "unsubscribed"]
    assert line["reason"] == "BACK_PRESSURE"
    assert short(lines) == []
    assert lines[-1] == {"c": "heartbeat", "conflated": 0, "dropped": 11}
    assert client.subscriptions == {}
    client.say(c="subscribe", t="t")
    world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1})]


def test_what_waits_of_a_replaced_subscription_is_sent_though_the_new_one_is_given_up():
    """The line that replaces it relies on it: seed 2124 of the simulation."""
    world = world_of(topic(conflation_policy="unsubscribe"))
    client = world.client()
    name = client.say(c="subscribe", t="t", opts="oof", cid="1")[0]["s"]
    world.publish("t", {"id": 1, "px": 1})
    replace = {"c": "subscribe", "t": "t", "s": name, "opts": "oof,replace", "filter": "/px > 1"}
    client.execute(json.dumps(replace).encode())
    for px in range(2, 14):
        world.publish("t", {"id": 2, "px": px})
    lines = client.lines()
    assert short(lines) == [("p", {"id": 1, "px": 1}), ("match", {"id": 1, "px": 1})]
    assert [line["reason"] for line in lines if line["c"] == "unsubscribed"] == ["BACK_PRESSURE"]
    world.check()


def test_always_keeps_one_update_of_each_record_however_empty_the_queue():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world)
    for px in range(5):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        world.check()
    assert client.session.outbox.message_count == 2
    assert client.data() == [("p", {"id": 1, "px": 4}), ("p", {"id": 2, "px": 4})]


def test_always_folds_within_one_batch_too():
    play("""
    topic  t  Key=/id  ConflationPolicy=always

    at 0.0  subscribe
            stop
            publish  {"id":1,"px":1} {"id":1,"px":2}
            read
            said     p {"id":1,"px":2}
    """)


def test_a_batch_is_folded_for_some_sessions_and_not_for_others_and_both_forms_are_shared():
    world = world_of(topic(conflation_policy="always"))
    clients = [slow(world) for _ in range(4)]
    for client in clients[2:]:
        client.session.allow_folding(False)
    world.publish("t", {"id": 1, "px": 1}, {"id": 1, "px": 2})
    frames = [client.first_frame for client in clients]
    assert frames[0] is frames[1]
    assert frames[2] is frames[3]
    assert [client.session.outbox.folded for client in clients] == [1, 1, 0, 0]
    assert world.executor.sessions.folded_because == {"always": 2, "slow": 0}
    assert [len(client.data()) for client in clients] == [1, 1, 2, 2]


def test_a_session_can_be_switched_while_updates_wait():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world)
    for px in range(6):
        client.session.allow_folding(px < 2 or px > 3)
        world.publish("t", {"id": 1, "px": 2 * px}, {"id": 1, "px": 2 * px + 1})
        world.check()
        if px == 3:
            # What was folded before is one update; what came while it was off is all there.
            assert client.session.outbox.message_count == 5
    assert client.data() == [("p", {"id": 1, "px": 11})]


def test_what_comes_and_goes_within_a_batch_is_nothing_to_a_session_that_conflates():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world, c="sow_and_subscribe", opts="oof")
    client.lines()
    world.engine.publish("t", [b'{"id":1}'], world.now)
    world.delete("t", "/id = 1")
    assert client.session.outbox.message_count == 0
    assert client.lines() == []


class Counted(deque):
    """A queue that counts how often it is gone through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_what_is_folded_as_it_is_queued_costs_the_same_however_much_waits():
    world = world_of(
        topic(conflation_policy="off"),
        topic("a", conflation_policy="always"),
        queue_messages_max=1000,
    )
    client = slow(world, {"c": "subscribe", "t": "t"}, {"c": "subscribe", "t": "a"})
    for number in range(100):
        world.publish("t", {"id": number})
    world.publish("a", {"id": 0})
    outbox = client.session.outbox
    outbox.queue.entries = waiting = Counted(outbox.queue.entries)
    for number in range(50):
        world.publish("a", {"id": number % 5})
    assert outbox.queue.entries is waiting
    assert waiting.walks == 0
    assert outbox.message_count == 105


def test_a_session_that_was_switched_off_is_not_conflated():
    world = world_of(topic(), topic("a", conflation_policy="always"), queue_messages_max=1000)
    client = slow(world, {"c": "subscribe", "t": "t"}, {"c": "subscribe", "t": "a"})
    client.session.allow_folding(False)
    for px in range(20):
        world.publish("t", {"id": 1, "px": px})
        world.publish("a", {"id": 1, "px": px})
    assert len(client.data()) == 40


def test_what_becomes_of_slow_clients_is_sent_to_the_operator_and_counted_for_good():
    world = world_of(topic(), topic("u", conflation_policy="unsubscribe"))
    notices = []
    world.executor.sessions.on_slow_client(notices.append)
    client = slow(
        world,
        {"c": "logon", "client": "sleepy"},
        {"c": "subscribe", "t": "t"},
        {"c": "subscribe", "t": "u"},
    )
    world.publish("u", *({"id": number} for number in range(3)))
    for px in range(12):
        world.publish("t", {"id": 1, "px": px})
    (given_up,) = notices
    assert "sleepy" in given_up
    assert "BACK_PRESSURE" in given_up
    before = world.executor.sessions.folded, world.executor.sessions.dropped
    assert before[0] > 0
    assert before[1] == 3
    world.publish("t", *({"id": number} for number in range(20)))
    world.advance(2 * SECOND)
    world.publish("t", {"id": 99})
    assert "slow client" in notices[-1]
    assert "23 messages" in notices[-1], "21 records and two notices"
    world.executor.sessions.drop(client.session, world.now)
    assert world.executor.sessions.closed["slow"] == 1
    assert (world.executor.sessions.folded, world.executor.sessions.dropped) >= before
    dropped = world.executor.sessions.dropped_because
    assert (dropped["given up"], dropped["slow"]) == (3, 23)
    folded = world.executor.sessions.folded_because
    assert folded == {"always": 0, "slow": world.executor.sessions.folded}


def test_the_last_lines_of_a_topic_that_is_removed_travel_by_its_own_policy():
    world = world_of(topic("off", conflation_policy="off"), topic("t"))
    client = slow(world, {"c": "subscribe", "t": "^(off|t)$"})
    for number in range(3):
        world.engine.publish("off", [b'{"id":1,"n":%d}' % number], world.now)
    (subscription,) = client.subscriptions.values()
    del subscription.feeds["off"]
    for number in range(3):
        world.engine.publish("t", [b'{"id":1,"n":%d}' % number], world.now)
    world.settle()
    client.session.conflate(world.now)
    told = [(line["t"], line["d"]["n"]) for line in client.lines() if line["c"] == "p"]
    assert told == [("off", 0), ("off", 1), ("off", 2), ("t", 2)]


# Values and deltas.


def strings(values, wide, bound=2):
    """The deltas of a topic whose value goes through `values`, conflated in the queue."""
    world = world_of(topic(), queue_messages_max=bound)
    rest = {"rest": "x" * 100} if wide else {}
    world.publish("t", {"id": 1, "v": values[0], **rest})
    client = slow(world, c="sow_and_delta_subscribe")
    client.lines()
    for value in values[1:]:
        world.publish("t", {"id": 1, "v": value, **rest})
    (line,) = [line for line in client.lines() if line["c"] == "p"]
    return line


def test_three_deltas_become_one_composite_delta():
    line = strings(["a", "ab", "ac", "acd"], wide=True)
    assert (line["d"], line["delta"]) == ({"id": 1, "v": "acd"}, True)


def test_the_value_is_sent_where_it_is_shorter():
    line = strings(["a", "ab", "ac", "acd"], wide=False)
    assert (line["d"], "delta" in line) == ({"id": 1, "v": "acd"}, False)


def test_a_topic_that_retains_nothing_conflates_what_is_queued():
    world = world_of(topic(retain=False), queue_messages_max=2)
    client = slow(world)
    for px in range(4):
        world.publish("t", {"id": 1, "px": px})
    assert client.data()[-1] == ("p", {"id": 1, "px": 3})
    assert len(json.dumps(client.data())) < 10


def test_what_waits_under_an_older_policy_is_not_overtaken():
    topic = Topic("t", "json", keys=("/id",))
    world = World(topic, sessions=SessionSettings(queue_messages_max=4))
    client = world.client()
    client.say(c="sow_and_subscribe", t="t")
    for number, policy in enumerate(("conflate", "off", "conflate")):
        changed = replace(topic, conflation_policy=policy)
        configuration = replace(world.configuration, topics=(changed,))
        world.executor.reconfigure(configuration, world.now)
        world.publish("t", {"id": 1, "n": number})
    for number in range(3, 6):
        world.publish("t", {"id": 1, "n": number})
    world.check()
    numbers = [document["n"] for _, document in client.data()]
    assert len(numbers) < 6, "it was conflated"
    assert numbers == sorted(numbers)


def test_what_waits_from_before_a_topic_was_always_conflated_stands_before_what_came_after():
    topic = Topic("t", "json", keys=("/id",))
    world = World(topic)
    client = world.client()
    client.say(c="sow_and_subscribe", t="t")
    for number, policy in enumerate(("conflate", "always", "always")):
        changed = replace(topic, conflation_policy=policy)
        configuration = replace(world.configuration, topics=(changed,))
        world.executor.reconfigure(configuration, world.now)
        world.publish("t", {"id": 1, "n": number})
    client.session.conflate(world.now)
    world.check()
    numbers = [document["n"] for _, document in client.data()]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 2


def test_long_updates_that_were_folded_leave_in_several_frames():
    world = world_of(topic(), queue_messages_max=100)
    client = slow(world)
    for number in range(8):
        world.publish("t", {"id": number, "text": "x" * 100_000})
    client.session.conflate(world.now)
    while client.session.fold_some(world.now):
        pass
    frames = client.raw()
    assert sum(frame.count(b"\n") + 1 for frame in frames) == 8
    assert max(map(len, frames)) < 400_000
