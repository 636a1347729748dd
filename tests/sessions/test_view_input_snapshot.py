"""Held rows: all records of a moment, as having come."""

from sow.core.definitions import Topic
from sow.core.paths import parse_path
from sow.history.snapshot import Snapshot
from sow.sessions.view_input_snapshot import ViewInputSnapshot
from tests.laws.harness import World


def test_records_are_rows_as_they_were_whatever_becomes_of_them():
    world = World(Topic("orders", "json", keys=("/id",)))
    world.publish("orders", *({"id": n, "v": n * 10} for n in range(600)))
    records = world.engine.topic("orders").records
    snapshot = Snapshot.take(records, records.table.live())
    world.delete("orders", "/id < 500")
    world.publish("orders", {"id": 599, "v": 0})
    rows = ViewInputSnapshot(snapshot, [parse_path("/v")])
    found = list(rows.rows())
    assert sum(map(len, found)) == 600
    assert [value for some in found for value in some.news[0]] == [n * 10 for n in range(600)]
    assert [*found[1].borns] == [*found[1].identities] == list(range(250, 500))
    taken = []
    for _ in rows.filling(taken.append):
        pass
    assert len(taken) == len(found)
    assert rows.underlyings == (records,)
    assert (rows.on_batch(None), rows.is_behind, list(rows.work())) == ((), False, [])
    rows.stop()
