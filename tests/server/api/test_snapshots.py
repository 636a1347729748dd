"""Snapshots that readers have the name of: of one moment, in parts, as long as there is room."""

import asyncio
import io
from dataclasses import replace

import numpy as np
import pyarrow.ipc
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Limits, with_system_topics
from sow.history.snapshot import Snapshot
from sow.server.api import snapshot_leases
from sow.server.api.as_of_queries import AsOfQueries
from sow.server.api.snapshot_leases import IDLE_US, SNAPSHOT_KEPT_US
from sow.server.api.snapshots import (
    COUNTED_US,
    SnapshotHandler,
    split_by_key,
)
from tests.server.stand_ins import ORDERS, Served, World, routes_to, stepped

PASSING = replace(ORDERS, name="passing", durability="transient")


class Place(Served):
    def __init__(self, **limits):
        world = World(ORDERS, PASSING)
        if limits:
            world.engine.configuration = with_system_topics(
                Configuration("test", (ORDERS, PASSING), limits=Limits(**limits))
            )
        past = AsOfQueries(world.driver, world.engine)
        self.door = SnapshotHandler(world.driver, world.engine, past)
        super().__init__(
            world,
            *routes_to(self.door),
        )

    async def publish(self, *numbers, text="", topic="orders"):
        bodies = [b'{"id":%d,"text":"%b"}' % (at, text.encode()) for at in numbers]
        self.world.publish(*bodies, topic=topic)
        await self.world.driver.durable()

    async def take(self, query="topic=orders"):
        return await self.ask("POST", f"/v1/snapshots?{query}")

    async def read(self, name, part=0):
        answer = await self.get(f"/v1/snapshots/{name}?part={part}")
        assert answer.status == 200, answer.json
        table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        return table.column("value").to_pylist()


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
        place.world.driver.wake()
        await asyncio.sleep(1)
        assert (await place.get(f"/v1/snapshots/{second}")).status == 404


@stepped
async def test_too_many_make_those_go_that_are_idle_and_are_refused_where_none_is(monkeypatch):
    monkeypatch.setattr(snapshot_leases, "SNAPSHOTS_MAX", 8)
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
        place.world.driver.wake()
        await asyncio.sleep(1)
        assert len(await place.read(name)) == 15, "half of what one client may hold"
        await place.publish(*range(15), text="z" * 1000)
        place.world.clock.advance(COUNTED_US + 1)
        place.world.driver.wake()
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
    await world.driver.close()
