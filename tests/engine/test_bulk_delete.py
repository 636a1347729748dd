"""Many records go a few at a time, and everybody's changes come out as if they had gone at once."""

import json
from random import Random

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Topic
from sow.engine import bulk_delete
from sow.engine.reconfiguration import Reconfiguration
from sow.errors import DiskFull, InvalidTopic
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.cases import all_cases
from tests.laws.harness import SECOND, World

ORDERS = Topic("orders", "json", keys=("/id",), hash_indexes=(("/v",),))
BRIEF = Topic("brief", "json", keys=("/id",), expires=True)
COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)
COUNT = 12


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    monkeypatch.setattr(bulk_delete, "RECORDS_AT_ONCE", 3)


@pytest.fixture
def world():
    world = World(ORDERS, BRIEF, COPY, WRITES, WRITES_BEFORE)
    world.publish("orders", *({"id": n, "v": n} for n in range(COUNT)))
    return world


def begun(world, slots=None, taken=1):
    """A removal of all orders of which some steps were taken."""
    table = world.engine.topics["orders"].records.table
    slots = table.live() if slots is None else np.array(slots)
    steps = world.engine.removal("orders", slots, world.now)
    for _ in range(taken):
        next(steps)
    return steps


def ids(world, topic="orders"):
    return [document["id"] for document in world.records(topic)]


def test_records_go_some_at_each_step_and_the_result_is_their_count(world):
    steps = begun(world)
    assert ids(world) == list(range(3, COUNT))
    next(steps)
    assert ids(world) == list(range(6, COUNT))
    world.check()
    assert run_to_completion(steps) == COUNT
    world.settle()
    world.check()
    assert ids(world.restart()) == []


def test_what_is_published_meanwhile_stays(world):
    steps = begun(world)
    world.publish("orders", {"id": 1, "v": 70}, {"id": 9, "v": 71}, {"id": 50, "v": 72})
    assert run_to_completion(steps) == COUNT, "what was published again had gone first"
    assert world.records("orders") == [
        {"id": 1, "v": 70},
        {"id": 9, "v": 71},
        {"id": 50, "v": 72},
    ]
    entries = [(entry.op, entry.identities) for entry in world.journal.read(0)]
    assert entries[1:4] == [("delete", ["0", "1", "2"]), ("delete", ["9"]), ("publish", None)]


def test_a_delta_meets_no_record_that_waits(world):
    steps = begun(world)
    world.publish("orders", {"id": 9, "new": True}, delta=True)
    run_to_completion(steps)
    assert world.records("orders") == [{"id": 9, "new": True}]


def test_a_staged_batch_meets_no_record_that_waits(world):
    steps = begun(world)
    writes, topic = StagedWrites(world.engine), world.engine.topics["orders"]
    rows = StagedRows(["delta", "publish"], [None] * 2, [b'{"id":9,"x":1}', b'{"id":8}'])
    writes.apply("w", 1, "orders", writes.read(topic, rows)[0], world.now)
    run_to_completion(steps)
    assert world.records("orders") == [{"id": 9, "x": 1}, {"id": 8}]


def test_a_new_record_in_the_place_of_one_that_has_gone_is_not_meant(world):
    steps = begun(world, slots=range(COUNT), taken=1)
    other = begun(world, slots=[10, 11])
    assert run_to_completion(other) == 2
    for number in range(100, 105):
        world.publish("orders", {"id": number})
    table = world.engine.topics["orders"].records.table
    assert {table.slots["100"], table.slots["101"]} == {10, 11}
    assert run_to_completion(steps) == COUNT - 2, "the other removal has counted two"
    assert ids(world) == [100, 101, 102, 103, 104]


def test_one_that_is_given_up_leaves_the_rest(world):
    steps = begun(world, taken=2)
    steps.close()
    world.publish("orders", {"id": 11, "v": 90})
    world.check()
    assert ids(world) == list(range(6, COUNT)), "an update of what stays"


def test_a_copy_and_followers_are_sent_of_each_record_once(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="^(orders|copy)$", opts="oof")
    world.advance(2 * SECOND)
    client.lines()
    steps = begun(world)
    world.publish("orders", {"id": 9, "v": 71})
    run_to_completion(steps)
    world.settle()
    sent = [(line["c"], line["d"]["id"]) for line in client.lines() if line["t"] == "orders"]
    assert sorted(sent) == sorted([("oof", n) for n in range(COUNT)] + [("p", 9)])
    assert sent.index(("oof", 9)) < sent.index(("p", 9))
    world.advance(2 * SECOND)
    sent = [(line["c"], line["d"]["id"]) for line in client.lines() if line["t"] == "copy"]
    assert sorted(sent) == sorted([("oof", n) for n in range(COUNT) if n != 9] + [("p", 9)])
    assert ids(world, "copy") == [9]


def test_a_record_that_expires_meanwhile_has_gone(world):
    world.publish("brief", *({"id": n} for n in range(6)), expires_s=2)
    slots = world.engine.topics["brief"].records.table.live()
    steps = world.engine.removal("brief", slots, world.now)
    next(steps)
    world.advance(3 * SECOND)
    assert run_to_completion(steps) == 3
    assert world.records("brief") == []


# What may end it.


def test_a_full_disk_is_requested_for_all_of_it_first(world):
    world.journal.full, world.journal.reserve_bytes = True, 10
    with pytest.raises(DiskFull, match="nothing was changed"):
        run_to_completion(begun(world, taken=0))
    assert len(ids(world)) == COUNT


@pytest.mark.parametrize("is_scarce", [False, True])
def test_the_journal_gathers_what_it_does_on_a_scarce_disk_until_it_ends(
    world, monkeypatch, is_scarce
):
    disk = world.engine.disk
    monkeypatch.setattr(disk, "_has_room", lambda size_bytes: not (is_scarce and size_bytes))
    steps = begun(world, taken=1)
    assert disk.scarce_deletes == is_scarce
    run_to_completion(steps)
    assert (disk.scarce_deletes, ids(world)) == (0, [])


def test_a_disk_that_fills_meanwhile_ends_it_with_the_number_of_those_that_went(world):
    steps = begun(world, taken=2)
    world.journal.full, world.journal.reserve_bytes = True, 0
    with pytest.raises(DiskFull, match="6 of 12 records were deleted, and the others stay"):
        next(steps)
    world.settle()
    world.check()
    assert len(ids(world)) == 6


def test_a_topic_that_goes_ends_it():
    desks = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
    world = World(desks)
    world.publish("/desk/1", *({"id": n} for n in range(6)))
    slots = world.engine.topics["/desk/1"].records.table.live()
    steps = world.engine.removal("/desk/1", slots, world.now)
    next(steps)
    limits = world.configuration.limits.__class__(pattern_topics_max=0)
    smaller = world.configuration.__class__("test", (desks,), limits=limits)
    change = Reconfiguration(world.engine, smaller, lambda _topic: None, iter)
    run_to_completion(change.apply(world.now))
    assert "/desk/1" not in world.engine.topics
    with pytest.raises(InvalidTopic, match="was removed from the configuration; 3 of 6 records"):
        next(steps)
    world.check()


# The law: whatever others do between two steps, what is left is as if there had been one.


@all_cases("seed", range(60))
def test_others_find_and_leave_what_they_would_have_found_and_left(seed):
    """The same writes, after a removal at once and between the steps of one."""
    random = Random(seed)
    worlds = [World(ORDERS, COPY) for _ in range(2)]
    for world in worlds:
        world.publish("orders", *({"id": n, "v": n % 3} for n in range(COUNT)))
    chosen = random.sample(range(COUNT), random.randint(1, COUNT))
    run_to_completion(begun(worlds[0], chosen, taken=0))
    steps = begun(worlds[1], chosen)
    numbers = iter(range(100, 200))
    for _ in range(30):
        if random.random() < 0.3:
            next(steps, None)
            continue
        document = {"id": random.randrange(COUNT + 4), "w": next(numbers)}
        delta = random.random() < 0.5
        for world in worlds:
            world.engine.publish("orders", [json.dumps(document).encode()], world.now, delta=delta)
    for _ in steps:
        pass
    whole, stepped = worlds
    for world in worlds:
        world.settle()
        world.advance(2 * SECOND)
        world.check()
    assert stepped.records("orders") == whole.records("orders")
    assert {d["id"]: d for d in stepped.records("copy")} == {
        d["id"]: d for d in whole.records("copy")
    }
    assert stepped.engine.seq == whole.engine.seq
    assert stepped.restart().records("orders") == whole.records("orders")
