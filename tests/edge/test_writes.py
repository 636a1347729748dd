"""Staged writes: seen by nobody until they are committed, and then all at once."""

from dataclasses import replace

import pytest

from tests.edge.arrow import (
    committed,
    staged,
)


def test_staged_rows_are_seen_by_nobody_until_they_are_committed_all_at_once(server):
    assert staged(server, "orders", [{"id": 1}, {"id": 2}]).json == {"staged": 2, "rejected": []}
    assert staged(server, "orders", [{"id": 3}], part=1).status == 200
    assert server.records("orders") == []
    start = server.get("/v1/log/extent").json["newest"]
    answer = committed(server, "orders", (0, "a", 1, 2), (1, "a", 1, 1)).json
    assert answer == {"bookmark": str(int(start) + 3), "duplicate": False}
    assert [row["id"] for row in server.records("orders")] == [1, 2, 3]


def test_a_batch_that_is_committed_again_is_a_duplicate_also_after_a_restart(server):
    staged(server, "orders", [{"id": 1}], writer="again", epoch=7)
    first = committed(server, "orders", (0, "a", 1, 1), writer="again", epoch=7).json
    server.publish("orders", {"id": 1, "later": True})
    server.stop()
    server.start()
    for epoch, more in ((7, {}), (7, {"rerun": "skip"}), (6, {"rerun": "skip"})):
        staged(server, "orders", [{"id": 1}], writer="again", epoch=epoch)
        parts = [(0, "a", 1, 1)]
        answer = committed(server, "orders", *parts, writer="again", epoch=epoch, **more).json
        assert answer == {"bookmark": first["bookmark"], "duplicate": True}
    assert server.records("orders") == [{"id": 1, "later": True}]


def test_a_batch_whose_chunks_went_with_another_one_is_not_taken_for_that_one(server):
    for attempt, first in (("a", 0), ("b", 10)):
        rows = [{"id": first}, {"id": first + 1}]
        staged(server, "orders", rows, writer="shared", epoch=7, attempt=attempt)
    one, other = [(0, "a", 1, 2)], [(0, "b", 1, 2)]
    assert committed(server, "orders", *one, writer="shared", epoch=7).json["duplicate"] is False
    for _ in range(2):
        answer = committed(server, "orders", *other, writer="shared", epoch=7)
        assert (answer.status, answer.json["reason"]) == (409, "not staged")
        assert committed(server, "orders", *one, writer="shared", epoch=7).json["duplicate"] is True
        server.stop()
        server.start()
    staged(server, "orders", [{"id": 10}], writer="shared", epoch=7, attempt="b")
    halves = (0, "b", 1, 1), (1, "b", 1, 1)
    answer = committed(server, "orders", *halves, writer="shared", epoch=7)
    assert answer.json["reason"] == "not staged"
    older = committed(server, "orders", *other, writer="shared", epoch=6, rerun="skip")
    assert older.json["duplicate"] is True
    assert [row["id"] for row in server.records("orders")] == [0, 1]


@pytest.mark.parametrize(
    ("parts", "status", "says"),
    [
        ([(0, "a", 1, 1), (0, "a", 1, 1)], 400, "a part twice"),
        ([(part, "a", 0, 0) for part in range(10_001)], 413, "10001 parts"),
        ([(0, "a" * 9000, 1, 1)], 409, "never staged"),
    ],
)
def test_a_commit_that_says_too_much_is_refused(server, parts, status, says):
    staged(server, "orders", [{"id": 1}], writer="much")
    answer = committed(server, "orders", *parts, writer="much")
    assert answer.status == status
    assert says in answer.json["detail"]
    assert len(answer.body) < 600
    assert server.records("orders") == []


def test_a_batch_of_any_size_is_applied_whole_and_outlives_the_server(server, monkeypatch):
    """More than a part may have: it is written to the journal ahead, and read from there."""
    monkeypatch.setattr("sow.server.api.batch_commit.HELD_BYTES_MAX", 1000)
    monkeypatch.setattr("sow.server.loop.group_commit.LOAD_PART_BYTES", 5000)
    engine, limits = server.server.engine, server.server.configuration.limits
    small = replace(engine.configuration, limits=replace(limits, batch_bytes_max=20_000))
    monkeypatch.setattr(engine, "configuration", small)
    assert server.get("/v1/topics/orders").json["batch_bytes"] == 20_000
    server.publish("orders", {"id": 1, "v": "old"}, {"id": -1})
    for part in range(6):
        rows = [{"id": 300 * part + at, "v": "x" * 20} for at in range(300)]
        assert staged(server, "orders", rows, writer="any", part=part).status == 200
    start = int(server.get("/v1/log/extent").json["newest"])
    with server.socket() as client:
        client.ask({"c": "subscribe", "t": "orders", "filter": "/id > 1790"})
        client.settled()
        parts = [(part, "a", 1, 300) for part in range(6)]
        answer = committed(server, "orders", *parts, writer="any").json
        assert answer == {"bookmark": str(start + 1800), "duplicate": False}
        told = [line["d"]["id"] for line in client.settled() if line["c"] == "p"]
        assert told == list(range(1791, 1800))
    before = server.records("orders")
    assert len(before) == 1801
    part_of_it = f"/v1/log?topics=orders&from={start + 700}&limit=1000"
    log = server.get(part_of_it)
    for _ in range(2):
        server.stop()
        server.start()
        assert server.records("orders") == before
        assert server.get(part_of_it).body == log.body
        assert committed(server, "orders", *parts, writer="any").json["duplicate"] is True


REPLACE = {"mode": "replace"}


def test_a_batch_may_replace_a_topic_in_one_step(server):
    server.publish("orders", {"id": 1, "v": 1}, {"id": 2, "v": 1}, {"id": 3, "v": 1})
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "orders", "opts": "oof"})
        client.settled()
        staged(server, "orders", [{"id": 2, "v": 2}, {"id": 4, "v": 2}], writer="whole")
        answer = committed(server, "orders", (0, "a", 1, 2), writer="whole", **REPLACE)
        assert answer.json["duplicate"] is False
        seen = client.settled()
    assert sorted(line["c"] for line in seen) == ["oof", "oof", "p", "p"]
    rows = sorted(server.records("orders"), key=lambda row: row["id"])
    assert rows == [{"id": 2, "v": 2}, {"id": 4, "v": 2}]
    server.publish("orders", {"id": 5})
    assert (
        committed(server, "orders", (0, "a", 1, 2), writer="whole", **REPLACE).json["duplicate"]
        is True
    )
    server.stop()
    server.start()
    assert {row["id"] for row in server.records("orders")} == {2, 4, 5}


@pytest.mark.parametrize("operation", ["delete", "delta"])
def test_rows_that_replace_a_topic_are_all_published(server, operation):
    server.publish("orders", {"id": 1})
    staged(server, "orders", [{"id": 1}, {"id": 2}], op=["publish", operation], writer=operation)
    answer = committed(server, "orders", (0, "a", 1, 2), writer=operation, **REPLACE)
    assert (answer.status, f"has the op {operation}" in answer.json["detail"]) == (400, True)
    assert server.records("orders") == [{"id": 1}]


def test_every_row_that_is_left_out_is_sent(server):
    values = [{"id": 1}, *({"no": n} for n in range(1_200))]
    answer = staged(server, "orders", values, writer="many", rejects="skip").json
    assert answer["staged"] == 1
    assert [row["index"] for row in answer["rejected"]] == list(range(1, 1_201))
    refused = staged(server, "orders", values, writer="many").json
    assert len(refused["rejected"]) == 1_000


def test_the_servers_own_topics_are_not_listed_and_not_written_to(server):
    assert not [t for t in server.get("/v1/topics").json if t["name"].startswith("/sow/")]
    assert server.publish("/sow/commits", {"writer": "w"}).json["reason"] == "invalid topic"
    staged(server, "orders", [{"id": 1}], writer="seen", epoch=3)
    committed(server, "orders", (0, "a", 1, 1), writer="seen", epoch=3)
    (found,) = server.records("/sow/commits", filter="/writer = 'seen'")
    assert (found["epoch"], found["rows"]) == (3, 1)
