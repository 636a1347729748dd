"""The door of one record: what it answers, when, and what it refuses."""

import json
from urllib.parse import quote

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series, Topic
from sow.security.authorization import EVERYTHING
from sow.server.api import record_resource as door
from sow.server.api.record_resource import EventsHandler, RecordHandler
from sow.sessions.commands.publishers import NamedPublisher
from sow.sessions.queries.access_control import row_policy_for
from sow.topic.series import Bound
from tests.laws.guarding import reading, rights
from tests.server.stand_ins import ORDERS, Served, World, routes_to, stepped

NOTES = Topic("notes", "json")
QUOTES = Topic("quotes", "json", keys=("/venue", "/id"))
RECORD = "/v1/topics/{topic}/records/{key}"
JSON = {"Content-Type": "application/json"}


class Place(Served):
    def __init__(self):
        world = World(ORDERS, NOTES, QUOTES)
        door = RecordHandler(world.runtime, world.executor)
        super().__init__(
            world,
            *routes_to(door),
        )

    async def send(self, method, key, document=None, topic="orders", **headers):
        path = f"/v1/topics/{quote(topic, safe='')}/records/{quote(key, safe='')}"
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        body = b"" if document is None else json.dumps(document).encode()
        return await self.ask(method, path, body, JSON | named)

    def key(self, number):
        return self.world.engine.topic("orders").records.sow_key_of(str(number))


@stepped
async def test_a_record_is_put_read_merged_and_deleted_at_its_address():
    async with Place() as place:
        key = place.key(1)
        made = await place.send("PUT", key, {"id": 1, "a": 1})
        assert (made.status, made.json) == (201, {"published": 1, "bookmark": "1"})
        assert place.world.journal.last_seq == 1, "it is durable"
        again = await place.send("PUT", key, {"id": 1, "a": 2})
        assert (again.status, again.json["bookmark"]) == (200, "2")
        merged = await place.send("PATCH", key, {"id": 1, "b": 3})
        read = await place.send("GET", key)
        assert read.json == {"id": 1, "a": 2, "b": 3}
        assert read.headers["ETag"] == merged.headers["ETag"] != again.headers["ETag"]
        assert (await place.send("DELETE", key)).json == {"deleted": 1}
        assert (await place.send("GET", key)).status == 404
        assert (await place.send("DELETE", key)).status == 404


@pytest.mark.parametrize(
    ("method", "document", "says"),
    [
        ("PUT", {"id": 2}, "names"),
        ("PATCH", {"id": 2}, "names"),
        ("PUT", {"a": 2}, "/id"),
        ("PUT", [{"id": 1}, {"id": 1}], "one record"),
        ("PUT", [], "no message"),
        ("PUT", None, "no message"),
    ],
)
@stepped
async def test_a_body_that_is_not_the_one_message_of_the_record_is_refused(method, document, says):
    async with Place() as place:
        answer = await place.send(method, place.key(1), document)
        assert (answer.status, says in answer.json["detail"]) == (400, True), answer.body
        assert place.world.engine.seq == 0


KEYS = ["first", "7", "a/b", "100%", "+", "a+b", "=", "../up", "..", ".", "why", "?x#y", "k" * 512]


@pytest.mark.parametrize("key", KEYS)
@stepped
async def test_without_key_fields_the_address_gives_the_key_however_it_is_written(key):
    async with Place() as place:
        assert (await place.send("PUT", key, {"n": 1}, "notes")).status == 201
        assert (await place.send("GET", key, topic="notes")).json == {"n": 1}
        table = place.world.engine.topic("notes").records.table
        assert [*table.slots] == [key]
        assert (await place.send("DELETE", key, topic="notes")).status == 200


@pytest.mark.parametrize("key", ["a b", "é", "k" * 513, "\n"])
@stepped
async def test_a_key_that_can_be_none_is_refused(key):
    async with Place() as place:
        answer = await place.send("PUT", key, {"n": 1}, "notes")
        assert (answer.status, "SowKey" in answer.json["detail"]) == (400, True)


@stepped
async def test_of_several_who_have_read_one_state_one_comes_through():
    async with Place() as place:
        key = place.key(1)
        tag = (await place.send("PUT", key, {"id": 1}, If_None_Match="*")).headers["ETag"]
        lost = await place.send("PUT", key, {"id": 1, "late": 1}, If_None_Match="*")
        assert (lost.status, lost.json["reason"]) == (412, "precondition failed")
        won = await place.send("PATCH", key, {"id": 1, "a": 1}, If_Match=tag)
        assert won.status == 200
        for method in ("PUT", "PATCH", "DELETE"):
            lost = await place.send(method, key, {"id": 1, "late": 1}, If_Match=tag)
            assert (lost.status, lost.json["reason"]) == (412, "precondition failed")
        assert (await place.send("GET", key)).json == {"id": 1, "a": 1}
        weak = f'"x", W/{won.headers["ETag"]}'
        assert (await place.send("DELETE", key, If_Match=weak)).status == 200
        assert (await place.send("PUT", key, {"id": 1}, If_Match="*")).status == 412
        assert (await place.send("DELETE", key, If_Match=tag)).status == 412


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET"])
@stepped
async def test_conditions_that_cannot_be_read_change_nothing(method):
    async with Place() as place:
        key = place.key(1)
        await place.send("PUT", key, {"id": 1})
        answer = await place.send(method, key, {"id": 1, "a": 1}, If_Match="1")
        assert (answer.status, "If-Match" in answer.json["detail"]) == (400, True)
        assert place.world.engine.seq == 1


@stepped
async def test_a_reader_is_sent_that_it_has_a_record_or_that_it_has_changed():
    async with Place() as place:
        key = place.key(1)
        tag = (await place.send("PUT", key, {"id": 1})).headers["ETag"]
        assert (await place.send("GET", key, If_None_Match=f'"0", W/{tag}')).status == 304
        assert (await place.send("GET", key, If_Match=tag)).status == 200
        assert (await place.send("GET", key, If_Match='"0"')).status == 412
        head = await place.send("HEAD", key)
        assert (head.status, head.body, head.headers["ETag"]) == (200, b"", tag)


@stepped
async def test_a_record_is_named_by_the_values_of_its_key_fields():
    async with Place() as place:
        message, named = {"venue": "X,Y", "id": 5}, 'key="X,Y",5'
        assert (await place.send("PUT", named, message, "quotes")).status == 201
        merged = await place.send("PATCH", named, message | {"px": 1}, "quotes")
        read = await place.send("GET", named, topic="quotes")
        assert (read.json, read.headers["ETag"]) == (message | {"px": 1}, merged.headers["ETag"])
        other = await place.send("PUT", 'key="X,Y",6', message, "quotes")
        assert (other.status, other.json["reason"]) == (400, "bad sow key")
        short = await place.send("GET", "key=X,Y,5", topic="quotes")
        assert (short.status, "write 2 values in this order" in short.json["detail"]) == (400, True)
        assert (await place.send("DELETE", named, topic="quotes")).json == {"deleted": 1}
        for method in ("GET", "DELETE"):
            gone = await place.send(method, named, topic="quotes")
            assert (gone.status, f"no such record: '{named}'" in gone.json["detail"]) == (404, True)


@stepped
async def test_without_key_fields_a_key_is_the_publishers():
    async with Place() as place:
        for key in ("a,b", "key=key=a"):
            await place.send("PUT", key, {"is": key}, "notes")
        assert (await place.send("GET", "key=a,b", topic="notes")).json == {"is": "a,b"}
        assert (await place.send("GET", "key=a", topic="notes")).json == {"is": "key=key=a"}
        assert (await place.send("GET", "key=key=a", topic="notes")).json == {"is": "key=key=a"}


@stepped
async def test_a_numbered_request_is_done_once_and_answered_as_it_was():
    async with Place() as place:
        key = place.key(1)
        first = await place.send("PUT", key, {"id": 1, "n": 1}, Idempotency_Key="feed/1")
        assert (first.status, first.headers.get("SOW-Duplicate")) == (201, None)
        # What has changed since, the condition and even the body do not matter.
        await place.send("PUT", key, {"id": 1, "n": 9})
        more = {"Idempotency_Key": "feed/1", "If_Match": '"other"'}
        again = await place.send("PUT", key, {"id": 1, "n": 2}, **more)
        assert (again.status, again.json) == (first.status, first.json)
        assert again.headers["ETag"] == first.headers["ETag"]
        assert again.headers["SOW-Duplicate"] == "true"
        assert (await place.send("GET", key)).json == {"id": 1, "n": 9}
        merged = await place.send("PATCH", key, {"id": 1, "b": 3}, Idempotency_Key="feed/2")
        assert (merged.status, merged.json["bookmark"]) == (200, "3")
        older = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/1")
        assert (older.status, older.json) == (200, {"published": 1, "bookmark": "3"})
        assert older.headers["SOW-Duplicate"] == "true"
        gone = await place.send("DELETE", key, Idempotency_Key="feed/3")
        assert gone.json == {"deleted": 1}
        await place.send("PUT", key, {"id": 1})
        again = await place.send("DELETE", key, Idempotency_Key="feed/3")
        assert (again.status, again.json) == (200, {"deleted": 1})
        await place.send("PATCH", key, {"id": 1}, Idempotency_Key="feed/4")
        older = await place.send("DELETE", key, Idempotency_Key="feed/3")
        assert (older.status, older.json) == (200, {"deleted": 0})
        assert (await place.send("GET", key)).status == 200
        gap = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/9")
        assert (gap.status, gap.json["expected"]) == (409, 5)


@stepped
async def test_a_numbered_request_that_is_refused_uses_no_number():
    async with Place() as place:
        key = place.key(1)
        for method, document, more in (
            ("PUT", {"id": 2}, {}),
            ("PUT", {"id": 1}, {"If_Match": "*"}),
            ("DELETE", None, {}),
        ):
            answer = await place.send(method, key, document, Idempotency_Key="feed/1", **more)
            assert answer.status in (400, 404, 412)
        made = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/1")
        assert made.status == 201


@stepped
async def test_the_answer_to_a_numbered_request_survives_a_restart():
    async with Place() as place:
        key = place.key(1)
        first = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/1")
        publishers = place.world.executor.publishers
        again = NamedPublisher("feed", "feed")
        again.restore(publishers.named("feed", EVERYTHING).body())
        publishers._at_work["feed"] = again
        found = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/1")
        assert (found.status, found.json) == (201, first.json)
        assert found.headers["ETag"] == first.headers["ETag"]
        # As an earlier release has noted it.
        again.restore(
            b'{"client":"feed","seq":1,"last":{"first":1,"count":1,"answer":{"published":1}}}'
        )
        publishers._at_work["feed"] = again
        found = await place.send("PUT", key, {"id": 1}, Idempotency_Key="feed/1")
        assert (found.status, found.json) == (200, {"published": 1})


PRICES = Topic("prices", "json", keys=("/id",), series=Series(events_max=5000))
TEXTS = Topic("notes", "string", series=Series())


class EventsPlace(Served):
    def __init__(self):
        world = World(ORDERS, PRICES, TEXTS)
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
    async with EventsPlace() as place:
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
    async with EventsPlace() as place:
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
    place = EventsPlace()
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
    async with EventsPlace() as place:
        place.publish(1)
        answer = await place.events(key, topic, **requested)
        assert (answer.status, says in answer.json["detail"]) == (status, True), answer.body


@stepped
async def test_an_edit_keeps_number_and_time_and_changes_the_record_if_it_is_the_newest():
    async with EventsPlace() as place:
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
    async with EventsPlace() as place:
        place.publish(1)
        answer = await place.edit(seq, document, **headers)
        assert (answer.status, says in answer.json["detail"]) == (status, True), answer.body
        assert numbers(await place.events()) == [1]


@stepped
async def test_an_event_of_a_record_that_is_gone_is_gone():
    async with EventsPlace() as place:
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
    async with EventsPlace() as place:
        place.world.engine.publish("notes", [b"hello"], place.world.clock.now_us(), key="k")
        (row,) = (await place.events("k", "notes")).json
        assert row["d"] == "hello"
