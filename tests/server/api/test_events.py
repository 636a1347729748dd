"""The door of the events of one record: what it answers, what it edits, and what it refuses."""

import json
from urllib.parse import quote

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series, Topic
from sow.server.api import events as door
from sow.server.api.events import EventsHandler
from sow.sessions.queries.access_control import row_policy_for
from sow.topic.series import Bound
from tests.laws.guarding import reading, rights
from tests.server.stand_ins import ORDERS, Served, World, routes_to, stepped

PRICES = Topic("prices", "json", keys=("/id",), series=Series(events_max=5000))
NOTES = Topic("notes", "string", series=Series())
JSON = {"Content-Type": "application/json"}


class Place(Served):
    def __init__(self):
        world = World(ORDERS, PRICES, NOTES)
        super().__init__(world, *routes_to(EventsHandler(world.runtime, world.executor)))

    def publish(self, *numbers, id_=1):
        for number in numbers:
            body = json.dumps({"id": id_, "n": number}).encode()
            self.world.engine.publish("prices", [body], self.world.clock.now_us())

    async def events(self, key="key=1", topic="prices", accept="application/json", **requested):
        query = "&".join(f"{name.rstrip('_')}={quote(str(v))}" for name, v in requested.items())
        path = f"/v1/topics/{topic}/records/{quote(key, safe='')}/events?{query}"
        return await self.ask("GET", path, b"", {"Accept": accept})

    async def edit(self, seq, document, key="key=1", topic="prices", **headers):
        path = f"/v1/topics/{topic}/records/{quote(key, safe='')}/events/{seq}"
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return await self.ask("PUT", path, json.dumps(document).encode(), JSON | named)


def numbers(answer):
    return [row["d"]["n"] for row in answer.json]


@stepped
async def test_a_range_of_events_is_read_by_number_and_by_time():
    async with Place() as place:
        place.publish(1, 2)
        place.world.clock.advance(10_000_000)
        place.publish(3, 4)
        everything = await place.events()
        first = everything.json[0]
        assert list(first) == ["seq", "ts", "author", "d"]
        assert (first["seq"], first["author"], first["d"]) == (1, "", {"id": 1, "n": 1})
        assert numbers(everything) == [1, 2, 3, 4]
        assert everything.headers["SOW-Bookmark"] == "4"
        assert numbers(await place.events(from_=2, to=3)) == [2, 3]
        assert numbers(await place.events(from_=2, limit=1)) == [4], "the newest of the range"
        late = everything.json[2]["ts"]
        assert numbers(await place.events(from_=late)) == [3, 4]
        assert numbers(await place.events(to=first["ts"])) == [1, 2]
        assert numbers(await place.events(from_=9)) == []
        lines = await place.events(accept="application/x-ndjson", limit=2)
        assert [json.loads(line)["d"]["n"] for line in lines.body.splitlines()] == [3, 4]


@stepped
async def test_many_events_are_read_in_steps(monkeypatch):
    monkeypatch.setattr(door, "EVENTS_AT_ONCE", 7)
    async with Place() as place:
        place.publish(*range(40))
        assert numbers(await place.events()) == list(range(40))
        assert numbers(await place.events(limit=20)) == list(range(20, 40))


@pytest.mark.parametrize(
    ("least", "start", "limit", "found"),
    [(3, 1, 9, [3, 4]), (3, 1, 1, [4]), (3, 9, 9, []), (3, 1, 0, []), (9, 1, 9, None)],
)
@stepped
async def test_who_sees_some_events_is_told_of_an_empty_range(
    monkeypatch, least, start, limit, found
):
    monkeypatch.setattr(door, "EVENTS_AT_ONCE", 1)
    place = Place()
    place.publish(*range(5))
    records = place.world.engine.topic("prices").records
    guard = row_policy_for(rights(reading("prices", filter=f"/n >= {least}")), records)
    requested = door.Requested(Bound(start), None, limit)
    seen = run_to_completion(door._seen(records, "1", requested, guard))
    assert (seen and [json.loads(event.body)["n"] for event in seen]) == found


@pytest.mark.parametrize(
    ("topic", "key", "requested", "status", "says"),
    [
        ("orders", "key=1", {}, 400, "no series"),
        ("prices", "key=2", {}, 404, "no such record"),
        ("prices", "77", {}, 404, "no such record"),
        ("prices", "key=1", {"from_": "soon"}, 400, "neither"),
        ("prices", "key=1", {"limit": "-1"}, 400, "whole number"),
        ("prices", "key=1", {"limit": 10**6}, 413, "most of an answer"),
        ("nothing", "key=1", {}, 404, "no topic"),
    ],
)
@stepped
async def test_what_is_not_there_or_not_understood_is_refused(topic, key, requested, status, says):
    async with Place() as place:
        place.publish(1)
        answer = await place.events(key, topic, **requested)
        assert (answer.status, says in answer.json["detail"]) == (status, True), answer.body


@stepped
async def test_an_edit_keeps_number_and_time_and_changes_the_record_if_it_is_the_newest():
    async with Place() as place:
        place.publish(1, 2)
        before = (await place.events()).json
        answer = await place.edit(1, {"id": 1, "n": 10})
        assert answer.json == {"edited": 1, "bookmark": "3"}
        assert place.world.journal.last_seq == 3, "it is durable"
        table = place.world.engine.topic("prices").records.table
        assert json.loads(table.bodies[0])["n"] == 2
        await place.edit(2, {"id": 1, "n": 20})
        assert json.loads(table.bodies[0])["n"] == 20
        after = (await place.events()).json
        assert [row["d"]["n"] for row in after] == [10, 20]
        assert [(row["seq"], row["ts"]) for row in after] == [
            (row["seq"], row["ts"]) for row in before
        ]
        place.world.engine.check()


@pytest.mark.parametrize(
    ("seq", "document", "headers", "status", "says"),
    [
        (9, {"id": 1}, {}, 404, "no event 9"),
        ("x", {"id": 1}, {}, 404, "not the number"),
        (1, {"id": 2}, {}, 400, "names"),
        (1, {"a": 2}, {}, 400, "/id"),
        (1, {"id": 1}, {"If_Match": '"1.a"'}, 400, "no ETag"),
        (1, {"id": 1}, {"Idempotency_Key": "a/1"}, 400, "Idempotency-Key"),
    ],
)
@stepped
async def test_an_edit_of_what_is_not_there_is_refused(seq, document, headers, status, says):
    async with Place() as place:
        place.publish(1)
        answer = await place.edit(seq, document, **headers)
        assert (answer.status, says in answer.json["detail"]) == (status, True), answer.body
        assert numbers(await place.events()) == [1]


@stepped
async def test_an_event_of_a_record_that_is_gone_is_gone():
    async with Place() as place:
        place.publish(1, 2)
        topic = place.world.engine.topic("prices")
        slots = topic.records.table.live()
        run_to_completion(place.world.engine.removal("prices", slots, place.world.clock.now_us()))
        assert (await place.events()).status == 404
        assert (await place.edit(1, {"id": 1})).status == 404
        place.publish(3)
        assert numbers(await place.events()) == [3]


@stepped
async def test_texts_are_events_like_documents():
    async with Place() as place:
        place.world.engine.publish("notes", [b"hello"], place.world.clock.now_us(), key="k")
        (row,) = (await place.events("k", "notes")).json
        assert row["d"] == "hello"
