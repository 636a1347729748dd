"""Consumers of the log: what is remembered of a reader, and kept for it."""

import asyncio
import json


def by_hand(server):
    """Until the server starts again its checkpointer does what a test says, and nothing beside it
    every second."""

    async def end(task):
        task.cancel()
        await asyncio.wait((task,))

    server.wait(end(server.server.checkpointer._task))


def test_what_a_consumer_has_not_read_is_kept(server):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = int(server.get("/v1/log/extent").json["newest"])
    body = json.dumps({"bookmark": str(newest - 1)}).encode()
    server.request("PUT", "/v1/log/consumers/slow", data=body)
    checkpointer = server.server.checkpointer
    by_hand(server)
    requested = []
    checkpointer._trim = lambda _now_us, keep_from_seq, _beyond: requested.append(keep_from_seq)
    for name in checkpointer._checkpoints:
        server.wait(checkpointer.write(name))
    server.wait(checkpointer._drop_old())
    assert requested == [newest]
    server.request("DELETE", "/v1/log/consumers/slow")
    server.wait(checkpointer._drop_old())
    assert requested[1] > newest


def test_the_log_waits_for_no_consumer_while_the_disk_is_short(server, monkeypatch, caplog):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = int(server.get("/v1/log/extent").json["newest"])
    body = json.dumps({"bookmark": str(newest - 1)}).encode()
    server.request("PUT", "/v1/log/consumers/slow", data=body)
    checkpointer, journal = server.server.checkpointer, server.server.runtime.journal
    for name in checkpointer._checkpoints:
        server.wait(checkpointer.write(name))
    assert server.call(checkpointer._keep_from_seq) == newest
    monkeypatch.setattr(journal, "is_strained", lambda: True)
    assert [server.call(checkpointer._keep_from_seq) > newest for _ in range(2)] == [True, True]
    assert len([line for line in caplog.messages if "no longer kept for them (slow)" in line]) == 1


def test_a_consumer_that_was_overtaken_is_answered_409(server, monkeypatch):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = int(server.get("/v1/log/extent").json["newest"])
    body = json.dumps({"bookmark": str(newest - 1)}).encode()
    assert server.request("PUT", "/v1/log/consumers/late", data=body).status == 200
    (found,) = (one for one in server.get("/v1/log/consumers").json if one["name"] == "late")
    assert found.pop("idle_s") >= 0
    assert found == {"name": "late", "bookmark": str(newest - 1), "behind": 1}
    monkeypatch.setattr(server.server.runtime.journal, "_base_seq", newest)
    answer = server.request("PUT", "/v1/log/consumers/late", data=body)
    assert (answer.status, answer.json["reason"]) == (409, "consumer expired")
    body = json.dumps({"bookmark": str(newest)}).encode()
    assert server.request("PUT", "/v1/log/consumers/late", data=body).status == 200
