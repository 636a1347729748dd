"""Snapshots that readers have the name of: of one moment, in parts, as long as there is room."""

import asyncio
import io
from dataclasses import replace

import numpy as np
import pyarrow.ipc
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Limits, with_system_topics
from sow.errors import Busy, TooLarge, UnknownRecord
from sow.history.snapshot import Snapshot
from sow.server.api import snapshots
from sow.server.api.snapshots import (
    COUNTED_US,
    IDLE_US,
    SNAPSHOT_KEPT_US,
    AsOfQueries,
    SnapshotHandler,
    SnapshotLease,
    SnapshotLeases,
    split_by_key,
)
from tests.laws import harness
from tests.server.stand_ins import ORDERS, Served, World, routes_to, run, stepped

PASSING = replace(ORDERS, name="passing", durability="transient")


class Place(Served):
    def __init__(self, **limits):
        world = World(ORDERS, PASSING)
        if limits:
            world.engine.configuration = with_system_topics(
                Configuration("test", (ORDERS, PASSING), limits=Limits(**limits))
            )
        past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        self.door = SnapshotHandler(world.runtime, world.engine, past)
        super().__init__(
            world,
            *routes_to(self.door),
        )

    async def publish(self, *numbers, text="", topic="orders"):
        self.world.clock.advance(1)
        bodies = [b'{"id":%d,"text":"%b"}' % (at, text.encode()) for at in numbers]
        self.world.publish(*bodies, topic=topic)
        await self.world.runtime.durable()

    async def take(self, query="topic=orders"):
        return await self.ask("POST", f"/v1/snapshots?{query}")

    async def read(self, name, part=0):
        answer = await self.get(f"/v1/snapshots/{name}?part={part}")
        assert answer.status == 200, answer.json
        table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        return table.column("value").to_pylist()


@stepped
async def test_a_snapshot_of_a_key_that_names_nothing_is_not_taken():
    async with Place() as place:
        await place.publish(1, 2)
        assert (await place.take("topic=orders&key=1")).json["rows"] == 1
        for query in ("key=3", "key=3&as_of=2", "key=1&filter=/id%20=%202"):
            refused = await place.take(f"topic=orders&{query}")
            assert (refused.status, "no such record" in refused.json["detail"]) == (404, True)
        assert (await place.take("topic=orders&keys=3")).json["rows"] == 0


@stepped
async def test_what_is_read_is_of_the_moment_it_was_taken_however_often():
    async with Place() as place:
        await place.publish(1, 2)
        taken = (await place.take()).json
        assert (taken["rows"], taken["bookmark"], taken["expires_s"]) == (2, "2", 600)
        await place.publish(1, text="later")
        for _ in range(2):
            assert await place.read(taken["snapshot"]) == [
                '{"id":1,"text":""}',
                '{"id":2,"text":""}',
            ]


@stepped
async def test_parts_hold_all_rows_once_and_those_of_a_key_together():
    async with Place() as place:
        await place.publish(*range(20))
        taken = (await place.take("topic=orders&parts=3")).json
        parts = [await place.read(taken["snapshot"], at) for at in range(3)]
        assert sorted(row for part in parts for row in part) == sorted(
            f'{{"id":{at},"text":""}}' for at in range(20)
        )
        refused = await place.get(f"/v1/snapshots/{taken['snapshot']}?part=3")
        assert (refused.status, "the parts 0 to 2" in refused.json["detail"]) == (400, True)


@stepped
async def test_a_filter_narrows_it_and_a_moment_of_the_past_can_be_requested_for():
    async with Place() as place:
        await place.publish(1, 2)
        await place.publish(1, text="new")
        narrowed = (await place.take("topic=orders&filter=/id%20%3D%202")).json
        assert await place.read(narrowed["snapshot"]) == ['{"id":2,"text":""}']
        past = (await place.take("topic=orders&as_of=2&filter=/id%20%3D%201")).json
        assert await place.read(past["snapshot"]) == ['{"id":1,"text":""}']
        refused = await place.take("topic=passing&as_of=2")
        assert (refused.status, "has no log" in refused.json["detail"]) == (400, True)


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("", 400, "give the topic"),
        ("topic=nope", 404, "no topic"),
        ("topic=orders&parts=10001", 400, "over 10000"),
    ],
)
@stepped
async def test_what_cannot_be_taken_says_why(query, status, says):
    async with Place() as place:
        answer = await place.take(query)
        assert (answer.status, says in answer.json["detail"]) == (status, True)


@stepped
async def test_what_is_let_go_or_was_not_used_is_there_no_more():
    async with Place() as place:
        await place.publish(1)
        first, second = [(await place.take()).json["snapshot"] for _ in range(2)]
        assert (await place.ask("DELETE", f"/v1/snapshots/{first}")).status == 200
        gone = await place.get(f"/v1/snapshots/{first}")
        assert (gone.status, "it was released" in gone.json["detail"]) == (404, True)
        place.world.clock.advance(SNAPSHOT_KEPT_US + 1)
        place.world.runtime.wake()
        await asyncio.sleep(1)
        assert (await place.get(f"/v1/snapshots/{second}")).status == 404


@stepped
async def test_too_many_make_those_go_that_are_idle_and_are_refused_where_none_is(monkeypatch):
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 8)
    async with Place() as place:
        await place.publish(1)
        names = [(await place.take()).json["snapshot"] for _ in range(2)]
        busy = await place.take()
        assert (busy.status, "2 snapshots of 2 rows are in use" in busy.json["detail"]) == (
            503,
            True,
        )
        place.world.clock.advance(IDLE_US + 1)
        await place.read(names[1])
        assert (await place.take()).status == 200
        assert (await place.get(f"/v1/snapshots/{names[0]}")).status == 404
        assert (await place.get(f"/v1/snapshots/{names[1]}")).status == 200


@stepped
async def test_a_snapshot_that_holds_what_has_changed_goes_when_that_is_too_much():
    async with Place(snapshot_bytes_max=40_000) as place:
        await place.publish(*range(15), text="x" * 1000)
        name = (await place.take()).json["snapshot"]
        await place.publish(*range(5), text="y" * 1000)
        place.world.clock.advance(COUNTED_US + 1)
        place.world.runtime.wake()
        await asyncio.sleep(1)
        assert len(await place.read(name)) == 15, "half of what one client may hold"
        await place.publish(*range(15), text="z" * 1000)
        place.world.clock.advance(COUNTED_US + 1)
        place.world.runtime.wake()
        await asyncio.sleep(1)
        assert (await place.get(f"/v1/snapshots/{name}")).status == 404


@stepped
async def test_rows_are_split_by_key_the_same_way_every_time():
    world = World()
    world.publish(*(b'{"id":%d}' % at for at in range(50)))
    records = world.engine.topic("orders").records
    snapshot = Snapshot.take(records, records.table.live())

    def split(rows, parts):
        return run_to_completion(split_by_key(rows, parts))

    first = [list(part.identities()) for part in split(snapshot, 4)]
    assert first == [list(part.identities()) for part in split(snapshot, 4)]
    assert sum(map(len, first)) == 50
    assert all(first), "fifty keys leave none of four parts empty"
    assert len(split(snapshot, 1)) == 1
    few = split(snapshot.at(np.zeros(1, np.int64)), 1000)
    assert (len(few), sum(map(len, few))) == (1000, 1)
    await world.runtime.close()


class Leased:
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
        place = Leased(**more)
        try:
            return work(place)
        finally:
            await place.world.runtime.close()

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
    monkeypatch.setattr(snapshots, "SNAPSHOTS_MAX", 8)

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
    monkeypatch.setattr(snapshots, "ROWS_MAX", 20)

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
