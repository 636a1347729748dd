"""Permits: what was there and what is to be there both have to meet the Check."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES as ACCOUNTS
from sow.core.definitions import WRITES_BEFORE, Topic
from sow.core.security_definitions import Allow
from sow.errors import NotEntitled
from sow.sessions.commands.staged_rows import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.guarding import A, B, guarded, reading, rights, two_desks
from tests.laws.harness import World

CHECK = "/desk = ${user.desk}"
WRITES = Allow(topic="orders", write=True, delete=True, check=CHECK)


@pytest.fixture
def world():
    return two_desks()


@pytest.fixture
def client(world):
    return guarded(world, rights(WRITES, desk="a"))


def outcome(lines):
    (ack,) = [line for line in lines if line["c"] == "ack"]
    return ack.get("reason", ack["status"])


@pytest.mark.parametrize(
    ("command", "document", "expected"),
    [
        ("publish", A | {"px": 9}, "success"),
        ("publish", {"id": 3, "desk": "a"}, "success"),
        ("publish", {"id": 3, "desk": "b"}, "not entitled"),
        ("publish", {"id": 3}, "not entitled"),
        ("publish", A | {"desk": "b"}, "not entitled"),
        ("publish", B | {"desk": "a"}, "not entitled"),
        ("delta_publish", {"id": 1, "px": 9}, "success"),
        ("delta_publish", {"id": 1, "desk": "b"}, "not entitled"),
        ("delta_publish", {"id": 2, "px": 9}, "not entitled"),
        ("delta_publish", {"id": 2, "desk": "a"}, "not entitled"),
    ],
)
def test_old_and_merged_new_state_have_to_pass(world, client, command, document, expected):
    before = world.records("orders")
    assert outcome(client.say(c=command, t="orders", d=document, cid="1")) == expected
    assert (world.records("orders") == before) is (expected != "success")


def test_a_refusal_has_the_position_and_nothing_of_the_record(world, client):
    frame = (
        b'{"c":"publish","t":"orders","n":2,"cid":"1"}\n{"id":1,"desk":"a"}\n{"id":2,"desk":"a"}'
    )
    (ack,) = client.send(frame)
    assert (ack["reason"], ack["index"]) == ("not entitled", 1)
    assert ack["detail"].startswith("message 1 is not entitled")
    assert world.records("orders") == [A, B]


def test_a_large_publish_is_refused_before_its_first_slice(world, client):
    many = [{"id": at, "desk": "a"} for at in range(10, 700)] + [{"id": 2, "desk": "a"}]
    bodies = "\n".join(str(one).replace("'", '"') for one in many)
    header = f'{{"c":"publish","t":"orders","n":{len(many)},"cid":"1"}}\n'
    (ack,) = client.send((header + bodies).encode())
    assert (ack["reason"], ack["index"]) == ("not entitled", 690)
    assert world.records("orders") == [A, B]


def test_publishes_that_share_their_cost_are_each_judged(world, client):
    lines = client.send(
        b'{"c":"publish","t":"orders","cid":"1","d":{"id":5,"desk":"a"}}\n'
        b'{"c":"publish","t":"orders","cid":"2","d":{"id":6,"desk":"b"}}'
    )
    assert [line.get("reason") for line in lines] == [None, "not entitled"]
    assert {one["id"] for one in world.records("orders")} == {1, 2, 5}


@pytest.mark.parametrize(
    ("requested", "left"),
    [
        ({"filter": "1=1"}, [B]),
        ({"filter": "/desk = 'b'"}, [A, B]),
        ({"d": {"id": 1}}, [B]),
        ({"d": {"id": 2}}, [A, B]),
    ],
)
def test_deletes_concern_what_may_be_deleted(world, requested, left):
    client = guarded(world, rights(WRITES, reading(), desk="a"))
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", **requested)
    assert ack["deleted"] == 2 - len(left)
    assert world.records("orders") == left


def test_a_delete_finds_nothing_out_about_what_is_hidden(world):
    given = rights(reading(select=("-/px",)), Allow(topic="orders", delete=True))
    client = guarded(world, given)
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", filter="/px > 0")
    assert ack["deleted"] == 0


def test_a_user_that_may_write_all_pays_nothing(world):
    given = rights(Allow(topic="orders", write=True))
    assert given.write_guard("orders", "write") is None
    assert outcome(guarded(world, given).say(c="publish", t="orders", d=B, cid="1")) == "success"


ROWS = {
    "others": [("publish", {"id": 2, "desk": "a"})],
    "gives away": [("publish", {"id": 1, "desk": "b"})],
    "takes in two steps": [("delete", {"id": 2}), ("publish", {"id": 2, "desk": "a"})],
    "gives away by a delta": [("delta", {"id": 1, "desk": "b"})],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_staged_rows_are_judged_as_the_batch_makes_them(rows):
    world = World(Topic("orders", "json", keys=("/id",)), ACCOUNTS, WRITES_BEFORE)
    world.publish("orders", A, B)
    staged = StagedWrites(world.engine)
    bodies = [str(body).replace("'", '"').encode() for _, body in rows]
    taken = StagedRows([op for op, _ in rows], [None] * len(rows), bodies)
    steps, rejected = staged.read(world.engine.topics["orders"], taken)
    assert not rejected
    given = rights(WRITES, desk="a")
    with pytest.raises(NotEntitled):
        run_to_completion(staged.applying("w", 1, "orders", steps, world.now, rights=given))
    world.settle()
    assert world.records("orders") == [A, B]
    world.check()


@pytest.mark.parametrize(("desk", "allowed"), [("b", False), ("a", True)])
def test_a_batch_deletes_what_it_has_written_only_where_that_may_be_deleted(desk, allowed):
    world = World(Topic("orders", "json", keys=("/id",)), ACCOUNTS, WRITES_BEFORE)
    world.publish("orders", A, B)
    staged = StagedWrites(world.engine)
    bodies = [f'{{"id": 2, "desk": "{desk}"}}'.encode(), b'{"id": 2}']
    rows = StagedRows(["publish", "delete"], [None, None], bodies)
    steps, _ = staged.read(world.engine.topics["orders"], rows)
    all_may_write = Allow(topic="orders", write=True)
    given = rights(all_may_write, Allow(topic="orders", delete=True, check=CHECK), desk="a")
    applying = staged.applying("w", 1, "orders", steps, world.now, rights=given)
    if allowed:
        run_to_completion(applying)
    else:
        with pytest.raises(NotEntitled):
            run_to_completion(applying)
    assert world.records("orders") == ([A] if allowed else [A, B])
    world.check()
