"""What waits in a copy's windows is carried to a copy of another engine, in short steps."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Merge
from sow.topic import carried_windows
from sow.topic.carried_windows import begin_from, count_carried, go_on_with, pinned
from tests.laws.harness import ORDERS, SECOND, SLOW, World

MERGED = ConflatedTopic(
    "merged", "json", "orders", interval_us=SECOND, merges=(Merge("/n", "sum"),)
)
COUNT = 30


def waiting_world():
    """Records that were released, and wait again, some of them gone."""
    world = World(ORDERS, SLOW, MERGED)
    for n in (1, 2):
        world.publish("orders", *({"id": id_, "n": n} for id_ in range(COUNT)))
        world.advance(3 * SECOND // 2)
    world.publish("orders", *({"id": id_, "n": 3} for id_ in range(COUNT)))
    world.delete("orders", "/id = 7")
    return world


def shown(copy):
    """Its records, and what waits."""
    table = copy.copy.table
    records = {table.identities[slot]: table.bodies[slot] for slot in table.live().tolist()}
    return records, copy.conflation.state(), copy.reached


@pytest.mark.parametrize("name", ["orders-C", "merged"])
def test_another_copy_goes_on_with_the_same(name):
    copy = waiting_world().engine.topics[name].copy
    assert count_carried(copy) >= COUNT
    between, after = (World(ORDERS, SLOW, MERGED).engine.topics[name].copy for _ in range(2))
    run_to_completion(begin_from(between, pinned(copy)()))
    run_to_completion(go_on_with(after, between, after.copy))
    assert shown(after) == shown(copy)
    assert after.conflation.pending == COUNT


def test_what_was_merged_stays_though_nothing_waits():
    world = waiting_world()
    world.advance(3 * SECOND)
    copy = world.engine.topics["merged"].copy
    after = World(ORDERS, SLOW, MERGED).engine.topics["merged"].copy
    run_to_completion(go_on_with(after, copy, after.copy))
    assert not copy.conflation.pending
    assert shown(after) == shown(copy)


def test_it_takes_a_step_for_so_many_records(monkeypatch):
    monkeypatch.setattr(carried_windows, "RECORDS_AT_ONCE", 5)
    copy = waiting_world().engine.topics["orders-C"].copy
    between, after = (World(ORDERS, SLOW).engine.topics["orders-C"].copy for _ in range(2))
    put = []
    monkeypatch.setattr(
        carried_windows,
        "_put_back",
        lambda records, columns, then=carried_windows._put_back: (
            put.append(len(columns[0])),
            then(records, columns),
        ),
    )
    steps = sum(1 for _ in begin_from(between, pinned(copy)()))
    steps += sum(1 for _ in go_on_with(after, between, after.copy))
    assert max(put) == 5
    assert steps > 2 * COUNT // 5
