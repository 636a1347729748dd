"""What is noted of deeds: the latest, and of refusals no more than somebody can read."""

import json

from sow.definitions import AUDIT, Authentication, Security
from sow.errors import DiskFull
from sow.requests import audit
from sow.requests.audit import NOTED_AT_ONCE, NOTED_PER_S, Audit
from sow.rights import EVERYTHING, Entitlements
from sow.users import User
from tests.core.harness import ORDERS, SECOND, World

ANN = Entitlements(Security(authentication=Authentication())).rights(User("ann"))


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


def test_where_nobody_is_asked_nothing_is_noted():
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
    world.engine.reach(world.now)
    for _ in range(NOTED_AT_ONCE + 50):
        log.note("refused", ANN, "GET /metrics")
    assert len(noted(world)) == NOTED_AT_ONCE
    log.note("admin", ANN, "POST /v1/config/reload")
    assert noted(world)[-1]["left_out"] == 50
    world.advance(SECOND)
    world.engine.reach(world.now)
    for _ in range(2 * NOTED_PER_S):
        log.note("refused", ANN, "GET /metrics")
    assert len(noted(world)) == NOTED_AT_ONCE + 1 + NOTED_PER_S


def test_who_logs_on_again_and_again_writes_over_nothing():
    world = World(ORDERS, AUDIT)
    log = Audit(world.engine)
    for deed in ("logon", "delete"):
        for _ in range(NOTED_AT_ONCE + 5):
            log.note(deed, ANN, "again")
    ben = Entitlements(Security(authentication=Authentication())).rights(User("ben"))
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
    for _ in range(5):
        log.note("refused", ANN, "GET /metrics")
    assert len(read) == 1
    monkeypatch.undo()
    log.note("admin", ANN, "after it")
    assert (noted(world)[-1]["number"], noted(world)[-1]["left_out"]) == (2, 5)
