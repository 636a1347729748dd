"""Undivided changes: others wait for their topic, nobody sees half, and nobody else waits."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Topic
from sow.engine.recovery.redo import stored_slices
from sow.errors import Full, UnknownTopic
from sow.query import Query
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.harness import MS, ORDERS, SECOND, Client, World

COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)
OTHER = Topic("other", "json", keys=("/id",))
LIVES = Topic("lives", "json", keys=("/id",), expires=True, expiration_us=SECOND)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
NUMBERS = (1, 2, 3, 4)


@pytest.fixture(autouse=True)
def _one_at_once(monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 1)


def made(*more, **options):
    return World(ORDERS, COPY, OTHER, LIVES, DESKS, WRITES, WRITES_BEFORE, *more, **options)


def begin(world, *numbers, topic="orders", epoch=1, upto="half", operation="publish"):
    """A batch on its way: nothing of it (`begun`), its numbers given, or half of it is stored."""
    writes = StagedWrites(world.engine)
    bodies = [json.dumps({"id": number}).encode() for number in numbers or NUMBERS]
    given = StagedRows([operation] * len(bodies), [None] * len(bodies), bodies)
    steps, rejected = writes.read(writes.topic(topic), given)
    assert not rejected
    applying = writes.applying("w", epoch, topic, steps, world.now)
    next(applying)
    seq = world.engine.seq
    while upto != "begun" and world.engine.seq == seq:
        next(applying)
    if upto == "half":
        next(applying)
        next(applying)
    world.settle()
    return applying


def ids(world, topic="orders"):
    return [document["id"] for document in world.records(topic)]


def sent(lines):
    return [(line["t"], line["d"]["id"]) for line in lines if line["c"] == "p"]


def held(lines):
    return [line["d"]["id"] for line in lines if line["c"] == "sow"]


def test_it_takes_steps_and_is_one_entry_after_the_other_in_the_log():
    world = made()
    applying = begin(world)
    assert ids(world) == [1, 2]
    assert world.engine.seq == world.journal.last_seq == 4, "all of it is numbered and stored"
    assert run_to_completion(applying) == 4
    assert ids(world) == [1, 2, 3, 4]
    world.check()


REQUESTED = [
    {"c": "sow", "t": "orders"},
    {"c": "sow", "t": "orders", "filter": "/id > 0", "opts": "top_n=9"},
    {"c": "sow", "t": "^(orders|other)$"},
    {"c": "sow_and_subscribe", "t": "orders"},
    {"c": "sow_and_subscribe", "t": "^orders"},
]


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
@pytest.mark.parametrize("command", REQUESTED)
def test_a_request_for_the_topic_gets_all_of_it(command, upto):
    world = made()
    applying = begin(world, upto=upto)
    lines = world.client().say(**command)
    assert sorted(held(lines)) == [1, 2, 3, 4]
    assert run_to_completion(applying) == 4
    world.check()


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_who_follows_from_now_on_is_sent_nothing_of_it(upto):
    world, client = made(), None
    applying = begin(world, upto=upto)
    client = world.client()
    assert sent(client.say(c="subscribe", t="orders")) == []
    run_to_completion(applying)
    assert sent(client.lines()) == []


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_who_comes_from_the_log_is_sent_of_it_once(upto):
    world = made()
    applying, client = begin(world, upto=upto), world.client()
    lines = client.say(c="subscribe", t="orders", bm="0")
    run_to_completion(applying)
    world.publish("orders", {"id": 9})
    assert [number for _, number in sent(lines + client.lines())] == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_what_others_write_comes_after_it(upto):
    world = made()
    applying = begin(world, upto=upto)
    assert world.publish("orders", {"id": 2, "v": 5}) == 5
    world.delete("orders", "/id = 1")
    run_to_completion(applying)
    assert world.records("orders") == [{"id": 2, "v": 5}, {"id": 3}, {"id": 4}]
    world.check()


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_a_publish_and_a_delete_under_way_go_on_after_it(upto, monkeypatch):
    monkeypatch.setattr("sow.engine.bulk_delete.RECORDS_AT_ONCE", 1)
    monkeypatch.setattr("sow.engine.bulk_publish.SLICE_ROWS", 1)
    world = made()
    world.publish("orders", {"id": 1, "v": 0}, {"id": 2, "v": 0}, {"id": 7, "v": 0})
    slots = np.array([1, 0, 2])
    deleting = world.engine.removal("orders", slots, world.now)
    next(deleting)
    topic, bodies = world.engine.publishable("orders"), [b'{"id":4,"v":8}', b'{"id":5}']
    read = [world.engine.read(topic, [body], now_us=world.now) for body in bodies]
    publishing = world.engine.publications.carry_out("orders", read, world.now)
    next(publishing)
    applying = begin(world, upto=upto)
    run_to_completion(publishing)
    run_to_completion(deleting)
    run_to_completion(applying)
    # What waited to be deleted and is stored anew was deleted first, and stays.
    assert sorted(ids(world)) == [1, 2, 3, 4, 5]
    assert {"id": 4, "v": 8} not in world.records("orders")
    world.settle()
    again = world.restart()
    assert again.records("orders") == world.records("orders")
    world.check()


def test_other_topics_are_written_and_read_between_its_steps():
    world = made()
    applying = begin(world)
    world.publish("other", {"id": 7})
    assert held(world.client().say(c="sow", t="other")) == [7]
    assert ids(world) == [1, 2], "and nobody has taken a step of it"
    run_to_completion(applying)


@pytest.mark.parametrize("options", ["", "conflation=100ms"])
def test_lines_of_a_pattern_come_in_the_order_of_their_numbers(options):
    world = made()
    client = world.client()
    client.say(c="subscribe", t="^(orders|other)$", opts=options)
    applying = begin(world)
    world.publish("other", {"id": 7})
    next(applying)
    world.settle()
    world.publish("other", {"id": 8})
    world.check()
    run_to_completion(applying)
    world.settle()
    world.advance(SECOND)
    lines = client.lines()
    rows = [("orders", number) for number in NUMBERS] + [("other", 7), ("other", 8)]
    assert sent(lines) == rows
    assert [int(line["bm"]) for line in lines] == [1, 2, 3, 4, 5, 6]


def test_nothing_falls_due_in_the_topic_or_its_copies_until_it_is_whole():
    world = made()
    for topic in ("orders", "lives"):
        world.publish(topic, {"id": 1, "v": 0})
    held_before = begin(world, 2, 3, 4, topic="lives")
    world.advance(3 * SECOND)
    assert ids(world, "lives") == [1, 2, 3]
    run_to_completion(held_before)
    world.advance(0)
    assert ids(world, "lives") == [], "due at once"
    applying = begin(world, epoch=2)
    world.advance(3 * SECOND)
    assert ids(world, "copy") == [1]
    run_to_completion(applying)
    world.advance(2 * SECOND)
    assert ids(world, "copy") == [1, 2, 3, 4]
    world.check()


def test_a_topic_of_a_pattern_comes_into_being_by_it():
    world = made()
    client = world.client()
    client.say(c="subscribe", t="^/desk/")
    applying = begin(world, topic="/desk/1")
    assert sorted(held(world.client().say(c="sow", t="/desk/1"))) == [1, 2, 3, 4]
    run_to_completion(applying)
    assert sent(client.lines()) == [("/desk/1", number) for number in NUMBERS]


def test_one_begins_when_the_other_is_over():
    world = made()
    first = begin(world)
    second = begin(world, 5, 6, topic="other", upto="begun")
    assert ids(world) != [1, 2, 3, 4], "each step of the second is one of the first"
    assert run_to_completion(second) == 6
    assert run_to_completion(first) == 4
    assert (ids(world), ids(world, "other")) == ([1, 2, 3, 4], [5, 6])


@pytest.mark.parametrize("topic", ["orders", "other"])
def test_who_is_sent_late_that_it_is_over_leaves_the_next_alone(topic):
    world = made()
    first = begin(world)
    second = begin(world, 5, 6, 7, topic=topic, epoch=2)
    assert run_to_completion(first) == 4
    assert ids(world, topic)[-2:] == [5, 6]
    assert world.engine.atomic.topic.name == topic, "it is still under way"
    assert sorted(held(world.client().say(c="sow", t=topic)))[-3:] == [5, 6, 7]
    assert run_to_completion(second) == 7
    world.check()


def test_two_that_make_one_topic_of_a_pattern_are_both_in_it():
    world = made()
    first = begin(world, 1, topic="/desk/1", upto="begun")
    second = begin(world, 2, topic="/desk/1", upto="begun", epoch=2)
    run_to_completion(second)
    run_to_completion(first)
    assert ids(world, "/desk/1") == [1, 2]


def test_an_error_is_raised_in_the_caller_that_began_it():
    world = made(replace(OTHER, name="small", records_max=2))
    applying = begin(world, topic="small", upto="begun")
    assert held(world.client().say(c="sow", t="small")) == []
    with pytest.raises(Full, match="MaxRecords"):
        run_to_completion(applying)
    assert world.engine.seq == 0
    world.publish("small", {"id": 1})
    world.check()


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_a_change_without_a_waiting_caller_is_finished(upto):
    world, left = made(), []
    world.engine.atomic.on_left(left.append)
    begin(world, upto=upto).close()
    (finishing,) = left
    run_to_completion(finishing)
    assert ids(world) == [1, 2, 3, 4]
    assert StagedWrites(world.engine).applied("w", 1, "orders") == "4"


def test_who_gave_up_and_sends_it_again_has_it_once():
    world, left = made(), []
    world.engine.atomic.on_left(left.append)
    begin(world, upto="begun").close()
    assert run_to_completion(begin(world, upto="begun")) == 4
    assert world.engine.seq == 4


def test_a_failure_without_a_waiting_caller_is_dropped():
    world, left = made(replace(OTHER, name="small", records_max=2)), []
    world.engine.atomic.on_left(left.append)
    begin(world, topic="small", upto="begun").close()
    run_to_completion(left[0])
    world.check()


@pytest.mark.parametrize(("upto", "found"), [("begun", []), ("numbered", [1, 2, 3, 4])])
def test_after_the_end_of_the_process_it_is_there_as_a_whole_or_not_at_all(upto, found):
    world = made()
    begin(world, upto=upto)
    again = world.restart()
    assert ids(again) == found
    writes = StagedWrites(again.engine)
    assert writes.applied("w", 1, "orders") == ("4" if found else None)


def test_a_checkpoint_in_the_middle_leaves_the_rest_to_the_log():
    world = made()
    world.publish("orders", {"id": 1, "v": 0})
    applying = begin(world)
    checkpoint = world.checkpoints["orders"]
    seq = world.engine.atomic.whole_seq
    checkpoint.write(seq, stored_slices(world.engine.catalog, "orders", 10))
    assert seq == 1
    assert sorted(ids(world.restart())) == [1, 2, 3, 4]
    run_to_completion(applying)
    assert world.engine.atomic.whole_seq == 5


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_a_configuration_is_changed_in_the_middle(upto):
    world = made()
    world.publish("orders", {"id": 9, "s": "a"})
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders")
    applying = begin(world, upto=upto)
    topics = [
        replace(ORDERS, hash_indexes=(("/s",),)),
        replace(COPY, name="second", interval_us=100 * MS),
        *(OTHER, LIVES, DESKS, WRITES, WRITES_BEFORE),
    ]
    changes = world.executor.reconfigure(
        replace(world.configuration, topics=tuple(topics)), world.now
    )
    assert "conflated topic copy removed" in changes
    run_to_completion(applying)
    world.settle()
    world.advance(SECOND)
    assert sorted(ids(world, "second")) == sorted(ids(world)) == [1, 2, 3, 4, 9]
    assert [number for _, number in sent(client.lines())] == [1, 2, 3, 4]
    assert len(world.engine.queries.at_once("orders", Query()).slots) == 5
    world.check()


def test_a_subscription_is_replaced_when_it_is_whole():
    world = made()
    client = world.client()
    name = client.say(c="sow_and_subscribe", t="orders", cid="1")[0]["s"]
    applying = begin(world)
    lines = client.say(c="sow_and_subscribe", t="orders", s=name, opts="replace", filter="/id > 2")
    run_to_completion(applying)
    assert [number for _, number in sent(lines)] == [1, 2, 3, 4]
    assert held(lines) == [], "it holds them already"


def test_a_client_that_disconnects_meanwhile_is_gone():
    world = made()
    client = world.client()
    client.say(c="subscribe", t="^(orders|other)$")
    applying = begin(world)
    world.publish("other", {"id": 7})
    world.executor.sessions.close(client.session)
    run_to_completion(applying)
    world.settle()
    world.check()


def test_steps_are_taken_apart_from_it_and_closed_with_who_takes_them():
    world, closed = made(), []

    def others():
        try:
            yield
            yield
        finally:
            closed.append(ids(world))

    steps = world.engine.atomic.exclusive("orders", others())
    next(steps)
    applying = begin(world)
    next(steps)
    assert closed == [], "the change has taken a step"
    steps.close()
    assert closed == [[1, 2, 3]]
    run_to_completion(applying)


def test_an_unknown_topic_is_reported_at_once():
    with pytest.raises(UnknownTopic):
        run_to_completion(StagedWrites(made().engine).applying("w", 1, "nowhere", [], 0))


def test_publishes_that_came_together_are_carried_out_after_it():
    world = made()
    applying, client = begin(world), Client(world)
    frame = b"\n".join(
        b'{"c":"publish","t":"orders","cid":"%d","d":{"id":%d}}' % (n, n) for n in (5, 6)
    )
    acks = client.send(frame)
    assert [(ack["cid"], ack["bm"]) for ack in acks] == [("5", "5"), ("6", "6")]
    run_to_completion(applying)
    assert ids(world) == [1, 2, 3, 4, 5, 6]
