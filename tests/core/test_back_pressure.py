"""Full queues: policies, placement, matching, merging, giving a session up.

The rules are 12 and 13 of docs/semantics.md.
"""

import json
from collections import deque
from dataclasses import replace

import pytest

from sow.definitions import ConflatedTopic, Merge, SessionSettings, Topic
from sow.encodings import timestamp
from tests.core.harness import SECOND, SlowDisk, World, short
from tests.core.tables import play

SMALL = SessionSettings(queue_messages_max=10)


def topic(name="t", **more):
    return Topic(name, "json", keys=("/id",), **more)


def world_of(*topics, **settings):
    return World(*topics, sessions=SessionSettings(**({"queue_messages_max": 10} | settings)))


def slow(world, *commands, **command):
    """A client that has subscribed, read its ack, and reads no more until a test says so."""
    client = world.client()
    for asked in commands or ({"c": "subscribe", "t": "t", **command},):
        client.say(**asked)
    return client


def kinds(lines):
    return [line["c"] for line in lines]


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
        assert client.session.outbox.bytes <= 1000
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
    for px in range(20):
        world.publish("t", {"id": 1, "px": px})
    lines = client.lines()
    assert kinds(lines)[:8] == ["ack", "group_begin", *["sow"] * 5, "group_end"]
    assert short(lines)[5:] == [("p", {"id": 1, "px": 19})]


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
    world.executor.drop(client.session, world.now)
    for px in range(50):
        world.publish("t", {"id": 1, "px": px})
    assert client.session.outbox.message_count < 12
    world.publish("t", *({"id": number} for number in range(20)))
    assert client.session.id not in world.executor.sessions, "without a socket no patience"


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
    assert world.executor.conflate_in_background(world.now) is False
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
    outbox.entries = waiting = Counted(outbox.entries)
    for number in range(50):
        world.publish("a", {"id": number % 5})
    assert outbox.entries is waiting
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


# Leaving and coming back: what waited before is not touched by what comes after.


def resubscribed(again, **more):
    """A session that shares its feed with another and leaves and joins it while updates wait."""
    world = world_of(topic(**more), queue_messages_max=1000)
    slow(world, c="sow_and_subscribe", opts="oof")
    client = slow(world, c="sow_and_subscribe", opts="oof")
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 2, "v": 1})
    if again == "conflated before":
        client.session.conflate(world.now)
    (name,) = client.subscriptions
    client.execute(b'{"c":"unsubscribe","s":"%b"}' % name.encode())
    client.execute(b'{"c":"sow_and_subscribe","t":"t","opts":"oof"}')
    assert [*client.subscriptions] == [name], "the feed is shared, so its name is the same"
    world.publish("t", {"id": 1, "v": 2})
    world.delete("t", "/id = 2")
    world.publish("t", {"id": 1, "v": 3})
    client.session.conflate(world.now)
    world.check()
    return client.data()


@pytest.mark.parametrize("again", ["conflated before", "conflated once"])
@pytest.mark.parametrize("policy", ["conflate", "always"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_nothing_is_folded_in_front_of_a_later_snapshot(again, policy, placement):
    lines = resubscribed(again, conflation_policy=policy, placement=placement)
    assert lines[:4] == [
        ("p", {"id": 1, "v": 1}),
        ("p", {"id": 2, "v": 1}),
        ("sow", {"id": 1, "v": 1}),
        ("sow", {"id": 2, "v": 1}),
    ]
    assert sorted(lines[4:]) == [("deleted", {"id": 2, "v": 1}), ("p", {"id": 1, "v": 3})]


def test_a_record_born_in_an_earlier_membership_is_born_again_in_the_next():
    world = world_of(topic(conflation_policy="always"), queue_messages_max=1000)
    client = slow(world, c="subscribe", opts="oof")
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 1, "v": 2})
    (name,) = client.subscriptions
    client.execute(b'{"c":"unsubscribe","s":"%b"}' % name.encode())
    client.execute(b'{"c":"subscribe","t":"t","opts":"oof"}')
    world.delete("t", "/id = 1")
    world.publish("t", {"id": 1, "v": 3})
    client.session.conflate(world.now)
    world.check()
    assert client.data() == [("p", {"id": 1, "v": 2}), ("p", {"id": 1, "v": 3})]


def test_a_subscription_that_was_replaced_is_not_given_up_for_what_the_old_one_left_behind():
    world = world_of(topic(conflation_policy="unsubscribe"), topic("u"))
    client = slow(world)
    (name,) = client.subscriptions
    for number in range(8):
        world.publish("t", {"id": number})
    client.execute(b'{"c":"subscribe","t":"u","s":"%b","opts":"replace"}' % name.encode())
    for number in range(4):
        world.publish("u", {"id": number})
    lines = client.lines()
    assert short(lines) == [("p", {"id": number}) for number in range(4)]
    assert {"c": "heartbeat", "conflated": 0, "dropped": 8} in lines
    assert [*client.subscriptions] == [name]


def test_what_was_given_up_can_be_followed_again_from_its_snapshot_on():
    world = world_of(topic(conflation_policy="unsubscribe"))
    slow(world, c="sow_and_subscribe").session.allow_folding(False)
    client = slow(world, c="sow_and_subscribe")
    for number in range(12):
        world.publish("t", {"id": number % 3, "n": number})
    client.execute(b'{"c":"sow_and_subscribe","t":"t"}')
    world.publish("t", {"id": 0, "n": 12})
    lines = client.lines()
    kinds_left = [line["c"] for line in lines]
    assert kinds_left.index("unsubscribed") < kinds_left.index("group_begin")
    assert short(lines)[-1] == ("p", {"id": 0, "n": 12})
    assert [line["c"] for line in lines].count("p") == 1


def test_what_becomes_of_slow_clients_is_told_to_the_operator_and_counted_for_good():
    world = world_of(topic(), topic("u", conflation_policy="unsubscribe"))
    notices = []
    world.executor.hear_of_slow_clients(notices.append)
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
    before = world.executor.folded, world.executor.dropped
    assert before[0] > 0
    assert before[1] == 3
    world.publish("t", *({"id": number} for number in range(20)))
    world.advance(2 * SECOND)
    world.publish("t", {"id": 99})
    assert "slow client" in notices[-1]
    assert "23 messages" in notices[-1], "21 records and two notices"
    world.executor.drop(client.session, world.now)
    assert world.executor.closed["slow"] == 1
    assert (world.executor.folded, world.executor.dropped) >= before


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


# A disk that is never idle: some groups are always on their way to it.


def pipelined(*commands, sessions=None, **more):
    """A world in which each group is durable two groups later, and a client of it."""
    world = SlowDisk(topic(**more), sessions=sessions or SMALL)
    client = slow(world, *commands)
    world.lag = 2
    return world, client


@pytest.mark.parametrize("placement", ["replace", "append"])
@pytest.mark.parametrize("records", [1, 3])
def test_records_that_change_all_the_time_leave_though_the_disk_is_never_idle(placement, records):
    world, client = pipelined(conflation_policy="always", placement=placement)
    world.publish("t", {"id": "quiet"})
    told = {}
    for turn in range(40):
        world.publish("t", *({"id": number, "turn": turn} for number in range(records)))
        world.check()
        told |= {document["id"]: document.get("turn") for _, document in client.data()}
        if turn >= 6:
            assert len(told) == records + 1
            assert min(told[number] for number in range(records)) >= turn - 5
    world.catch_up()
    assert [document["turn"] for _, document in client.data()] == [39] * records


def test_a_full_queue_that_is_conflated_all_the_time_goes_on_too():
    world, client = pipelined(sessions=SessionSettings(queue_messages_max=1000))
    newest = -1
    for turn in range(40):
        world.publish("t", *({"id": number, "turn": turn} for number in range(3)))
        newest = max([newest, *(document["turn"] for _, document in client.data())])
        client.session.conflate(world.now)
        world.check()
        assert turn < 6 or newest >= turn - 5


def test_of_a_record_waits_one_message_that_is_its_newest_state_once_it_is_durable():
    world, client = pipelined(conflation_policy="always")
    for px in range(20):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        world.check()
        assert client.session.outbox.message_count == 2
    world.catch_up()
    assert client.data() == [("p", {"id": 1, "px": 19}), ("p", {"id": 2, "px": 19})]
    assert client.session.outbox.folded == 38


def test_what_is_folded_and_what_is_told_adds_up_while_the_disk_is_busy():
    world, client = pipelined(conflation_policy="always")
    told = 0
    for px in range(20):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        if px % 3:
            told += len(client.data())
    world.catch_up()
    told += len(client.data())
    assert 2 < told < 40
    assert told + client.session.outbox.folded == 40


def test_a_delta_after_an_older_state_is_relative_to_that_state():
    world, client = pipelined(
        {"c": "sow_and_delta_subscribe", "t": "t"}, conflation_policy="always"
    )
    text = "x" * 100
    lines = []
    for turn in range(8):
        world.publish("t", {"id": 1, "text": text, "a": turn // 2, "b": turn})
        lines += client.lines()
    world.catch_up()
    first, *rest = lines + client.lines()
    assert first["d"] == {"id": 1, "text": text, "a": 0, "b": 0}
    assert 1 < len(rest) < 7
    held = first["d"]
    for line in rest:
        assert line["delta"] is True
        held = held | line["d"]
    assert held == {"id": 1, "text": text, "a": 3, "b": 7}


def test_a_record_that_comes_and_goes_behind_its_older_state_leaves_one_entry():
    world, client = pipelined(
        {"c": "sow_and_subscribe", "t": "t", "opts": "oof"}, conflation_policy="always"
    )
    world.lag = 100
    world.publish("t", {"id": 1, "n": -1})
    for n in range(10):
        world.delete("t", "/id = 1")
        world.publish("t", {"id": 1, "n": n})
        world.check()
        assert client.session.outbox.message_count == 1
    world.delete("t", "/id = 1")
    world.catch_up()
    assert client.data() == []


def test_what_matches_is_one_message_of_whichever_record_it_is():
    world, client = pipelined(conflation_policy="always", match=("/sym",))
    for n in range(20):
        world.publish("t", {"id": n % 3, "sym": "A", "n": n})
        world.check()
        assert client.session.outbox.message_count == 1
    world.catch_up()
    assert client.data()[-1] == ("p", {"id": 1, "sym": "A", "n": 19})


def test_a_merger_counts_every_message_once_however_often_the_older_part_leaves():
    world, client = pipelined(conflation_policy="always", merges=(Merge("/n", "count"),))
    for _ in range(5):
        world.publish("t", {"id": 1})
    world.catch_up()
    for _ in range(5):
        world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1, "n": 10})]


# Placement, in the figures of docs/slow-clients.md: A1, B2, C3, A4, C5.


def figure(placement, **more):
    """What is left of the figures' queue, as (topic and value)."""
    world = world_of(topic(placement=placement, **more), queue_messages_max=4)
    client = slow(world)
    for name, value in (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5)):
        world.publish("t", {"id": name, "v": value})
    return [f"{document['id']}{document['v']}" for _, document in client.data()]


def test_no_conflation():
    world = world_of(topic(conflation_policy="off"), queue_messages_max=5)
    client = slow(world)
    for name, value in (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5)):
        world.publish("t", {"id": name, "v": value})
    assert [f"{d['id']}{d['v']}" for _, d in client.data()] == ["A1", "B2", "C3", "A4", "C5"]


def test_simple_replace():
    assert figure("replace") == ["A4", "B2", "C5"]


def test_simple_append():
    assert figure("append") == ["B2", "A4", "C5"]


def test_merge_and_replace():
    assert figure("replace", merges=(Merge("/v", "sum"),)) == ["A5", "B2", "C8"]


def test_merge_and_append():
    assert figure("append", merges=(Merge("/v", "sum"),)) == ["B2", "A5", "C8"]


def test_append_starves_nobody():
    world = world_of(topic(placement="append", conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": "other"}, {"id": "busy"})
    for px in range(30):
        world.publish("t", {"id": f"new{px % 7}"}, {"id": "busy", "px": px})
    names = [document["id"] for _, document in client.data()]
    assert names.index("busy") < len(names) - 1


# Matching and merging.


def current(current, _new):
    return current


def new(_current, new):
    return new


def both(current, new):
    return {"id": new["id"], "v": current["v"] + new["v"]}


def neither(_current, _new):
    return None


def broken(_current, _new):
    raise RuntimeError("no")


HERE = "tests.core.test_back_pressure"


@pytest.mark.parametrize(
    ("merger", "placement", "left"),
    [
        ("current", "replace", ["A1", "B2", "C3"]),
        ("current", "append", ["A1", "B2", "C3"]),
        ("new", "replace", ["A4", "B2", "C5"]),
        ("new", "append", ["B2", "A4", "C5"]),
        ("both", "replace", ["A5", "B2", "C8"]),
        ("both", "append", ["B2", "A5", "C8"]),
    ],
)
def test_every_answer_of_a_merger_in_both_placements(merger, placement, left):
    assert figure(placement, merger=f"{HERE}:{merger}") == left


@pytest.mark.parametrize("merger", ["neither", "broken"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_merger_that_keeps_both_leaves_everything_in_order(merger, placement):
    world = world_of(
        topic(placement=placement, merger=f"{HERE}:{merger}", conflation_policy="always")
    )
    client = slow(world)
    for name, value in (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5)):
        world.publish("t", {"id": name, "v": value})
    assert [f"{d['id']}{d['v']}" for _, d in client.data()] == ["A1", "B2", "C3", "A4", "C5"]


@pytest.mark.parametrize(
    ("operation", "left"),
    [("sum", 12), ("min", 3), ("max", 5), ("first", 4), ("latest", 5), ("count", 3)],
)
def test_operations(operation, left):
    world = world_of(topic(merges=(Merge("/v", operation),)), queue_messages_max=2)
    client = slow(world)
    for value in (4, 3, 5):
        world.publish("t", {"id": 1, "v": value, "x": value})
    assert client.data() == [("p", {"id": 1, "v": left, "x": 5})]


def test_counting_counts_updates():
    world = world_of(topic(merges=(Merge("/n", "count"),)), queue_messages_max=2)
    client = slow(world)
    for _ in range(5):
        world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1, "n": 5})]


def test_counting_goes_on_in_a_later_fold_and_begins_anew_with_the_next_message():
    play("""
    topic  t  Key=/id  ConflationPolicy=always  \
        Merge="<Field>/n</Field><Operation>count</Operation>"

    at 0.0  subscribe
            stop
            publish  {"id":1,"n":3}
            publish  {"id":1,"n":1}
            publish  {"id":1,"n":2}
            conflate
            publish  {"id":1,"n":7} {"id":1,"n":7}
            read
            said     p {"id":1,"n":5}
            stop
            publish  {"id":1,"n":9} {"id":1,"n":"many"}
            read
            said     p {"id":1,"n":2}
            publish  {"id":1,"n":4}
            said     p {"id":1,"n":4}
    """)


def test_a_queue_of_a_copy_that_counts_adds_up_what_its_windows_counted():
    copy = ConflatedTopic("c", "json", "t", interval_us=SECOND, merges=(Merge("/n", "count"),))
    world = World(topic(), copy)
    client = slow(world, t="c")
    for updates in (3, 1, 2):
        for _ in range(updates):
            world.publish("t", {"id": 1, "n": 100})
        world.advance(2 * SECOND)
    client.session.conflate(world.now)
    assert client.data() == [("p", {"id": 1, "n": 6})]


def in_place(current, new):
    current["v"] += new["v"]
    return current


def into_the_newer(current, new):
    new["v"] += current["v"]
    return new


def numbers(current, new):
    return current if new > 5 else current + new


@pytest.mark.parametrize("merger", ["in_place", "into_the_newer"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_merger_may_change_what_it_was_given(merger, placement):
    left = ["A5", "B2", "C8"] if placement == "replace" else ["B2", "A5", "C8"]
    assert figure(placement, merger=f"{HERE}:{merger}") == left


def test_a_merger_of_numbers_is_heard_as_one_of_documents():
    numeric = Topic("t", "int64", merger=f"{HERE}:numbers", conflation_policy="always")
    world = world_of(numeric)
    client = slow(world)
    for value in (1, 2, 6, 0):
        world.engine.publish("t", [b"%d" % value], world.now, key="k")
        world.settle()
    assert client.data() == [("p", "3")]


@pytest.mark.parametrize("setting", [{"merges": (Merge("/q", "sum"),)}, {"merger": f"{HERE}:one"}])
def test_a_copy_that_is_kept_by_deltas_is_the_record_whatever_merges(setting):
    world = world_of(topic(conflation_policy="always", **setting))
    wide = {"text": "x" * 100}
    world.publish("t", {"id": 1, "q": 0, "px": 0, **wide})
    client, copy = slow(world, c="sow_and_delta_subscribe"), world.records("t")[0]
    for q, px in ((1, 1), (2, 2), (2, 3)):
        world.publish("t", {"id": 1, "q": q, "px": px, **wide})
    for _, document in client.data():
        copy |= document
    world.publish("t", {"id": 1, "q": 2, "px": 4, **wide})
    for _, document in client.data():
        copy |= document
    assert copy == world.records("t")[0]


def one(current, _new):
    return current


def test_concatenation():
    world = world_of(
        topic(merges=(Merge("/text", "concat"), Merge("/list", "concat"))), queue_messages_max=1
    )
    client = slow(world)
    world.publish("t", {"id": 1, "text": "a", "list": [1]})
    world.publish("t", {"id": 1, "text": "b", "list": [2]})
    assert client.data() == [("p", {"id": 1, "text": "ab", "list": [1, 2]})]


def test_one_merge_serves_all_sessions():
    world = world_of(topic(merges=(Merge("/v", "sum"),)), queue_messages_max=1)
    clients = [slow(world) for _ in range(10)]
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 1, "v": 2})
    merger = world.engine.topics["t"].records.folding.merger
    assert (merger.misses, merger.hits) == (1, 9)
    assert all(client.data() == [("p", {"id": 1, "v": 3})] for client in clients)


def test_updates_are_matched_by_other_fields_if_the_topic_says_so():
    world = world_of(topic(match=("/symbol",)), queue_messages_max=3)
    client = slow(world)
    for number, symbol in enumerate("AABA"):
        world.publish("t", {"id": number, "symbol": symbol})
    assert [document["id"] for _, document in client.data()] == [3, 2]


def test_a_field_that_is_absent_matches_nothing_of_another_record():
    world = world_of(topic(match=("/symbol",)))
    client = slow(world)
    world.publish(
        "t",
        *({"id": 1, "n": n} for n in range(3)),
        {"id": 2, "symbol": None},
        {"id": 3, "symbol": "None"},
        {"id": 4, "symbol": {"x": 1}},
        {"id": 5, "symbol": ["A", "B"]},
    )
    client.session.conflate(world.now)
    assert [document["id"] for _, document in client.data()] == [1, 2, 3, 4, 5]


def test_match_fields_are_compared_as_key_fields_are():
    world = world_of(topic(match=("/a", "/b")))
    client = slow(world)
    world.publish(
        "t",
        {"id": 1, "a": 1, "b": True},
        {"id": 2, "a": 1.0, "b": "true"},
        {"id": 3, "a": "1", "b": False},
        {"id": 4, "b": "1"},
    )
    client.session.conflate(world.now)
    assert [document["id"] for _, document in client.data()] == [2, 3, 4]


def test_who_hears_of_leavings_is_told_of_each_record_whatever_matches():
    play("""
    topic  t  Key=/id  Match="<Key>/symbol</Key>"

    at 0.0  sow_and_subscribe  opts=oof
            stop
            publish     {"id":1,"symbol":"A"} {"id":2,"symbol":"A"}
            publish     {"id":3,"symbol":"A"}
            conflate
            sow_delete  filter="/id = 1"
            conflate
            read
            said        p {"id":2,"symbol":"A"}  p {"id":3,"symbol":"A"}
            sow_delete  filter="/id = 2"
            said        deleted {"id":2,"symbol":"A"}
    """)


@pytest.mark.parametrize("placement", ["replace", "append"])
def test_a_record_whose_match_changes_does_not_go_backwards(placement):
    world = world_of(topic(match=("/symbol",), placement=placement))
    client = slow(world)
    for n, symbol in enumerate("ABABA"):
        world.publish("t", {"id": 1, "symbol": symbol, "n": n})
    client.session.conflate(world.now)
    world.check()
    assert client.data() == [
        ("p", {"id": 1, "symbol": "B", "n": 3}),
        ("p", {"id": 1, "symbol": "A", "n": 4}),
    ]


def test_another_match_from_now_on_folds_nothing_into_what_was_matched_before():
    world = world_of(topic(match=("/symbol",), conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": "A", "symbol": "B"})
    world.publish("t", {"id": "B", "symbol": "A"})
    changed = replace(world.configuration, topics=(topic(conflation_policy="always"),))
    world.executor.reconfigure(changed, world.now)
    world.publish("t", {"id": "A", "symbol": "C"})
    world.check()
    assert [document["id"] for _, document in client.data()] == ["A", "B", "A"]


def test_matching_by_other_fields_leaves_deltas_alone():
    world = world_of(topic(match=("/symbol",)), queue_messages_max=3)
    same = {"symbol": "A", "text": "x" * 100}
    world.publish("t", {"id": 0, "q": 0, **same}, {"id": 1, "q": 0, **same})
    client = slow(world, c="sow_and_delta_subscribe")
    client.lines()
    for q in (1, 2):
        for number in (0, 1):
            world.publish("t", {"id": number, "q": q, **same})
    lines = [line for line in client.lines() if line["c"] == "p"]
    assert [line["d"] for line in lines] == [{"id": 0, "q": 2}, {"id": 1, "q": 2}]


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


# Conflated topics.


def test_a_merge_of_a_conflated_topic_folds_the_updates_of_a_window():
    copy = ConflatedTopic(
        "c", "json", "t", interval_us=SECOND, merges=(Merge("/v", "sum"), Merge("/n", "count"))
    )
    world = World(topic(), copy)
    for value in (1, 2, 3):
        world.publish("t", {"id": 1, "v": value, "last": value})
    world.publish("t", {"id": 2, "v": 7, "last": 7})
    world.advance(2 * SECOND)
    assert world.records("c") == [
        {"id": 1, "v": 6, "last": 3, "n": 3},
        {"id": 2, "v": 7, "last": 7, "n": 1},
    ]
    world.publish("t", {"id": 1, "v": 10, "last": 10})
    world.advance(2 * SECOND)
    assert world.records("c")[0] == {"id": 1, "v": 10, "last": 10, "n": 1}


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


# One rule, wherever updates of different records are folded.


FOLDERS = {
    "a window": "conflation=1s,conflation_key=[/sym],timestamp",
    "a full queue, as the topic says": "timestamp",
}


@pytest.mark.parametrize("opts", FOLDERS.values(), ids=FOLDERS)
def test_a_line_that_stands_for_another_record_says_the_bookmark_and_time_of_the_first(opts):
    world = world_of(topic(match=("/sym",)), queue_messages_max=1000)
    client = slow(world, c="subscribe", t="t", opts=opts)
    began = world.now
    world.publish("t", {"id": "A", "sym": "S"})
    world.advance(SECOND // 2)
    world.publish("t", {"id": "B", "sym": "S"})
    world.publish("t", {"id": "C", "sym": "T"})
    world.advance(SECOND)
    client.session.conflate(world.now)
    lines = [line for line in client.lines() if line["c"] == "p"]
    assert [(line["d"]["id"], line["bm"], line["ts"]) for line in lines] == [
        ("B", "1", timestamp(began)),
        ("C", "3", timestamp(began + SECOND // 2)),
    ]
