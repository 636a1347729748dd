"""Ranges of the log over HTTP, and the positions of consumers."""

import asyncio
import io
import re
from dataclasses import replace

import numpy as np
import orjson
import pyarrow.ipc
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.media_types import ARROW
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.security.authorization import EVERYTHING, RoleSet
from sow.server.api import log
from sow.server.api.cursors import ChangeCursors
from sow.server.api.log import LogHandler
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.sessions.commands.consumers import CONSUMER_TOPICS_MAX, Consumers
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped
from tests.store.in_memory import MemoryJournal


def door_of(world):
    past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
    snapshots = SnapshotHandler(world.runtime, world.engine, past)
    changes = ChangeCursors(world.runtime, world.engine, snapshots, past)
    return LogHandler(world.runtime, world.engine, changes)


LOG, OTHER = MemoryJournal.log_id, "00000000000000bb"
FILLS = replace(ORDERS, name="fills")
PASSING = replace(ORDERS, name="passing", durability="transient")


class Place(Served):
    def __init__(self):
        world = World(ORDERS, FILLS, PASSING)
        door = door_of(world)
        super().__init__(
            world,
            *routes_to(door),
        )

    async def fill(self):
        """Changes 1 and 3 of orders, 2 of fills, and one that is not logged."""
        self.world.publish(b'{"id":1,"px":5}')
        self.world.publish(b'{"id":1}', topic="fills")
        run_to_completion(
            self.world.engine.removal("orders", np.array([0]), self.world.clock.now_us())
        )
        self.world.publish(b'{"id":9}', topic="passing")
        await self.world.runtime.durable()

    async def note(self, name, bookmark):
        body = b'{"bookmark":"%b"}' % bookmark.encode()
        return await self.ask("PUT", f"/v1/log/consumers/{name}", body)

    async def rows(self, query="", **headers):
        return (await self.get(f"/v1/log{query}", **headers)).rows


@stepped
async def test_rows_come_in_order_with_what_was_done_and_to_what():
    async with Place() as place:
        await place.fill()
        rows = await place.rows()
        assert [(row["seq"], row["topic"], row["op"]) for row in rows] == [
            (1, "orders", "publish"),
            (2, "fills", "publish"),
            (3, "orders", "delete"),
        ]
        assert rows[0]["d"] == {"id": 1, "px": 5}
        assert "d" not in rows[2]
        assert rows[0]["k"] == rows[2]["k"]


@stepped
async def test_topics_are_looked_at_some_in_each_step(monkeypatch):
    world = World(ORDERS, FILLS, PASSING)
    door = door_of(world)
    assert list(door._topics(None, EVERYTHING)) == []
    monkeypatch.setattr(log, "LOOKED_AT_ONCE", 1)
    assert len(list(door._topics(None, EVERYTHING))) == len(world.engine.topics)
    assert set(run_to_completion(door._topics(None, EVERYTHING))) == {"orders", "fills"}
    assert set(run_to_completion(door._topics(["fills", "passing"], EVERYTHING))) == {"fills"}


@stepped
async def test_a_range_leaves_out_its_beginning_and_has_its_end():
    async with Place() as place:
        await place.fill()
        for query, seqs in (
            ("?from=1&to=2", [2]),
            ("?topics=orders", [1, 3]),
            ("?topics=f%2569lls,orders", [1, 2, 3]),
            ("?limit=1", [1]),
            ("?filter=/px%20%3D%205", [1, 3]),
            ("?from=now", []),
        ):
            assert [row["seq"] for row in await place.rows(query)] == seqs, query
        answer = await place.get("/v1/log?limit=1")
        assert answer.headers["SOW-Bookmark"] == "1"


@stepped
async def test_rows_may_come_as_columns():
    async with Place() as place:
        await place.fill()
        answer = await place.get("/v1/log", Accept=ARROW)
        table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
        assert table.num_rows == 3
        assert table.column("topic").to_pylist() == ["orders", "fills", "orders"]


@stepped
async def test_an_answer_names_its_log_and_positions_may_do_so():
    async with Place() as place:
        await place.fill()
        answer = await place.get(f"/v1/log?from={LOG}-1&to={LOG}-2")
        assert [row["seq"] for row in answer.rows] == [2]
        assert (answer.headers["SOW-Log"], answer.headers["SOW-Bookmark"]) == (LOG, "2")
        assert [row["seq"] for row in await place.rows(f"?from={LOG}-0")] == [1, 2, 3]
        extent = (await place.get(f"/v1/log/extent?from={LOG}-1")).json
        assert (extent["from"], extent["to"]) == ("1", "4")
        noted = await place.note("me", f"{LOG}-2")
        assert noted.json == {"name": "me", "bookmark": "2"}


@stepped
async def test_a_position_of_another_log_is_refused_wherever_one_is_taken():
    async with Place() as place:
        await place.fill()
        refused = [
            await place.get(f"/v1/log{path}")
            for path in (
                f"?from={OTHER}-1",
                f"?from=1&to={OTHER}-2",
                f"?from={OTHER}-0",
                f"/extent?from={OTHER}-1",
                f"/extent?to={OTHER}-2",
            )
        ]
        refused.append(await place.note("me", f"{OTHER}-2"))
        assert {(one.status, one.json["reason"]) for one in refused} == {(409, "another log")}
        assert all(
            {LOG, OTHER} <= set(re.findall("[0-9a-f]{16}", str(one.json))) for one in refused
        )
        assert (await place.get("/v1/log/consumers")).json == []


@stepped
async def test_an_extent_counts_without_reading_and_names_the_log():
    async with Place() as place:
        await place.fill()
        found = (await place.get("/v1/log/extent?topics=orders")).json
        assert (found["from"], found["to"], found["rows"]) == ("0", "4", 2), "one is not logged"
        assert (found["oldest"], found["newest"], found["log"]) == ("0", "4", LOG)
        narrowed = (await place.get("/v1/log/extent?topics=orders&filter=/px%20%3D%205")).json
        assert narrowed["rows"] == 2, "a delete may be of what has matched"
        refused = await place.get("/v1/log/extent?topics=passing")
        assert (refused.status, "has no log" in refused.json["detail"]) == (400, True)


@pytest.mark.parametrize("query", ["", "?filter=/id%20%3D%201"])
@stepped
async def test_an_extent_whose_beginning_is_removed_meanwhile_is_taken_again(monkeypatch, query):
    kept, cutting = iter([2, 2, 3]), log.cutting

    def removing(journal, *requested):
        part = yield from cutting(journal, *requested)
        journal.trim(0, next(kept), beyond=True)
        return part

    monkeypatch.setattr(log, "cutting", removing)
    async with Place() as place:
        await place.fill()
        extent = (await place.get(f"/v1/log/extent{query}")).json
        assert (extent["from"], extent["oldest"], extent["rows"]) == ("1", "1", 2)
        gone = await place.get("/v1/log/extent?from=1")
        assert (gone.status, gone.json["reason"]) == (400, "invalid bookmark")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?from=2&to=1", "ends before"),
        ("?to=soon", "is not a bookmark"),
        ("?from=99", "bookmark 99 is not kept"),
        ("?limit=0", "must be from 1 to"),
        (f"?limit={log.ROWS_MAX + 1}", "must be from 1 to"),
        ("?wait=long", "number of seconds"),
    ],
)
@stepped
async def test_a_range_that_is_none_says_why(query, says):
    async with Place() as place:
        await place.fill()
        answer = await place.get(f"/v1/log{query}")
        assert (answer.status, says in answer.json["detail"]) == (400, True)


@stepped
async def test_who_waits_is_answered_when_something_comes_or_the_time_is_over():
    async with Place() as place:
        loop = asyncio.get_running_loop()
        assert await place.rows("?wait=5") == []
        assert 5 <= loop.time() < 6
        waiting = asyncio.create_task(place.rows("?wait=50"))
        await asyncio.sleep(1)
        place.world.publish(b'{"id":1}')
        await place.world.runtime.durable()
        assert len(await waiting) == 1
        assert loop.time() < 10


@stepped
async def test_a_consumer_names_topics_that_there_are_and_that_have_a_log():
    async with Place() as place:
        await place.fill()

        async def answered(*topics):
            body = orjson.dumps({"bookmark": "1", "topics": topics})
            return await place.ask("PUT", "/v1/log/consumers/me", body)

        assert (await answered("orders", "fills")).status == 200
        assert Consumers(place.world.engine).topics("me") == ["orders", "fills"]
        unknown = await answered("ordres")
        assert (unknown.status, "did you mean orders" in unknown.json["detail"]) == (404, True)
        passing = await answered("passing")
        assert (passing.status, "passing has no log" in passing.json["detail"]) == (400, True)
        many = await answered(*(f"t{number}" for number in range(CONSUMER_TOPICS_MAX + 1)))
        assert (many.status, many.json["reason"]) == (413, "too large")
        assert Consumers(place.world.engine).topics("me") == ["orders", "fills"]


@stepped
async def test_an_extent_of_changes_is_refused_as_their_read_would_be():
    async with Place() as place:
        await place.fill()
        assert (await place.get("/v1/log/extent?topics=orders&before=keys")).json["rows"] == 2
        for query in ("topics=orders,fills&before=keys", "before=true", "topics=orders&before=no"):
            refused = await place.get(f"/v1/log/extent?{query}")
            assert (refused.status, "before" in refused.json["detail"]) == (400, True)


@stepped
async def test_consumers_are_noted_sent_and_forgotten():
    async with Place() as place:
        await place.fill()
        moved = await place.ask("PUT", "/v1/log/consumers/me", b'{"bookmark":"1"}')
        assert moved.json == {"name": "me", "bookmark": "1"}
        place.world.clock.advance(7 * SECOND)
        (consumer,) = (await place.get("/v1/log/consumers")).json
        assert (consumer["name"], consumer["bookmark"], consumer["idle_s"]) == ("me", "1", 7)
        assert consumer["behind"] == place.world.engine.seq - 1
        for body in (b"", b'{"bookmark":1}', b'{"bookmark":"x"}', b'{"bookmark":"1","more":1}'):
            refused = await place.ask("PUT", "/v1/log/consumers/me", body)
            assert refused.status == 400
        assert (await place.ask("DELETE", "/v1/log/consumers/me")).json == {"removed": "me"}
        assert (await place.get("/v1/log/consumers")).json == []


@stepped
async def test_what_may_be_seen_of_topics_is_found_out_of_some_in_each_step(monkeypatch):
    monkeypatch.setattr(log, "LOOKED_AT_ONCE", 1)
    world = World(ORDERS, FILLS, PASSING)
    topics = {name: topic.records for name, topic in world.engine.topics.items()}
    allow = Allow("orders", read=True, filter="/px > 1")
    security = Security(authentication=Authentication(), roles=(Role("desk", ("*",), (allow,)),))
    steps = log._guards(topics, RoleSet(security).rights(User("ann")), None)
    count, guards = 0, None
    while guards is None:
        try:
            next(steps)
            count += 1
        except StopIteration as over:
            guards = over.value
    assert count == len(topics)
    assert set(guards) == set(topics)
    assert guards["orders"].rows.text == "/px > 1"
    assert run_to_completion(log._guards(topics, EVERYTHING, None)) == {}
