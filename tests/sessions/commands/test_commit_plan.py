"""The plan of a commit: what a batch comes to, whatever its rows do to each other."""

import json

import pytest

from sow.core import containers
from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, Topic, View, stored
from sow.sessions.commands.commit_plan import DELETIONS, Plan, StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.harness import ORDERS, World

KEYLESS = Topic("blobs", "json")
COUNTED = Topic(
    "counted", "json", keys=("/id",), enrichment=("COALESCE(/n OF PREVIOUS, 0) + 1 AS /n",)
)
THROUGH = Topic("through", "json", keys=("/id",), retain=False)


@pytest.fixture
def world():
    return World(ORDERS, KEYLESS, COUNTED, THROUGH, WRITES, WRITES_BEFORE)


def sow_key(world, number):
    records = world.engine.topics["orders"].records
    return records.sow_key_of(records.identities_of([json.dumps({"id": number}).encode()])[0])


def planned(world, *given, topic="orders", replaces=False):
    """What rows of (operation, document or number of a record) come to, as (what, records)."""
    writes, there = StagedWrites(world.engine), world.engine.topics[topic]
    keys = [sow_key(world, what) if isinstance(what, int) else None for _, what in given]
    bodies = [None if isinstance(what, int) else json.dumps(what).encode() for _, what in given]
    rows = StagedRows([operation for operation, _ in given], keys, bodies)
    steps, rejected = writes.read(there, rows)
    assert not rejected
    pieces = run_to_completion(Plan(world.engine, there, steps, world.now, replaces).pieces())
    changes = []
    for piece in pieces:
        bodies = [json.loads(body) for body in piece.messages.bodies]
        changes.append(("removed", piece.messages.identities) if piece.removes else ("put", bodies))
    assert world.engine.seq == world.journal.last_seq, "nothing has changed"
    return changes


ROWS = [
    (
        "deltas see what came before them",
        [
            ("publish", {"id": 5, "a": 1}),
            ("delta", {"id": 5, "b": 2}),
            ("delta", {"id": 1, "c": 3}),
        ],
        [
            ("put", [{"id": 5, "a": 1}]),
            ("put", [{"id": 5, "a": 1, "b": 2}, {"id": 1, "v": 0, "c": 3}]),
        ],
    ),
    (
        "a delta of what the batch has deleted begins anew",
        [("delete", {"id": 1}), ("delta", {"id": 1, "b": 2})],
        [("removed", ["1"]), ("put", [{"id": 1, "b": 2}])],
    ),
    (
        "what is not there is not deleted, nor twice",
        [("delete", {"id": 8}), ("delete", {"id": 1}), ("delete", {"id": 1})],
        [("removed", ["1"])],
    ),
    ("nothing at all", [("delete", {"id": 8})], []),
    (
        "by SowKey, what the batch has made, too",
        [("publish", {"id": 8}), ("delete", 8), ("delete", 1), ("delete", 77)],
        [("put", [{"id": 8}]), ("removed", ["8", "1"])],
    ),
]


@pytest.mark.parametrize("long", [0, 300_000])
@pytest.mark.parametrize(("given", "changes"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_rows_are_planned_as_if_those_before_had_been_done(
    world, given, changes, long, monkeypatch
):
    monkeypatch.setattr(containers, "LONG_KEYS", long)  # from how many on they are in parts
    world.publish("orders", {"id": 1, "v": 0}, {"id": 2, "v": 0})
    assert planned(world, *given) == changes


def test_what_a_very_large_batch_makes_of_records_is_held_in_parts(world, monkeypatch):
    monkeypatch.setattr(containers, "LONG_KEYS", 3)
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 2)
    topic = world.engine.topics["orders"]
    rows = StagedRows(["delta"] * 9, [None] * 9, [b'{"id":%d}' % at for at in range(9)])
    steps, _ = StagedWrites(world.engine).read(topic, rows)
    plan = Plan(world.engine, topic, steps, world.now)
    run_to_completion(plan.pieces())
    assert [len(held) for held in (plan._states, plan._by_sow_key)] == [9, 9]
    assert {type(plan._states), type(plan._by_sow_key)} == {containers.ShardedDict}


def test_a_replaced_topic_loses_the_others_first(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 2)
    monkeypatch.setattr("sow.sessions.commands.commit_plan.FOUND_AT_ONCE", 3)
    world.publish("orders", *[{"id": number} for number in range(5)])
    given = [("publish", {"id": 2}), ("publish", {"id": 9})]
    assert planned(world, *given, replaces=True) == [
        ("removed", ["0", "1"]),
        ("removed", ["3", "4"]),
        ("put", [{"id": 2}, {"id": 9}]),
    ]


def test_of_a_topic_that_retains_nothing_nothing_is_remembered(world):
    given = [("publish", {"id": 1}), ("delta", {"id": 1, "b": 2}), ("delete", {"id": 1})]
    put = [("put", [{"id": 1}]), ("put", [{"id": 1, "b": 2}])]
    assert planned(world, *given, topic="through") == put


def test_the_room_it_takes_is_that_of_what_is_stored(world):
    topic = world.engine.topics["orders"]
    steps, _ = StagedWrites(world.engine).read(
        topic, StagedRows(["publish", "delete"], [None] * 2, [b'{"id":1}', b'{"id":1}'])
    )
    put, gone = run_to_completion(Plan(world.engine, topic, steps, world.now).pieces())
    assert (put.deed.sizes, gone.deed.sizes) == ([8], None)
    assert (len(put), len(gone)) == (1, 1)


def test_each_message_is_enriched_by_what_the_batch_has_made_of_its_record(world):
    world.publish("counted", {"id": 1}, {"id": 1})
    rows = [
        ("publish", {"id": 1}),
        ("delta", {"id": 1, "b": 2}),
        ("delete", {"id": 1}),
        ("publish", {"id": 1}),
        ("publish", {"id": 2}),
    ]
    assert planned(world, *rows, topic="counted") == [
        ("put", [{"id": 1, "n": 3}]),
        ("put", [{"id": 1, "n": 4, "b": 2}]),
        ("removed", ["1"]),
        ("put", [{"id": 1, "n": 1}, {"id": 2, "n": 1}]),
    ]


def test_what_was_planned_is_held_by_its_pieces_alone(world):
    writes, there = StagedWrites(world.engine), world.engine.topics["orders"]
    bodies = [json.dumps({"id": number}).encode() for number in range(3)]
    steps, _ = writes.read(there, StagedRows(["publish"] * 3, [None] * 3, bodies))
    assert len(run_to_completion(Plan(world.engine, there, steps, world.now).pieces())) == 1
    assert steps == []


@pytest.mark.parametrize(
    ("topic", "reasons"), [("rows", ["deleted", "expired", "match"]), ("blobs", ["deleted"] * 3)]
)
def test_rows_of_a_view_that_spark_runs_say_why_they_go_and_others_are_deleted(topic, reasons):
    view = View("rows", "json", ("orders",), ("/desk",), ("/desk",), engine="spark")
    world = World(ORDERS, KEYLESS, stored(view), WRITES, WRITES_BEFORE)
    writes, names = StagedWrites(world.engine), ["1", "2", "3"]
    there = writes.topic(topic)
    batches = (["publish"] * 3, [b"{}"] * 3), (DELETIONS, [None] * 3)
    for epoch, (operations, bodies) in enumerate(batches):
        steps, _ = writes.read(there, StagedRows([*operations], names, bodies))
        plan = run_to_completion(Plan(world.engine, there, [*steps], world.now).pieces())
        found = {name: piece.reason for piece in plan for name in piece.messages.identities}
        writes.apply("w", epoch, topic, steps, world.now)
    assert found == dict(zip(names, reasons, strict=True))
    assert world.records(topic) == []
