"""Snapshots: one moment of a topic in parts, the past, and how many are kept."""

import json
from dataclasses import replace

import pytest

from tests.edge.arrow import documents, rows
from tests.edge.serving import records


def taken(server, **requested):
    query = "&".join(f"{name}={value}" for name, value in requested.items())
    return server.request("POST", f"/v1/snapshots?{query}")


def parts_of(server, snapshot):
    return [
        documents(server.get(f"/v1/snapshots/{snapshot['snapshot']}?part={part}"))
        for part in range(snapshot["parts"])
    ]


def test_a_snapshot_stays_what_it_was_and_is_split_by_key(server):
    server.publish("orders", *({"id": n} for n in range(100)))
    snapshot = taken(server, topic="orders", parts=3).json
    before = parts_of(server, snapshot)
    server.publish("orders", *({"id": n, "new": True} for n in range(100)))
    server.request("DELETE", records("orders", filter="/id < 50"))
    assert parts_of(server, snapshot) == before
    assert all(before)
    assert sorted(row["id"] for part in before for row in part) == list(range(100))
    assert snapshot["rows"] == 100


def test_a_part_has_the_columns_and_fields_that_are_requested(server):
    server.publish("orders", {"id": 1, "px": 2.5, "leg": {"qty": 3, "side": "B"}})
    name = taken(server, topic="orders", filter="/id%20=%201").json["snapshot"]

    def part(query):
        return rows(server.get(f"/v1/snapshots/{name}?{query}"))

    assert part("columns=value&select=/px") == [{"value": '{"px":2.5}'}]
    assert part("columns=value&select=-/leg/side") == [
        {"value": '{"id":1,"px":2.5,"leg":{"qty":3}}'}
    ]
    (row,) = part("columns=op,bookmark&select=-/")
    assert list(row) == ["bookmark", "op"]


def narrow(server, monkeypatch, **limits):
    configuration = server.server.engine.configuration
    narrowed = replace(configuration, limits=replace(configuration.limits, **limits))
    monkeypatch.setattr(server.server.engine, "configuration", narrowed)


def fill(server, number):
    server.publish("orders", *({"id": at, "k": number, "pad": "z" * 1000} for at in range(10)))


def test_what_the_present_has_no_more_is_bounded_when_the_past_is_requested_for(
    server, monkeypatch
):
    fill(server, 0)
    moment = server.get("/v1/log/extent").json["newest"]
    fill(server, 1)
    assert taken(server, topic="orders", as_of=moment).status == 200
    narrow(server, monkeypatch, snapshot_bytes_max=4 * 5_000)
    answer = taken(server, topic="orders", as_of=moment)
    assert (answer.status, answer.json["reason"]) == (413, "too large")
    assert "Limits/SnapshotMemory" in answer.json["detail"]
    monkeypatch.setattr("sow.sessions.queries.past_states.AS_OF_WAITING_MAX", -1)
    answer = taken(server, topic="orders", as_of=moment)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_a_snapshot_of_a_series_has_the_newest_events_of_each_record(server):
    for number in range(4):
        server.publish("prices", {"id": 1, "n": number}, {"id": 2, "n": number})
    server.publish("prices", {"id": 3, "n": 0})
    snapshot = taken(server, topic="prices", last=3, parts=2, filter="/n%20%3E%200").json
    server.publish("prices", {"id": 1, "n": 9})
    assert snapshot["rows"] == 6
    found = [row for part in parts_of(server, snapshot) for row in part]
    assert sorted((row["id"], row["n"]) for row in found) == [
        (id_, number) for id_ in (1, 2) for number in (1, 2, 3)
    ]
    name = snapshot["snapshot"]
    (first, *_) = [
        row for part in range(2) for row in rows(server.get(f"/v1/snapshots/{name}?part={part}"))
    ]
    events = server.get(f"/v1/topics/prices/records/{first['key']}/events").json
    by_seq = {event["seq"]: event for event in events}
    assert json.loads(first["value"]) == by_seq[first["bookmark"]]["d"]


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        ({"topic": "orders", "last": 2}, "orders is no series"),
        ({"topic": "prices", "last": 0}, "write 1 or more"),
        ({"topic": "prices", "last": 10_001}, "over 10000"),
        ({"topic": "prices", "last": 2, "as_of": "1"}, "last is of the present"),
    ],
)
def test_events_that_cannot_be_snapped_are_refused(server, requested, said):
    answer = taken(server, **requested)
    assert (answer.status in (400, 413), said in answer.json["detail"]) == (True, True)
