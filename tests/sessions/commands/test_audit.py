"""What is noted of deeds: the latest, and of refusals no more than somebody can read."""

import json
from types import SimpleNamespace

from sow.core.definitions import AUDIT
from sow.core.security_definitions import Allow, Authentication, Security, User
from sow.errors import DiskFull
from sow.security.authorization import EVERYTHING, RoleSet
from sow.sessions.commands import audit, record_ops
from sow.sessions.commands.audit import NOTED_AT_ONCE, NOTED_PER_S, Audit
from tests.cases import all_cases
from tests.laws.guarding import guarded, reading, rights
from tests.laws.harness import ORDERS, SECOND, World

ANN = RoleSet(Security(authentication=Authentication())).rights(User("ann"))


def noted(world):
    table = world.engine.catalog.account(AUDIT).records.table
    return [json.loads(table.bodies[slot]) for slot in table.slots.values()]


def test_a_deed_is_noted_with_who_did_it():
    world = World(ORDERS, AUDIT)
    Audit(world.engine).note("delete", ANN, "sow_delete", topic="orders", deleted=3, filter="1=1")
    one = noted(world)[-1]
    assert (one["user"], one["deed"], one["topic"], one["deleted"]) == (
        "ann",
        "delete",
        "orders",
        3,
    )
    assert "address" not in one


def test_where_nobody_is_requested_nothing_is_noted():
    world = World(ORDERS, AUDIT)
    Audit(world.engine).note("admin", EVERYTHING, "POST /v1/config/reload")
    assert noted(world) == []
    Audit(World(ORDERS).engine).note("admin", ANN, "no such topic")


def test_it_holds_the_latest_and_no_more(monkeypatch):
    monkeypatch.setattr(audit, "KEPT_MAX", 3)
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    for at in range(7):
        log.note("admin", ANN, f"deed {at}")
    assert sorted(one["what"] for one in noted(world)) == ["deed 4", "deed 5", "deed 6"]
    Audit(world.engine).note("admin", ANN, "after a start")
    assert max(one["number"] for one in noted(world)) == 8


def test_refusals_that_come_too_fast_are_counted():
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    world.engine.sequencer.moment(world.now)
    for _ in range(NOTED_AT_ONCE + 50):
        log.note("refused", ANN, "GET /metrics")
    assert len(noted(world)) == NOTED_AT_ONCE
    log.note("admin", ANN, "POST /v1/config/reload")
    assert noted(world)[-1]["left_out"] == 50
    world.advance(SECOND)
    world.engine.sequencer.moment(world.now)
    for _ in range(2 * NOTED_PER_S):
        log.note("refused", ANN, "GET /metrics")
    assert len(noted(world)) == NOTED_AT_ONCE + 1 + NOTED_PER_S


def test_who_logs_on_again_and_again_writes_over_nothing():
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    for deed in ("logon", "delete"):
        for _ in range(NOTED_AT_ONCE + 5):
            log.note(deed, ANN, "again")
    ben = RoleSet(Security(authentication=Authentication())).rights(User("ben"))
    log.note("logon", ben, "logon")
    assert len(noted(world)) == 2 * NOTED_AT_ONCE + 1
    assert [one["left_out"] for one in noted(world) if "left_out" in one] == [5, 5]


def test_where_the_disk_takes_nothing_it_is_not_looked_again_what_there_is(monkeypatch):
    world = World(ORDERS, AUDIT)
    Audit(world.engine).note("admin", ANN, "before the start")
    log, read = Audit(world.engine), []
    monkeypatch.setattr(audit.orjson, "loads", lambda body: read.append(body) or json.loads(body))

    def full(_names):
        raise DiskFull("no room")

    monkeypatch.setattr(world.engine.disk, "check_removal", full)
    log.note("refused", ANN, "GET /metrics")
    looked = len(read)
    assert looked
    for _ in range(5):
        log.note("refused", ANN, "GET /metrics")
    assert len(read) == looked
    monkeypatch.undo()
    log.note("admin", ANN, "after it")
    assert (noted(world)[-1]["number"], noted(world)[-1]["left_out"]) == (2, 6)


def test_refusals_let_nothing_else_go_out_of_it(monkeypatch):
    monkeypatch.setattr(audit, "KEPT_MAX", 3)
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    log.note("delete", ANN, "sow_delete")
    for _ in range(5):
        log.note("refused", ANN, "GET /metrics")
    log = Audit(world.engine)  # after a start
    for _ in range(2):
        log.note("refused", ANN, "GET /metrics")
    found = [(one["deed"], one["number"]) for one in noted(world)]
    assert sorted(found) == [("delete", 1), ("refused", 6), ("refused", 7), ("refused", 8)]


def test_what_no_check_lets_pass_is_noted(monkeypatch):
    world = World(ORDERS, AUDIT)
    given = rights(reading(write=True, delete=True, check="/desk = 'a'"))
    client = guarded(world, given)
    for line in (
        {"c": "publish", "d": {"id": 1, "desk": "b"}},
        {"c": "delta_publish", "d": {"id": 1, "desk": "b"}},
    ):
        assert client.say(t="orders", cid="1", **line)[0]["reason"] == "not entitled"
    found = [(one["deed"], one["user"], one["what"], one["topic"]) for one in noted(world)]
    assert found == [
        ("refused", "ann", "publish", "orders"),
        ("refused", "ann", "delta_publish", "orders"),
    ]


def test_a_delete_by_a_filter_is_noted_before_it_begins():
    world = World(ORDERS, AUDIT)
    world.publish("orders", *[{"id": at, "desk": "a"} for at in range(3_000)])
    steps = record_ops.delete_selected(
        world.engine,
        world.executor.audit,
        world.engine.topics["orders"],
        world.now,
        filter_text="/id >= 0",
        sow_keys=None,
        identities=None,
        rights=rights(reading(delete=True)),
        check_still=lambda: None,
    )
    while not noted(world):
        next(steps)
    assert len(world.records("orders")) > 2_000, "whoever goes away now has been noted"
    assert noted(world)[0]["deleted"] == 3_000
    for _ in steps:
        pass
    assert world.records("orders") == []


def test_who_may_not_read_finds_nothing_out_by_deleting():
    world = World(ORDERS, AUDIT)
    world.publish("orders", {"id": 1, "desk": "a"})
    client = guarded(world, rights(Allow("orders", delete=True)))
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", filter="/desk = 'a'")
    assert ack["reason"] == "not entitled"
    assert world.records("orders") == [{"id": 1, "desk": "a"}]
    (ack,) = client.say(c="sow_delete", t="orders", cid="1", d={"id": 1})
    assert ack["deleted"] == 1


def test_after_a_start_few_records_are_read_and_each_deed_goes_on_in_its_place(monkeypatch):
    monkeypatch.setattr(audit, "KEPT_MAX", 50)
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    world.engine.sequencer.moment(world.now)
    for at, deed in enumerate(["logon", "admin", "logon", "delete", *["admin"] * 61]):
        log.note(deed, ANN, f"deed {at}")
    read, loads = [], audit.orjson.loads
    counting = SimpleNamespace(
        dumps=audit.orjson.dumps, loads=lambda body: read.append(1) or loads(body)
    )
    monkeypatch.setattr(audit, "orjson", counting)
    again = Audit(world.engine)
    for deed in ("logon", "admin", "delete", "refused"):
        again.note(deed, ANN, "after a start")
    places = {one["place"]: one["number"] for one in noted(world) if "after" in one["what"]}
    assert places == {"logon 2": 66, "admin 12": 67, "delete 1": 68, "refused 0": 69}
    assert 0 < len(read) < 20


@all_cases("noted_before", range(1, 12))
@all_cases(("kept", "kept_now"), [(4, 4), (4, 7), (4, 2)])
def test_the_next_number_follows_the_newest_wherever_that_stands(
    monkeypatch, noted_before, kept, kept_now
):
    world = World(ORDERS, AUDIT)
    monkeypatch.setattr(audit, "KEPT_MAX", kept)
    for life, count in enumerate((noted_before, 5, 1)):
        log = Audit(world.engine)
        for at in range(count):
            log.note("admin", ANN, f"{life} {at}")
        monkeypatch.setattr(audit, "KEPT_MAX", kept_now)
    assert max(one["number"] for one in noted(world)) == noted_before + 6
