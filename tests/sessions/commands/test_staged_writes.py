"""Batches of another system: checked at once, applied as one, and only once."""

import json
from dataclasses import replace
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Topic
from sow.core.security_definitions import Allow
from sow.errors import Full
from sow.security.authorization import EVERYTHING
from sow.sessions.commands.commit_plan import BatchContent, StagedRows, content_of
from sow.sessions.commands.staged_writes import (
    EpochPassed,
    EpochReused,
    PreparedBatch,
    StagedWrites,
)
from sow.store.protocols import TOPICS_LIFETIME, LogEntry
from tests.laws.guarding import rights
from tests.laws.harness import ORDERS, SECOND, World
from tests.topic.making import body, held

KEYLESS = Topic("blobs", "json")


def rows(*given):
    """Rows of (operation, key, document or None)."""
    operations, keys, documents = zip(*given, strict=True)
    bodies = [None if one is None else body(**one) for one in documents]
    return StagedRows(operations, keys, bodies)


@pytest.fixture
def world():
    return World(ORDERS, WRITES, WRITES_BEFORE)


@pytest.fixture
def writes(world):
    return StagedWrites(world.engine)


def applied(world, writes, *given, epoch=1, writer="w"):
    topic = writes.topic("orders")
    steps, rejected = writes.read(topic, rows(*given))
    assert rejected == []
    bookmark = writes.apply(writer, epoch, "orders", steps, world.now)
    world.settle()
    return bookmark


def test_a_delete_is_by_its_own_body_whatever_its_neighbours_have(world, writes):
    applied(world, writes, *[("publish", None, {"id": n}) for n in range(3)])
    topic = world.engine.topics["orders"].records
    of_0, of_2 = map(topic.sow_key_of, topic.identities_of([body(id=0), body(id=2)]))
    deletes = [("delete", of_0, {"id": 1}), ("delete", of_2, None)]
    applied(world, writes, *deletes, epoch=2)
    assert world.records("orders") == [{"id": 0}]


def test_bad_rows_do_nothing_and_are_named_with_their_places(writes):
    given = StagedRows(
        ["publish"] * 3 + ["delete"], [None] * 4, [body(id=1), b"{", body(id=2), None]
    )
    steps, rejected = writes.read(writes.topic("orders"), given)
    assert [row.index for row in rejected] == [1, 3]
    assert [len(step.messages.bodies) for step in steps] == [2]


def test_a_batch_is_carried_out_in_its_order_and_accounted_for(world, writes):
    bookmark = applied(
        world,
        writes,
        ("publish", None, {"id": 1, "v": 1}),
        ("publish", None, {"id": 2}),
        ("delta", None, {"id": 1, "w": 2}),
        ("delete", None, {"id": 2}),
    )
    assert world.records("orders") == [{"id": 1, "v": 1, "w": 2}]
    assert bookmark == world.engine.seq == 4
    assert writes.applied("w", 1, "orders") == "4"
    (account,) = held(world.engine.topics[WRITES.name].records)
    assert (account["writer"], account["epoch"], account["rows"]) == ("w", 1, 4)


def test_the_same_epoch_takes_the_same_rows_alone(world, writes):
    some = rows(("publish", None, {"id": 1}), ("publish", None, {"id": 2}))
    other = rows(("publish", None, {"id": 1}), ("publish", None, {"id": 3}))

    def apply(batch):
        steps, _ = writes.read(writes.topic("orders"), batch)
        applying = writes.applying("w", 7, "orders", steps, world.now, content=content_of(batch))
        return run_to_completion(applying)

    bookmark = apply(some)
    assert apply(some.at([1, 0])) == bookmark
    with pytest.raises(EpochReused, match="writer 'w' has applied epoch 7 to orders with other"):
        apply(other)
    requested = ("w", 7, "orders", True)
    assert writes.applied(*requested, content=BatchContent(2, None)) == str(bookmark)
    with pytest.raises(EpochReused):
        writes.applied(*requested, content=content_of(other))
    assert writes.applied("w", 6, "orders", True, content=content_of(other)) == str(bookmark)
    assert world.records("orders") == [{"id": 1}, {"id": 2}]


def test_an_account_is_of_one_writer_and_one_topic(world, writes):
    applied(world, writes, ("publish", None, {"id": 1}))
    assert writes.applied("other", 1, "orders") is None
    assert writes.applied("w", 1, "other") is None
    assert writes.applied("w", 2, "orders") is None


def test_an_older_epoch_is_refused_unless_it_is_done_with(world, writes):
    applied(world, writes, ("publish", None, {"id": 1}), epoch=5)
    with pytest.raises(EpochPassed, match="has applied epoch 5") as caught:
        writes.applied("w", 4, "orders")
    assert caught.value.status == 409
    assert writes.applied("w", 4, "orders", passes_over=True) == "1"


def test_everybody_sees_the_batch_at_once(world, writes):
    client = world.client()
    client.say(c="subscribe", t="orders")
    applied(world, writes, ("publish", None, {"id": 1}), ("publish", None, {"id": 2}))
    assert [document["id"] for _, document in client.data()] == [1, 2]
    assert json.loads(world.journal.accounts()[0].bodies[0])["topic"] == "orders"


COPY = ConflatedTopic("copy", "json", "orders", interval_us=1000)
NAMED = Topic("blobs", "json")
BOUND = replace(ORDERS, records_max=4)


def prepared(world, topic, messages, measures=True, at_once=2):
    """Rows of a batch that are in the journal before it is applied."""
    loads, seq, sizes = world.journal.loads, 1, {} if measures else None
    for start in range(0, len(messages.bodies), at_once):
        bodies = messages.bodies[start : start + at_once]
        names = messages.identities[start : start + at_once]
        named = None if topic.records.keys else names
        entry = LogEntry("publish", topic.name, seq, 0, named, bodies, TOPICS_LIFETIME)
        loads.put("l", [entry])
        seq += len(bodies)
        if sizes is not None:
            sizes |= dict(zip(names, map(len, bodies), strict=True))
    load = loads.load("l")
    return PreparedBatch(load, lambda: loads.entries(load), sizes)


def apply_prepared(
    world, *documents, name="orders", replaces=False, epoch=1, meanwhile=lambda: None
):
    """A batch whose rows are written ahead; `meanwhile` happens before each step."""
    writes = StagedWrites(world.engine)
    topic = writes.topic(name)
    keys = None if topic.records.keys else [str(one["id"]) for one in documents]
    messages = topic.records.read([body(**one) for one in documents], keys)
    ahead = prepared(world, topic, messages, writes.needs_sizes(topic, replaces))
    try:
        applying = writes.applying("w", epoch, name, [], world.now, replaces, prepared=ahead)
        while True:
            meanwhile()
            next(applying)
            world.settle()
    except StopIteration as over:
        return ahead, over.value
    finally:
        world.settle()


def log_of(world):
    return [
        (e.op, e.topic, e.seq + at, e.ts_us, bytes(e.bodies[at]) if e.bodies else e.identities[at])
        for e in world.journal.read(0)
        for at in range(len(e))
    ]


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_rows_that_are_written_ahead_come_to_what_rows_that_are_held_come_to(seed, replaces):
    chance, both = Random(seed), []
    before = [{"id": chance.randrange(6), "v": chance.randrange(3)} for _ in range(4)]
    rows_of = [{"id": chance.randrange(8), "v": chance.randrange(3)} for _ in range(9)]
    for ahead in (False, True):
        world = World(ORDERS, COPY, WRITES, WRITES_BEFORE, start_us=SECOND)
        world.publish("orders", *before)
        clients = [world.client() for _ in range(3)]
        clients[0].say(c="sow_and_subscribe", t="orders", filter="/v > 0", opts="oof")
        clients[1].say(c="delta_subscribe", t="orders")
        clients[2].say(c="sow_and_subscribe", t="copy")
        if ahead:
            _, bookmark = apply_prepared(world, *rows_of, replaces=replaces)
        else:
            writes = StagedWrites(world.engine)
            given = rows(*[("publish", None, one) for one in rows_of])
            steps, _ = writes.read(writes.topic("orders"), given)
            applying = writes.applying("w", 1, "orders", steps, world.now, replaces)
            bookmark = run_to_completion(applying)
            world.settle()
        world.advance(10_000)
        lines = [sorted(map(str, client.data())) for client in clients]
        world.check()
        again = world.restart()
        assert again.records("orders") == world.records("orders")
        assert StagedWrites(again.engine).applied("w", 1, "orders") == str(bookmark)
        both.append((bookmark, world.records("orders"), log_of(world), lines))
    assert both[0] == both[1]


def test_rows_without_key_fields_keep_their_keys_and_lifetimes_begin_with_the_commit():
    lives = replace(NAMED, expires=True, expiration_us=SECOND)
    world = World(lives, WRITES, WRITES_BEFORE)
    apply_prepared(world, {"id": 1}, {"id": 2}, name="blobs")
    assert sorted(world.engine.topics["blobs"].records.table.slots) == ["1", "2"]
    for one in (world, world.restart()):
        assert one.engine.due_us() == world.now + SECOND
    world.advance(SECOND)
    assert world.records("blobs") == []


def test_what_does_not_fit_is_refused_before_any_of_it_is_in_the_log():
    world = World(BOUND, WRITES, WRITES_BEFORE)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    apply_prepared(world, {"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 4}, {"id": 4, "v": 1})
    world.journal.loads.discard("l")
    with pytest.raises(Full, match="MaxRecords"):
        apply_prepared(world, {"id": 5}, {"id": 1}, epoch=2)
    assert world.engine.seq == 7
    assert len(world.records("orders")) == 4
    world.publish("orders", {"id": 1, "v": 2})
    world.check()


def test_what_was_being_deleted_goes_first():
    world = World(ORDERS, WRITES, WRITES_BEFORE)
    world.publish("orders", *[{"id": number} for number in range(4)])
    topic = world.engine.topics["orders"]
    slots = topic.records.table.live()
    steps = world.engine.removals.begin(topic, slots, world.engine.seq, world.now)
    next(steps, None)
    apply_prepared(world, {"id": 1, "v": 1})
    run_to_completion(steps)
    world.settle()
    assert world.records("orders") == [{"id": 1, "v": 1}]
    assert world.restart().records("orders") == [{"id": 1, "v": 1}]


def test_a_batch_is_taken_from_its_first_step_on_unless_it_fails():
    world = World(ORDERS, WRITES, WRITES_BEFORE)
    writes = StagedWrites(world.engine)
    topic = writes.topic("orders")
    messages = topic.records.read([body(id=1), body(id=2), body(id=3)])
    ahead = prepared(world, topic, messages)
    applying = writes.applying("w", 1, "orders", [], world.now, prepared=ahead)
    left = []
    world.engine.atomic.on_left(left.append)
    next(applying)
    assert ahead.is_taken
    applying.close()
    assert ahead.is_taken, "the server goes on with it"
    run_to_completion(left[0])
    world.settle()
    assert world.records("orders") == [{"id": 1}, {"id": 2}, {"id": 3}]
    again = prepared(world, topic, messages)
    applying = writes.applying("w", 1, "orders", [], world.now, prepared=again)
    assert run_to_completion(applying) == 3
    assert not again.is_taken, "a duplicate needs none"


def test_what_depends_on_the_records_that_are_there_is_not_written_ahead():
    checked = rights(Allow("orders", write=True, check="/v > 1"))
    world = World(ORDERS, COPY, replace(NAMED, enrichment=("/id AS /x",)), WRITES, WRITES_BEFORE)
    writes = StagedWrites(world.engine)
    topics = world.engine.topics
    assert writes.may_prepare(topics["orders"], EVERYTHING)
    assert not writes.may_prepare(topics["copy"], EVERYTHING)
    assert not writes.may_prepare(topics["blobs"], EVERYTHING)
    assert not writes.may_prepare(topics["orders"], checked)
    assert writes.may_prepare(topics["orders"], rights(Allow("orders", write=True)))
