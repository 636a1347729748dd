"""Batches of another system: checked at once, applied as one, and only once."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, Topic
from sow.sessions.commands.staged_rows import BatchContent, StagedRows, content_of
from sow.sessions.commands.staged_writes import EpochPassed, EpochReused, StagedWrites
from tests.laws.harness import ORDERS, World
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
