"""As-of queries: the answer at a bookmark is the same later."""

import io
import json
from urllib.parse import quote

import pyarrow.ipc
import pytest

from sow.core.definitions import ConflatedTopic
from sow.history import snapshot_as_of
from sow.query import Query
from sow.server.api import snapshots
from sow.server.api.records import RecordsHandler
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.sessions.queries import past_states
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped

COPY = ConflatedTopic("copy", "json", "orders")
RECORDS = "/v1/topics/{topic}/records"
QUESTIONS = [
    "",
    "order_by=/v DESC,/id DESC",
    "order_by=/t,/v * 2 DESC&skip_n=1&top_n=2",
    "filter=/v > 1&order_by=/id",
    "filter=/v > 1&top_n=1",
    "top_n=0",
    "skip_n=2&select=/id",
    "order_by=LAST_UPDATED() DESC&meta=true",
    "format=csv&order_by=/id",
    "format=ndjson&meta=true",
]


class Place(Served):
    def __init__(self):
        world = World(ORDERS, COPY)
        self.past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        snapshots = SnapshotHandler(world.runtime, world.engine, self.past)
        door = RecordsHandler(world.runtime, world.executor, self.past, snapshots)
        super().__init__(world, *routes_to(door))

    async def publish(self, *documents):
        self.world.clock.advance(1)
        self.world.publish(*(json.dumps(document).encode() for document in documents))
        await self.world.runtime.durable()

    async def requested(self, query, topic="orders"):
        return await self.get(f"/v1/topics/{topic}/records?{quote(query, safe='=&')}")


async def lived(place, note):
    """Some changes; after each, `note` is called."""
    await place.publish({"id": 1, "v": 1, "t": "a"}, {"id": 2, "v": 2}, {"id": 3, "v": 2, "t": 7})
    await note()
    await place.publish({"id": 1, "v": 3}, {"id": 4, "v": None, "t": "b"})
    await note()
    world = place.world
    now_us = world.clock.advance(1)
    world.engine.remove(world.engine.topic("orders"), ["2"], "delete", now_us)
    await note()
    await place.publish({"id": 2, "v": 5, "t": [1, 2]}, {"id": 4, "v": 1.5})
    await note()


@pytest.mark.parametrize("question", QUESTIONS)
@stepped
async def test_what_was_answered_then_is_answered_of_then(question, monkeypatch):
    monkeypatch.setattr(snapshot_as_of, "RECORDS_AT_ONCE", 2)
    async with Place() as place:
        said = {}

        async def note():
            answer = await place.requested(question)
            said[answer.headers["SOW-Bookmark"]] = answer

        await lived(place, note)
        assert len(said) == 4
        for bookmark, then in said.items():
            found = await place.requested(f"{question}&as_of={bookmark}")
            assert (found.status, found.body) == (200, then.body)
            for header in ("SOW-Bookmark", "SOW-Matches", "Content-Type"):
                assert found.headers[header] == then.headers[header]
            assert found.headers["SOW-Index"] == "log"


@stepped
async def test_a_moment_may_name_its_log_and_one_of_another_is_refused():
    async with Place() as place:
        await place.publish({"id": 1, "v": 1})
        await place.publish({"id": 1, "v": 2})
        log = place.world.journal.log_id
        assert (await place.requested(f"as_of={log}-1")).json == [{"id": 1, "v": 1}]
        refused = await place.requested("as_of=00000000000000bb-1")
        assert (refused.status, refused.json["reason"]) == (409, "another log")


@stepped
async def test_columns_hold_what_the_past_held_and_do_not_narrow_again():
    async with Place() as place:
        await place.publish({"id": 1, "v": "text", "gone": 1})
        await place.publish({"id": 1, "v": 2})

        async def columns(query):
            answer = await place.requested(f"format=arrow&{query}")
            table = pyarrow.ipc.open_stream(io.BytesIO(answer.body)).read_all()
            return {name: str(table.schema.field(name).type) for name in table.column_names}, table

        assert (await columns(""))[0] == {"id": "int64", "v": "int64"}
        types, table = await columns("as_of=1")
        assert types == {"id": "int64", "v": "string", "gone": "int64"}
        assert table.to_pylist() == [{"id": 1, "v": '"text"', "gone": 1}]
        assert (await columns(""))[0] == types


@stepped
async def test_how_the_past_was_found_is_explained():
    async with Place() as place:
        await place.publish({"id": 1, "v": 1}, {"id": 2, "v": 2})
        await place.publish({"id": 1, "v": 2})
        explained = (await place.requested("filter=/v = 1&as_of=2&explain=true")).json
        assert explained == {
            "terms": [
                {"expression": "as_of=2", "index": "log", "rows": 2},
                {"expression": "/v = 1", "index": "scan", "rows": 1},
            ],
            "rows_touched": 2,
            "advice": "no index covers the past: all its records were scanned",
            "why": [
                "as_of=2: served by log; 2 records left",
                "/v = 1: what was left of the records was read; 1 record left",
                "read to decide or to answer: 2 records",
                "no index covers the past: all its records were scanned",
            ],
        }


@pytest.mark.parametrize(
    ("topic", "query", "says"),
    [
        ("orders", "as_of=[0:1]", "as_of=[0:1] is a range; a state is of one moment"),
        ("orders", "as_of=99", "99"),
        ("orders", "as_of=", "write one that the server gave"),
        ("orders", "as_of=1&filter=/v =", "expected"),
    ],
)
@stepped
async def test_what_cannot_be_answered_of_the_past_says_why(topic, query, says):
    async with Place() as place:
        await place.publish({"id": 1})
        answer = await place.requested(query, topic)
        assert answer.status == 400
        assert says in json.dumps(answer.json)


@stepped
async def test_of_a_time_before_all_that_the_log_reports_nothing_is_guessed():
    async with Place() as place:
        await place.publish({"id": 1})
        # A log that reaches back to its beginning knows that there was nothing.
        assert (await place.requested("as_of=1969-12-31T00:00:00Z")).json == []
        place.world.journal.trim(0, 2, beyond=True)
        for time in ("1969-12-31T00:00:00Z", " 19691231T000000"):
            answer = await place.requested(f"as_of={time}")
            assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
            assert "the oldest moment it covers is bookmark 1" in answer.json["detail"]
        assert (await place.requested("as_of=1")).json == [{"id": 1}]
        assert (await place.requested("as_of=now")).json == [{"id": 1}]
        await place.publish({"id": 2})
        place.world.clock.advance(5 * SECOND)
        refused = await place.requested("as_of=1969-12-31T00:00:00Z")
        oldest, newest = refused.json["oldest"], refused.json["newest"]
        assert (refused.status, oldest["bookmark"], newest["bookmark"]) == (400, "1", "2")
        for time in (oldest["time"], newest["time"]):
            assert len((await place.requested(f"as_of={time}")).json) == 2


@stepped
async def test_few_states_are_worked_out_at_a_time(monkeypatch):
    monkeypatch.setattr(past_states, "AS_OF_WAITING_MAX", 0)
    async with Place() as place:
        await place.publish({"id": 1})
        first = place.world.executor.subscriptions.past.query("orders", "1", Query())
        next(first)
        answer = await place.requested("as_of=1")
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


@stepped
async def test_a_past_state_is_for_a_client_that_is_there(monkeypatch):
    ending = []
    monkeypatch.setattr(snapshots, "end_with_client", ending.append)
    async with Place() as place:
        await place.publish({"id": 1})
        await place.requested("top_n=1")
        assert not ending
        await place.requested("as_of=1")
        assert len(ending) == 1


@pytest.mark.parametrize("moment", ["2199-01-01T00:00:00Z", "21990101T000000Z", "7"])
@stepped
async def test_a_moment_that_has_not_come_is_refused_with_those_that_there_are(moment):
    async with Place() as place:
        await place.publish({"id": 1}, {"id": 2})
        answer = await place.requested(f"as_of={moment}")
        said = json.loads(answer.body)
        assert (answer.status, said["reason"]) == (400, "invalid bookmark")
        assert said["oldest"]["bookmark"] == "0"
        assert said["newest"]["bookmark"] == "2"
        for time in (said["oldest"]["time"], said["newest"]["time"]):
            assert (await place.requested(f"as_of={time}")).status == 200


@stepped
async def test_a_conflated_topic_is_as_it_was_at_a_moment():
    async with Place() as place:
        await place.publish({"id": 1, "v": 1})
        place.world.clock.advance(10 * SECOND)
        await place.publish({"id": 1, "v": 2}, {"id": 2, "v": 3})
        place.world.clock.advance(SECOND)
        for query, expected in (
            ("as_of=1", []),
            ("as_of=3", [{"id": 1, "v": 1}]),
            ("as_of=2", [{"id": 1, "v": 1}]),
            ("as_of=now&format=ndjson", [{"id": 1, "v": 1}]),
        ):
            answer = await place.requested(query, "copy")
            read = [json.loads(line) for line in answer.body.splitlines()]
            assert (answer.status, read if "ndjson" in query else answer.json) == (200, expected)
            bookmark = {"as_of=1": "1", "as_of=2": "1"}.get(query, "3")
            assert answer.headers["SOW-Bookmark"] == bookmark
        place.world.clock.advance(10 * SECOND)
        answer = await place.requested(
            "as_of=now&projection=SUM(/v) AS /v,/id&grouping=/id", "copy"
        )
        assert answer.json == [{"v": 2, "id": 1}, {"v": 3, "id": 2}]
