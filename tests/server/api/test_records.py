"""The handlers under /v1: what they answer, when, and what they refuse."""

import asyncio
import json
import threading

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Topic
from sow.core.security_definitions import Allow
from sow.engine import bulk_delete, queries
from sow.server.api import records
from sow.server.api.record_resource import RecordHandler
from sow.server.api.records import (
    RecordsHandler,
)
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.server.api.topics import TopicsHandler
from sow.server.loop import scheduler as turns_of_work
from tests.server.stand_ins import (
    ORDERS,
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    stepped,
    turns,
)

NOTES = Topic("notes", "string")
RECORDS = "/v1/topics/{topic}/records"


class Place(Served):
    """The HTTP door of a world."""

    def __init__(self, authn=None):
        world = World(ORDERS, NOTES)
        past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        snapshots = SnapshotHandler(world.runtime, world.engine, past)
        door = RecordsHandler(world.runtime, world.executor, past, snapshots)
        record = RecordHandler(world.runtime, world.executor)
        super().__init__(
            world,
            *routes_to(TopicsHandler(world.runtime, world.engine), door, record),
            authn=authn,
        )

    async def publish(self, body, topic="orders", query="", method="POST"):
        headers = {"Content-Type": "application/json"}
        return await self.ask(method, f"/v1/topics/{topic}/records{query}", body, headers)


@stepped
async def test_a_publish_is_answered_when_it_is_on_disk():
    async with Place() as place:
        answer = await place.publish(b'[{"id":1},{"id":2}]')
        assert (answer.status, answer.json) == (200, {"published": 2, "bookmark": "2"})
        assert place.world.journal.last_seq == 2
        assert (await place.publish(b'{"id":3}', query="?ack=processed")).json["published"] == 1
        assert (await place.publish(b'{"id":4}', query="?ack=soon")).status == 400
        assert (await place.publish(b'{"id":1,"px":5}', method="PATCH")).status == 200


@stepped
async def test_a_large_publish_lets_others_in_and_is_finished_when_its_client_goes(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    async with Place() as place:
        table = place.world.engine.topic("orders").records.table
        body = b"[" + b",".join(b'{"id":%d}' % at for at in range(10_000)) + b"]"
        headers = {"Content-Type": "application/json"}
        socket = await place.begin("POST", "/v1/topics/orders/records", body, headers)
        while not len(table):
            await asyncio.sleep(0)
        assert len(table) < 10_000
        socket.protocol.connection_lost(None)
        await asyncio.sleep(0)
        answer = await place.publish(b'{"id":999,"last":1}')
        assert answer.json["bookmark"] == "10001", "what was left came first"
        assert len(table) == 10_000
        assert place.world.journal.last_seq == 10_001


async def numbered(place, key, body, method="POST", query=""):
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    answer = await place.ask(method, f"/v1/topics/orders/records{query}", body, headers)
    return answer.status, answer.json, answer.headers.get("SOW-Duplicate")


@stepped
async def test_a_request_with_a_number_is_done_once_and_answered_as_it_was():
    async with Place() as place:
        told = {"published": 2, "bookmark": "2"}
        assert await numbered(place, "feed/1", b'[{"id":1},{"id":2}]') == (200, told, None)
        assert await numbered(place, "feed/1", b'[{"id":8},{"no":9}]') == (200, told, "true")
        straddles = {"published": 3, "bookmark": "3", "applied": 1}
        body = b'[{"no":1},{"id":2},{"id":3}]'
        assert await numbered(place, "feed/1", body) == (200, straddles, None)
        assert await numbered(place, "feed/1", body) == (200, straddles, "true")
        await place.publish(b'{"id":4}')
        older = {"published": 2, "bookmark": "4"}
        assert await numbered(place, "feed/1", b'[{"id":1},{"id":2}]') == (200, older, "true")
        by_id = "?filter=/id%3D1"
        assert await numbered(place, "feed/4", b"", "DELETE", by_id) == (200, {"deleted": 1}, None)
        await place.publish(b'{"id":1}')
        again = (200, {"deleted": 1}, "true")
        assert await numbered(place, "feed/4", b"", "DELETE", by_id) == again
        assert (await numbered(place, "feed/5", b'{"id":1,"n":1}', "PATCH"))[0] == 200
        older = (200, {"deleted": 0}, "true")
        assert await numbered(place, "feed/4", b"", "DELETE", by_id) == older
        held = (await place.get("/v1/topics/orders/records")).json
        assert sorted(record["id"] for record in held) == [1, 2, 3, 4]


@stepped
async def test_a_request_beyond_the_next_number_or_refused_uses_none():
    async with Place() as place:
        status, problem, _ = await numbered(place, "feed/2", b'{"id":1}')
        assert (status, problem["reason"], problem["expected"]) == (409, "sequence gap", 1)
        status, problem, _ = await numbered(place, "feed/1", b'[{"id":1},{"no":2}]')
        assert (status, problem["index"]) == (400, 1)
        assert (await numbered(place, "feed/1", b'{"id":1}'))[0] == 200
        status, problem, _ = await numbered(place, "feed/1", b'[{"id":1},{"no":2}]')
        assert (status, problem["index"]) == (400, 1), "the index is that in the request"
        assert (await numbered(place, "feed/2", b"", "DELETE", "?key=9"))[0] == 404
        again = {"deleted": 1}
        assert await numbered(place, "feed/2", b"", "DELETE", "?key=1") == (200, again, None)


@pytest.mark.parametrize(
    "key",
    ["", "feed", "/1", "feed/0", "feed/x", "feed/01", "%zz/1", "%ff/1", "a b/1", f"f/{2**63}"],
)
@stepped
async def test_what_is_no_name_with_a_number_is_refused(key):
    async with Place() as place:
        assert (await numbered(place, key, b'{"id":1}'))[0] == 400
        assert (await place.get("/v1/topics/orders/records")).json == []


@stepped
async def test_the_last_slash_ends_a_name_which_may_be_any_text():
    async with Place() as place:
        assert (await numbered(place, "a/%C3%BC%2F/1", b'{"id":1}'))[0] == 200
        (held,) = (await place.get("/v1/topics/%2Fsow%2Fpublishers/records")).json
        assert (held["client"], held["seq"]) == ("a/\u00fc/", 1)


@stepped
async def test_a_numbered_request_whose_client_goes_is_finished_before_it_comes_again(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    async with Place() as place:
        table = place.world.engine.topic("orders").records.table
        body = b"[" + b",".join(b'{"id":%d}' % at for at in range(5_000)) + b"]"
        headers = {"Content-Type": "application/json", "Idempotency-Key": "feed/1"}
        socket = await place.begin("POST", "/v1/topics/orders/records", body, headers)
        while not len(table):
            await asyncio.sleep(0)
        socket.protocol.connection_lost(None)
        answer = await numbered(place, "feed/1", body)
        assert answer == (200, {"published": 5_000, "bookmark": "5000"}, "true")
        assert place.world.journal.last_seq == 5_000


@stepped
async def test_the_first_bad_message_refuses_all_and_is_named():
    async with Place() as place:
        answer = await place.publish(b'[{"id":1},{"no":2}]')
        assert (answer.status, answer.json["index"]) == (400, 1)
        assert (await place.get("/v1/topics/orders/records")).json == []


@stepped
async def test_a_query_says_what_matched_what_served_it_and_its_moment():
    async with Place() as place:
        await place.publish(b'[{"id":1,"px":5},{"id":2,"px":6},{"id":3,"px":7}]')
        path = "/v1/topics/orders/records?filter=/px%20%3E%205&order_by=/id%20DESC&top_n=1"
        answer = await place.get(path)
        assert answer.json == [{"id": 3, "px": 7}]
        assert (answer.headers["SOW-Matches"], answer.headers["SOW-Bookmark"]) == ("2", "3")
        lines = await place.get(path + "&select=/px&meta=true", Accept="application/x-ndjson")
        assert lines.rows[0]["d"] == {"px": 7}
        assert lines.headers["Content-Type"].startswith("application/x-ndjson")
        explained = (await place.get(path + "&explain=true")).json
        assert explained["terms"]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("filter=/px%20%3E", 400, "position"),
        ("top_n=x", 400, "whole number"),
        ("wrong=1", 400, "no parameter"),
    ],
)
@stepped
async def test_what_cannot_be_requested_is_a_problem_with_a_sentence(query, status, says):
    async with Place() as place:
        answer = await place.get(f"/v1/topics/orders/records?{query}")
        assert (answer.status, says in answer.json["detail"]) == (status, True)


@stepped
async def test_large_answers_that_wait_for_their_clients_are_bounded(monkeypatch):
    monkeypatch.setattr(records, "ANSWER_ROWS_MAX", 1500)
    async with Place() as place:
        await place.publish(json.dumps([{"id": at} for at in range(1000)]).encode())
        path = "/v1/topics/orders/records"
        requested = (place.get(path), place.get(path), place.get(path + "?top_n=500"))
        first, second, short = await asyncio.gather(*requested)
        assert (len(first.json), len(short.json)) == (1000, 500)
        assert (second.status, second.json["reason"]) == (503, "busy")
        assert second.headers["Retry-After"] == "1"
        assert len((await place.get(path)).json) == 1000


@stepped
async def test_a_record_has_an_entity_tag_that_changes_with_it():
    async with Place() as place:
        await place.publish(b'{"id":1}')
        (key,) = [row["k"] for row in (await place.get("/v1/topics/orders/records?meta=true")).json]
        path = f"/v1/topics/orders/records/{key}"
        first = await place.get(path)
        assert first.json == {"id": 1}
        known = {"If-None-Match": first.headers["ETag"]}
        assert (await place.get(path, **known)).status == 304
        await place.publish(b'{"id":1,"px":2}')
        assert (await place.get(path, **known)).json == {"id": 1, "px": 2}
        assert (await place.get("/v1/topics/orders/records/7")).status == 404


@stepped
async def test_records_are_deleted_by_filter_key_or_body_and_by_one_of_them():
    async with Place() as place:
        await place.publish(b'[{"id":1},{"id":2},{"id":3}]')
        path = "/v1/topics/orders/records"
        assert (await place.ask("DELETE", f"{path}?filter=/id%20%3D%201")).json == {"deleted": 1}
        typed = {"Content-Type": "application/json"}
        assert (await place.ask("DELETE", path, b'[{"id":2}]', typed)).json == {"deleted": 1}
        assert (await place.ask("DELETE", path)).status == 400
        assert (await place.get(path)).json == [{"id": 3}]


@stepped
async def test_a_topic_is_described_and_one_that_is_not_there_is_not():
    async with Place() as place:
        names = [topic["name"] for topic in (await place.get("/v1/topics")).json]
        assert {"orders", "notes"} <= set(names)
        assert (await place.get("/v1/topics/orders")).json["kind"] == "topic"
        missing = await place.get("/v1/topics/ordres")
        assert (missing.status, "did you mean orders" in missing.json["detail"]) == (404, True)


@stepped
async def test_a_long_delete_lets_others_by_and_ends_with_its_client(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(bulk_delete, "RECORDS_AT_ONCE", 2)
    async with Place() as place:
        records = place.world.engine.topic("orders").records
        await place.publish(b"[" + b",".join(b'{"id":%d}' % at for at in range(100)) + b"]")
        socket = await place.begin("DELETE", "/v1/topics/orders/records?filter=/id>9")
        left = len(records.table)
        assert 10 < left < 100
        await place.publish(b'{"id":99,"new":true}')
        assert 10 < len(records.table) < left
        socket.protocol.connection_lost(None)
        await turns(20)
        left = len(records.table)
        assert left > 10, "it was given up"
        await turns(20)
        assert len(records.table) == left
        answer = await place.ask("DELETE", "/v1/topics/orders/records?filter=/id>9")
        assert answer.json == {"deleted": left - 10}
        many = b"[" + b",".join(b'{"id":%d}' % (at % 10) for at in range(30)) + b"]"
        assert (await place.publish(many, method="DELETE")).json == {"deleted": 10}


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@stepped
async def test_who_loses_his_rights_while_others_come_first_changes_nothing(monkeypatch, method):
    here = authenticator_of(
        asking(Allow("orders", read=True, write=True, delete=True)), lambda _by: Anybody()
    )
    async with Place(here) as place:
        place.world.publish(b'{"id":1}')
        atomic = place.world.engine.atomic

        def waiting(_name):
            here.swap_security(here.read(asking()))
            yield

        monkeypatch.setattr(atomic, "finish_before", waiting)
        headers = {"Authorization": "Bearer ann", "Content-Type": "application/json"}
        body = b'{"id":1}' if method == "DELETE" else b'{"id":2}'
        answer = await place.ask(method, "/v1/topics/orders/records", body, headers)
        assert (answer.status, answer.json["reason"]) == (503, "busy")
        assert len(place.world.engine.topic("orders").records.table) == 1


class Held:
    """The disk of a place, which takes nothing until it is let go."""

    def __init__(self, place):
        self._append, self._free = place.world.journal.append, threading.Event()
        place.world.journal.append = self._wait
        self.count = 0

    def _wait(self, entries):
        self.count += 1
        self._free.wait(30)
        self._append(entries)

    def let_go(self):
        self._free.set()


def requested_for(place, query):
    return asyncio.ensure_future(place.get(f"/v1/topics/orders/records?{query}"))


CONCERNED = [
    "filter=/px%20=%205",
    "filter=/px%20=%206",
    "filter=/id%20=%204",
    "filter=/id%20=%203",
    "order_by=/id&top_n=1",
    "filter=/px%20=%201&order_by=/id&meta=true",
]


@stepped
async def test_an_answer_waits_for_the_disk_only_if_what_is_on_its_way_there_concerns_it():
    async with Place() as place:
        await place.publish(
            b'[{"id":1,"px":1},{"id":2,"px":5},{"id":3,"px":3},{"id":9,"px":9},{"id":7,"px":8}]'
        )
        disk = Held(place)
        publish = place.world.publish
        publish(b'{"id":2,"px":6}', b'{"id":4,"px":4}', b'{"id":1,"px":1,"new":true}')
        run_to_completion(
            place.world.engine.removal("orders", np.array([2]), place.world.clock.now_us())
        )
        place.world.runtime.wake()
        waiting = [requested_for(place, query) for query in CONCERNED]
        free = await requested_for(place, "filter=/px%20IN%20(8,9)&order_by=/px%20DESC")
        assert [row["id"] for row in free.json] == [9, 7]
        assert free.headers["SOW-Bookmark"] == "5", "as of what is durable"
        await turns(50)
        assert not any(one.done() for one in waiting)
        disk.let_go()
        answers = [(await one).json for one in waiting]
        assert [[row.get("id", row.get("d", {}).get("id")) for row in one] for one in answers] == [
            [], [2], [4], [], [1], [1],
        ]  # fmt: skip
        free = await requested_for(place, "filter=/px%20IN%20(8,9)")
        assert free.headers["SOW-Bookmark"] == "9"


@stepped
async def test_where_very_much_is_on_its_way_an_answer_waits_for_it(monkeypatch):
    monkeypatch.setattr(queries, "JUDGED_MAX", 3)
    async with Place() as place:
        await place.publish(b'{"id":1,"px":1}')
        disk = Held(place)
        place.world.publish(*(b'{"id":%d}' % at for at in range(2, 6)))
        place.world.runtime.wake()
        waiting = requested_for(place, "filter=/px%20=%201")
        await turns(50)
        assert not waiting.done()
        disk.let_go()
        assert (await waiting).json == [{"id": 1, "px": 1}]


@stepped
async def test_a_client_that_goes_in_any_moment_of_a_grouped_query_leaves_nothing():
    async with Place() as place:
        await place.publish(b'[{"id":1,"sym":"A"},{"id":2,"sym":"B"}]')
        memory = place.world.executor.subscriptions.aggregations.memory
        path = "/v1/topics/orders/records?projection=COUNT(/id)+AS+/n,/sym&grouping=/sym"
        held = set()
        for rounds in range(30):
            socket = await place.begin("GET", path, rounds=rounds)
            held.add(memory.used)
            socket.protocol.connection_lost(None)
            await turns(60)
            assert memory.used == 0, f"gone after {rounds} rounds"
        assert len(held) > 1, "some had groups when they went"


@stepped
async def test_a_record_is_named_by_its_key():
    async with Place() as place:
        await place.publish(b'[{"id":1},{"id":2}]')
        path = "/v1/topics/orders/records?key=2"
        assert (await place.ask("GET", path)).json == [{"id": 2}]
        assert (await place.ask("GET", path + "&filter=/id%20=%201")).status == 404
        assert (await place.ask("DELETE", path)).json == {"deleted": 1}
        for method in ("GET", "DELETE"):
            gone = await place.ask(method, path)
            assert (gone.status, "no such record" in gone.json["detail"]) == (404, True)
        both = await place.ask("GET", path + "&keys=7")
        assert (both.status, "not both" in both.json["detail"]) == (400, True)


OF_ORDERS = "/v1/topics/orders/records"


async def posted(place, number, seq=None):
    headers = {"Content-Type": "application/json"}
    headers |= {} if seq is None else {"Idempotency-Key": f"feed/{seq}"}
    return await place.ask("POST", OF_ORDERS, b'{"id":%d}' % number, headers)


@stepped
async def test_one_without_a_number_is_done_each_time():
    async with Place() as place:
        answers = [await posted(place, 1) for _ in range(2)]
        assert [one.json["bookmark"] for one in answers] == ["1", "2"]
        assert not any("SOW-Duplicate" in one.headers for one in answers)


@stepped
async def test_a_number_is_done_once_and_its_repeat_gets_the_answer_of_then():
    async with Place() as place:
        first = await posted(place, 1, 1)
        await posted(place, 2)
        again = await posted(place, 1, 1)
        assert (again.status, again.json) == (first.status, first.json)
        assert again.headers["SOW-Duplicate"] == "true"
        assert (await posted(place, 3, 3)).status == 409, "2 is missing"
        second = await posted(place, 4, 2)
        older = await posted(place, 1, 1)
        assert older.json["bookmark"] == second.json["bookmark"], "no answer of then is kept"
        assert len((await place.get(OF_ORDERS)).json) == 3
