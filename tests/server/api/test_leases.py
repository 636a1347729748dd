"""Leases over HTTP, at a server: what is answered, what waits, and what is refused."""

import asyncio
import socket
import time

import aiohttp
import pytest

from sow.server.api import leases
from tests.cases import all_cases
from tests.edge.serving import configuration, served

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>files</Name><MessageType>binary</MessageType></Topic>
<Queue><Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
</Queue>
<Queue><Name>once</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<Semantics>at-most-once</Semantics></Queue>
<Queue><Name>reads</Name><MessageType>binary</MessageType><UnderlyingTopic>files</UnderlyingTopic>
</Queue>
"""
pytestmark = pytest.mark.edge
running = served(configuration(TOPICS), checks=False)
JOBS = "/v1/topics/jobs/lease"


@pytest.fixture
def server(running):
    for queue in ("jobs", "once", "reads"):
        while taken := lease(running, f"/v1/topics/{queue}/lease?n=500"):
            for one in taken:
                running.request("DELETE", f"/v1/topics/{queue}/lease/{one['lease']}")
    yield running
    assert running.errors == []


def lease(server, path=JOBS):
    answer = server.request("POST", path)
    assert answer.status == 200, answer.json
    return answer.json


def test_a_lease_is_answered_with_all_that_its_holder_needs(server):
    bookmark = server.publish("orders", {"id": 1}).json["bookmark"]
    (one,) = lease(server)
    assert (one["bm"], one["d"], one["deliveries"]) == (bookmark, {"id": 1}, 1)
    assert one["lease"].startswith(f"{bookmark}-")
    assert one["until"].endswith("Z")
    assert one["k"] == server.get("/v1/topics/orders/records?meta=true").json[0]["k"]
    assert lease(server) == []


def test_an_acknowledgement_is_taken_once(server):
    server.publish("orders", {"id": 1})
    (one,) = lease(server)
    gone = server.request("DELETE", f"{JOBS}/{one['lease']}")
    assert (gone.status, gone.body) == (204, b"")
    assert server.request("DELETE", f"{JOBS}/{one['lease']}").status == 404
    assert lease(server) == []


def test_a_lease_is_given_back_or_kept_for_longer(server):
    server.publish("orders", {"id": 1})
    (one,) = lease(server)
    path = f"{JOBS}/{one['lease']}"
    assert server.request("PATCH", path, json={"extend": "1h"}).status == 204
    assert server.request("PATCH", path, json={"cancel": True}).status == 204
    assert server.request("PATCH", path, json={"cancel": True}).status == 404
    (again,) = lease(server)
    assert (again["bm"], again["deliveries"]) == (one["bm"], 1)
    assert again["lease"] != one["lease"]


def test_a_request_waits_for_a_message_and_no_longer(server):
    async def waiting():
        async with aiohttp.ClientSession(server.url) as session:
            first = asyncio.create_task(session.post(f"{JOBS}?n=2&wait=30"))
            while not server.call(waiters):
                await asyncio.sleep(0.01)
            await session.post("/v1/topics/orders/records", json=[{"id": 1}, {"id": 2}, {"id": 3}])
            return await (await first).json()

    def waiters():
        return len(server.server.executor.queues.find("jobs").queue.consumers)

    assert [one["d"]["id"] for one in asyncio.run(waiting())] == [1, 2]
    assert server.request("POST", f"{JOBS}?n=9&wait=0.01").json[0]["d"] == {"id": 3}
    assert lease(server, f"{JOBS}?wait=0.01") == []


def test_a_client_that_leaves_while_it_waits_holds_up_nothing(server):
    def waits():
        return len(server.server.executor.queues.find("jobs").queue.consumers) > 0

    def until(condition):
        end = time.monotonic() + 60
        while server.call(waits) != condition:
            assert time.monotonic() < end
            time.sleep(0.01)

    with socket.create_connection(server.address) as client:
        head = f"POST {JOBS}?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
        client.sendall(head.encode())
        until(True)
    until(False)
    server.publish("orders", {"id": 1})
    assert len(lease(server)) == 1


def test_at_most_once_there_is_nothing_to_acknowledge(server):
    server.publish("orders", {"id": 1})
    (one,) = lease(server, "/v1/topics/once/lease")
    assert server.request("DELETE", f"/v1/topics/once/lease/{one['lease']}").status == 404


def test_messages_that_are_no_json_say_how_they_are_written(server):
    server.request("PUT", "/v1/topics/files/records/a", data=b"\x00\xff")
    (one,) = lease(server, "/v1/topics/reads/lease")
    assert (one["d"], one["enc"], one["k"]) == ("AP8=", "base64", "a")


def test_a_queue_is_described_as_one(server):
    before = server.get("/v1/topics/jobs").json["leased"]
    server.publish("orders", {"id": 1}, {"id": 2})
    lease(server)
    described = server.get("/v1/topics/jobs").json
    assert described["kind"] == "queue"
    assert (described["underlying"], described["waiting"]) == ("orders", 1)
    assert described["leased"] == before + 1
    assert [row["id"] for row in server.get("/v1/topics/jobs/records").json] == [2]


@all_cases(("path", "status", "said"), [
        ("/v1/topics/orders/lease", 400, "is no queue, so nothing of it is leased"),
        ("/v1/topics/nope/lease", 404, "no topic"),
        (f"{JOBS}?n=0", 400, "lease 1 to 500"),
        (f"{JOBS}?n=501", 400, "lease 1 to 500"),
        (f"{JOBS}?n=x", 400, "whole number"),
        (f"{JOBS}?wait=61", 400, "waits up to 60 seconds"),
        (f"{JOBS}?wait=-1", 400, "number of seconds"),
        (f"{JOBS}?filter=1", 400, "filter"),
    ])  # fmt: skip
def test_what_cannot_be_leased_is_refused(server, path, status, said):
    answer = server.request("POST", path)
    assert (answer.status, said in answer.json["detail"]) == (status, True), answer.json


@all_cases(("path", "said"), [
        ("stream", "sow_and_subscribe is not for queues"),
        ("records?as_of=0", "takes no as_of"),
        ("records?projection=COUNT(1)%20AS%20/n&grouping=/id", "takes no projection"),
    ])  # fmt: skip
def test_what_is_not_for_queues_is_refused_by_name(server, path, said):
    answer = server.get(f"/v1/topics/jobs/{path}")
    assert (answer.status, said in answer.json["detail"]) == (400, True), answer.json


@all_cases("lease_id", ["x", "1", "1-", "-1", "1-00", "session%20s1", "9999999999999999999-a"])
def test_what_is_no_lease_is_not_found(server, lease_id):
    for method, more in (("DELETE", {}), ("PATCH", {"json": {"cancel": True}})):
        answer = server.request(method, f"{JOBS}/{lease_id}", **more)
        assert (answer.status, answer.json["reason"]) == (404, "not found")


@all_cases(("body", "said"), [
        (b"", "no change of a lease"),
        (b"[]", "no change of a lease"),
        (b"{}", "given back or kept"),
        (b'{"cancel":false}', "given back or kept"),
        (b'{"cancel":true,"extend":"1s"}', "given back or kept"),
        (b'{"extend":30}', "no change of a lease"),
        (b'{"extend":"soon"}', "extend is 'soon'"),
        (b'{"extend":"0s"}', "up to a day"),
        (b'{"extend":"25h"}', "up to a day"),
        (b'{"more":1}', "no change of a lease"),
    ])  # fmt: skip
def test_what_is_no_change_is_refused_and_changes_nothing(server, body, said):
    server.publish("orders", {"id": 1})
    (one,) = lease(server)
    answer = server.request("PATCH", f"{JOBS}/{one['lease']}", data=body)
    assert (answer.status, said in answer.json["detail"]) == (400, True), answer.json
    assert server.request("DELETE", f"{JOBS}/{one['lease']}").status == 204


def test_an_id_is_too_long_to_be_guessed():
    assert leases.ID_BYTES >= 16
