"""Full queues: policies, placement, matching, merging, giving a session up (S12, S13)."""

import json

import pytest

from sow.topics import ConflatedTopic, Merge, SessionSettings, Topic
from tests.engine.harness import SECOND, World, short

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
    world = world_of(topic())
    client = slow(world)
    world.publish("t", *({"id": number} for number in range(12)))
    assert len(client.data()) == 12
    world.advance(2 * SECOND)
    world.publish("t", {"id": 99})
    assert client.data() == [("p", {"id": 99})]


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
    assert short(client.lines()) == [("deleted", {"id": 1, "px": 5})]


def test_a_dropped_session_is_conflated_by_the_same_rules():
    world = world_of(topic())
    client = slow(world, {"c": "logon", "client": "x"}, {"c": "subscribe", "t": "t"})
    world.executor.drop(client.session, world.now)
    for px in range(50):
        world.publish("t", {"id": 1, "px": px})
    assert client.session.outbox.messages < 12
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
    assert client.session.outbox.messages == 6
    assert world.executor.conflate_in_background(world.now) is False
    assert short(client.lines()) == [("p", {"id": 1, "px": 5})]


# Policies.


def test_off_loses_and_reorders_nothing_while_others_are_conflated():
    world = world_of(topic(), topic("off", conflation_policy="off"))
    client = slow(world, {"c": "subscribe", "t": "t"}, {"c": "subscribe", "t": "off"})
    for px in range(8):
        world.publish("t", {"id": 1, "px": px})
        world.publish("off", {"id": 1, "px": px})
    lines = client.lines()
    assert [x["d"]["px"] for x in lines if x.get("t") == "off"] == list(range(8))
    assert [x["d"]["px"] for x in lines if x.get("t") == "t"] == [7]


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
    assert client.session.subscriptions == {}
    client.say(c="subscribe", t="t")
    world.publish("t", {"id": 1})
    assert client.data() == [("p", {"id": 1})]


def test_always_keeps_one_update_of_each_record_however_empty_the_queue():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world)
    for px in range(5):
        world.publish("t", {"id": 1, "px": px}, {"id": 2, "px": px})
        world.check()
    assert client.session.outbox.messages == 2
    assert client.data() == [("p", {"id": 1, "px": 4}), ("p", {"id": 2, "px": 4})]


def test_always_folds_within_one_batch_too():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": 1, "px": 1}, {"id": 1, "px": 2})
    assert client.data() == [("p", {"id": 1, "px": 2})]


def test_a_session_that_was_switched_off_is_not_conflated():
    world = world_of(topic(), topic("a", conflation_policy="always"), queue_messages_max=1000)
    client = slow(world, {"c": "subscribe", "t": "t"}, {"c": "subscribe", "t": "a"})
    client.session.conflates = False
    for px in range(20):
        world.publish("t", {"id": 1, "px": px})
        world.publish("a", {"id": 1, "px": px})
    assert len(client.data()) == 40


# Placement, in the figures of the seeds: A1, B1, C1, A2, C2.


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


HERE = "tests.engine.test_back_pressure"


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
    [("sum", 12), ("min", 3), ("max", 5), ("first", 4), ("latest", 5), ("count", 12)],
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


def test_nothing_is_moved_before_the_leaving_of_a_record_by_such_a_match():
    world = world_of(topic(match=("/symbol",)))
    client = slow(world, c="sow_and_subscribe", opts="oof")
    world.publish("t", {"id": 1, "symbol": "A"})
    world.delete("t", "/id = 1")
    world.publish("t", {"id": 1, "symbol": "A", "again": True})
    client.session.conflate(world.now)
    assert client.data() == [
        ("p", {"id": 1, "symbol": "A"}),
        ("deleted", {"id": 1, "symbol": "A"}),
        ("p", {"id": 1, "symbol": "A", "again": True}),
    ]


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
