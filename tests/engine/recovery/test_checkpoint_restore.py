"""Restart: checkpoint and log give back exactly what was there."""

from hypothesis import example, given
from hypothesis import strategies as st

from sow.core.definitions import Topic
from sow.store.in_memory import MemoryJournal
from tests.laws.harness import ORDERS, SECOND, SLOW, World

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


def times_of_the_log(world):
    return [entry.ts_us for entry in world.journal.read(world.journal.first_seq - 1)]


def test_a_clock_that_was_set_back_stops_nothing():
    world = World(ORDERS, SLOW, EXPIRING)
    world.publish("orders", {"id": 1})
    world.publish("t", {"id": 1})
    world = world.restart(start_us=SECOND)
    client = world.client()
    client.say(c="subscribe", t="orders", opts="conflation=1s")
    world.publish("orders", {"id": 2})
    world.publish("t", {"id": 2})
    world.advance(2 * SECOND)
    assert [record["id"] for record in world.records("orders-C")] == [1, 2]
    assert client.data() == [("p", {"id": 2})]
    world.advance(10 * SECOND)
    assert world.records("t") == []
    times = times_of_the_log(world)
    assert times == sorted(times)


def test_time_goes_on_from_a_checkpoint_when_the_log_is_gone():
    world = World(ORDERS)
    world.publish("orders", {"id": 1})
    checkpoint(world)
    world.journal = MemoryJournal(retention_bytes=0)
    again = World(ORDERS, checkpoints=world.checkpoints, start_us=SECOND)
    assert again.now == world.now


def test_time_goes_on_from_a_delete_that_every_checkpoint_contains():
    world = World(ORDERS)
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    world.delete("orders", "1=1")
    checkpoint(world)
    assert world.restart(start_us=SECOND).now == world.now


def test_the_times_of_the_log_do_not_go_back_whatever_time_is_given():
    world = World(ORDERS)
    world.publish("orders", {"id": 1})
    world.engine.publish("orders", [b'{"id":2}'], world.now - SECOND)
    world.engine.remove(world.engine.topics["orders"], ["1"], "delete", world.now - SECOND)
    world.settle()
    assert times_of_the_log(world) == [world.now] * 3


def test_a_clock_that_was_years_ahead_loses_nothing_once_it_is_right():
    years = 10 * 365 * 24 * 3600 * SECOND
    world = World(ORDERS, SLOW, EXPIRING, start_us=years)
    world.publish("orders", {"id": 1})
    world.publish("t", {"id": 1})
    world = world.restart(start_us=SECOND)
    world.publish("t", {"id": 2})
    world.advance(9 * SECOND)
    assert [record["id"] for record in world.records("t")] == [1, 2]
    world.advance(SECOND)
    assert world.records("t") == []
    assert [record["id"] for record in world.records("orders")] == [1]
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(2 * SECOND)
    assert world.records("orders-C") == [{"id": 1, "px": 2}]
