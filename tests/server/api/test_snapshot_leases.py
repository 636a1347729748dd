"""Which snapshots stay: those in use, within numbers, rows and bytes."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Limits, with_system_topics
from sow.errors import Busy, TooLarge, UnknownRecord
from sow.history.snapshot import Snapshot
from sow.server.api import snapshot_leases
from sow.server.api.snapshot_leases import IDLE_US, SNAPSHOT_KEPT_US, SnapshotLease, SnapshotLeases
from tests.laws import harness
from tests.server.stand_ins import ORDERS, World, run


class Place:
    """The snapshots of a world whose topic holds records of about a hundred bytes."""

    def __init__(self, count=4, **limits):
        self.world = World()
        self.world.engine.configuration = with_system_topics(
            Configuration("test", (ORDERS,), limits=Limits(**limits))
        )
        self.taken = SnapshotLeases(self.world.engine)
        self.change(*range(count), text="a")

    @property
    def topic(self):
        return self.world.engine.topic("orders")

    def change(self, *numbers, text):
        self.world.publish(*(b'{"id":%d,"t":"%b"}' % (at, text.encode() * 100) for at in numbers))

    def take(self, name, client="one", used_us=0):
        records = self.topic.records
        snapshot = Snapshot.take(records, records.table.live())
        taken = SnapshotLease(name, client, self.topic, [snapshot], 0, used_us)
        run_to_completion(taken.measure())
        self.taken.add(taken)
        return taken

    def names(self):
        return sorted(self.taken._by_name)


def with_place(work, **more):
    async def go():
        place = Place(**more)
        try:
            return work(place)
        finally:
            await place.world.driver.close()

    return run(go())


def test_a_name_leads_to_its_snapshot_until_it_is_dropped():
    def work(place):
        taken = place.take("a")
        assert place.taken.use("a", 5) is taken
        assert taken.used_us == 5
        place.taken.drop("a")
        place.taken.drop("a")
        with pytest.raises(UnknownRecord, match="no snapshot 'a': it was released"):
            place.taken.use("a", 6)

    with_place(work)


def test_what_nobody_asks_for_expires():
    def work(place):
        place.take("old", used_us=0)
        place.take("new", used_us=10)
        place.taken.expire(SNAPSHOT_KEPT_US)
        assert place.names() == ["new", "old"]
        place.taken.expire(SNAPSHOT_KEPT_US + 5)
        assert place.names() == ["new"]

    with_place(work)


def test_it_holds_alone_what_its_records_are_no_more():
    def work(place):
        taken = place.take("a")
        size = taken.size_bytes // 4
        assert (taken.rows, taken.held_bytes, taken.at_most_bytes(True)) == (4, 0, 0)
        place.change(1, text="b")
        assert taken.at_most_bytes(True) == size, "one change, so one body at most"
        run_to_completion(taken.count())
        assert taken.held_bytes == size
        place.change(1, text="c")
        assert taken.at_most_bytes(True) == 2 * size, "an estimate from above"
        run_to_completion(taken.count())
        assert taken.held_bytes == size, "and what a count finds"
        assert taken.at_most_bytes(False) == taken.size_bytes, "its topic is gone"

    with_place(work)


def test_those_are_over_that_hold_too_much_the_longest_unused_first():
    def work(place):
        for number, client in enumerate(["one", "one", "two"]):
            place.take(f"{client}-{number}", client, used_us=10 - number)
        assert place.taken.over() == []
        place.change(*range(4), text="b")
        assert [one.name for one in place.taken.over()] == ["one-1", "one-0"]
        place.taken.drop("one-0")
        place.taken.drop("one-1")
        assert place.taken.over() == []

    with_place(work, snapshot_bytes_max=2_400)


def test_idle_ones_make_room_and_busy_ones_do_not(monkeypatch):
    monkeypatch.setattr(snapshot_leases, "SNAPSHOTS_MAX", 8)

    def work(place):
        place.take("a", used_us=0)
        place.take("b", used_us=IDLE_US)
        with pytest.raises(Busy, match="2 snapshots of 8 rows are in use"):
            place.taken.make_room("one", 1, IDLE_US // 2)
        place.taken.make_room("one", 1, IDLE_US + 1)
        assert place.names() == ["b"]
        place.taken.make_room("other", 1, IDLE_US + 1)
        assert place.names() == ["b"]

    with_place(work)


def test_what_one_client_can_never_have_is_too_large_and_costs_nobody_anything(monkeypatch):
    monkeypatch.setattr(snapshot_leases, "ROWS_MAX", 20)

    def work(place):
        place.take("a", used_us=0)
        with pytest.raises(TooLarge, match="11 rows, over 10"):
            place.taken.make_room("one", 11, 10 * IDLE_US)
        assert place.names() == ["a"]

    with_place(work)


def test_a_snapshot_counts_in_full_once_its_topic_is_gone():
    world = harness.World(ORDERS)
    world.publish("orders", {"id": 1})
    topic = world.engine.topic("orders")
    parts = [Snapshot.take(topic.records, topic.records.table.live())]
    found = SnapshotLease("name", "client", topic, parts, 1, 0)
    run_to_completion(found.measure())
    assert (found.at_most_bytes(is_there=True), found.at_most_bytes(is_there=False)) == (0, 8)
    world.publish("orders", {"id": 2})
    assert found.at_most_bytes(is_there=True) == 8
    run_to_completion(found.count())
    assert found.at_most_bytes(is_there=True) == 0
    world.publish("orders", {"id": 1, "v": 1})
    run_to_completion(found.count())
    assert found.at_most_bytes(is_there=True) == 8
