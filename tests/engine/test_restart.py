"""Restart: checkpoint and log give back exactly what was there."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sow.topics import Topic
from tests.engine.harness import ORDERS, SECOND, World

EXPIRING = Topic("t", "json", keys=("/id",), expires=True, expiration_us=10 * SECOND)


def state(world, name="orders"):
    table = world.engine.topics[name].records.table
    return [
        (table.identities[slot], table.bodies[slot], int(table.seqs[slot]), int(table.ts_us[slot]))
        for slot in table.live().tolist()
    ]


def checkpoint(world, name="orders", slots=3):
    """Write a checkpoint in small slices; `world` may be changed between them."""
    table = world.engine.topics[name].records.table
    world.checkpoints[name].write(
        world.engine.seq,
        [table.slice(start, slots) for start in range(0, len(table.bodies), slots)],
    )


def test_a_restart_from_the_log_alone():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})
    world.delete("orders", "/id = 1")
    world.publish("orders", {"id": 2, "px": 5})
    assert state(world.restart()) == state(world)


def test_bookmarks_go_on_where_they_stopped():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})
    assert world.restart().publish("orders", {"id": 3}) == 3


def test_records_keep_their_lifetime_over_a_restart():
    world = World(EXPIRING)
    world.publish("t", {"id": 1})
    again = world.restart()
    again.clock.advance(world.now - again.now)
    again.advance(10 * SECOND)
    assert again.records("t") == []


def test_records_keep_their_lifetime_over_a_checkpoint():
    world = World(EXPIRING)
    world.publish("t", {"id": 1})
    checkpoint(world, "t")
    again = world.restart()
    again.advance(9 * SECOND)
    assert again.records("t") == [{"id": 1}]
    again.advance(SECOND)
    assert again.records("t") == []


def test_a_record_that_expired_while_the_server_was_away_goes_at_once():
    world = World(EXPIRING)
    world.publish("t", {"id": 1})
    again = world.restart()
    again.clock.advance(60 * SECOND)
    again.engine.advance(again.now)
    assert again.records("t") == []


operations = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "publish", "delete"]), st.integers(0, 12)),
    max_size=60,
)


@settings(deadline=None)
@example([("publish", 2), ("publish", 3), ("publish", 0)],
         [("delete", 0), ("publish", 0), ("publish", 1)], 0)  # fmt: skip
@example([], [("publish", 0), ("publish", 1), ("publish", 2), ("publish", 3)], 0)
@given(operations, operations, st.integers(0, 60))
def test_any_checkpoint_and_the_log_after_it_give_the_same_state(before, during, cut):
    """The checkpoint is fuzzy: each slice is cut at another moment of the traffic."""
    world = World(ORDERS)
    apply(world, before)
    table = world.engine.topics["orders"].records.table
    seq, slices, start = world.engine.seq, [], 0
    for at, operation in enumerate(during):
        if start < len(table.bodies) and at >= cut % 5:
            slices.append(table.slice(start, 3))
            start += 3
        apply(world, [operation])
    while start < len(table.bodies):
        slices.append(table.slice(start, 3))
        start += 3
    world.checkpoints["orders"].write(seq, slices)
    again = world.restart()
    assert state(again) == state(world)
    again.check()


def apply(world, steps):
    for number, (kind, key) in enumerate(steps):
        if kind == "publish":
            world.publish("orders", {"id": key, "v": number, "symbol": f"S{key % 3}"})
        else:
            world.delete("orders", f"/id = {key}")
