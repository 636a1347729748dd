"""Snapshots: one moment of a topic in parts, the past, and how many are kept."""

from dataclasses import replace

from sow.server.api.snapshots import SnapshotHandler
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


def test_a_snapshot_may_be_of_some_records(server):
    server.publish("orders", *({"id": n} for n in range(10)))
    snapshot = taken(server, topic="orders", filter="/id%20%3E%207").json
    assert [row["id"] for row in parts_of(server, snapshot)[0]] == [8, 9]


def test_a_snapshot_that_was_let_go_is_not_found(server):
    snapshot = taken(server, topic="orders").json["snapshot"]
    assert server.request("DELETE", f"/v1/snapshots/{snapshot}").status == 200
    assert server.get(f"/v1/snapshots/{snapshot}").status == 404


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


def test_a_part_that_is_not_there_is_refused(server):
    snapshot = taken(server, topic="orders", parts=2).json["snapshot"]
    assert server.get(f"/v1/snapshots/{snapshot}?part=2").status == 400


def test_the_state_at_a_bookmark_is_what_a_query_then_said(server):
    moments = {}

    def note():
        answer = server.get(records("orders"))
        moments[answer.headers["SOW-Bookmark"]] = sorted(answer.json, key=lambda row: row["id"])

    server.publish("orders", {"id": 1, "v": 1}, {"id": 2, "v": 1})
    note()
    server.publish("orders", {"id": 1, "v": 2}, {"id": 3, "v": 1})
    note()
    server.request("DELETE", records("orders", filter="/id = 2"))
    note()
    server.publish("orders", {"id": 2, "v": 3})
    note()
    for bookmark, then in moments.items():
        snapshot = taken(server, topic="orders", as_of=bookmark).json
        assert snapshot["bookmark"] == bookmark
        (found,) = parts_of(server, snapshot)
        assert sorted(found, key=lambda row: row["id"]) == then


def narrow(server, monkeypatch, **limits):
    configuration = server.server.engine.configuration
    narrowed = replace(configuration, limits=replace(configuration.limits, **limits))
    monkeypatch.setattr(server.server.engine, "configuration", narrowed)


def fill(server, number):
    server.publish("orders", *({"id": at, "k": number, "pad": "z" * 1000} for at in range(10)))


def statuses(server, snapshots):
    return [server.get(f"/v1/snapshots/{one['snapshot']}").status for one in snapshots]


def look_after(server):
    door = server.server._handlers[SnapshotHandler]

    async def look():
        door._look_after(server.server.runtime.now_us() + 2_000_000)
        if door._bounding is not None:
            await door._bounding

    server.wait(look())


def test_snapshots_whose_records_have_changed_go_the_longest_unused_first(server, monkeypatch):
    narrow(server, monkeypatch, snapshot_bytes_max=4 * 25_000)
    fill(server, 0)
    first, second = (taken(server, topic="orders").json for _ in range(2))
    fill(server, 1)
    third = taken(server, topic="orders", parts=3).json
    assert statuses(server, [third, second, first]) == [200, 200, 200]
    fill(server, 2)
    look_after(server)
    assert statuses(server, [first, second, third]) == [200, 200, 404]
    fill(server, 3)
    fourth = taken(server, topic="orders").json
    assert statuses(server, [first, second, fourth]) == [200, 200, 200]


def test_snapshots_whose_records_are_as_they_were_cost_nothing(server, monkeypatch):
    narrow(server, monkeypatch, snapshot_bytes_max=4 * 5_000)
    fill(server, 0)
    found = [taken(server, topic="orders").json for _ in range(20)]
    for _ in range(5):
        server.publish("orders", {"id": "another", "pad": "z" * 1000})
        server.publish("orders", {"id": 1, "pad": "z" * 1000})
    look_after(server)
    assert statuses(server, found[-4:]) == [200] * 4


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
    monkeypatch.setattr("sow.server.api.as_of_queries.AS_OF_WAITING_MAX", 0)
    answer = taken(server, topic="orders", as_of=moment)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_rows_of_snapshots_are_bounded_in_all_and_for_a_client(server, monkeypatch):
    server.call(server.server._handlers[SnapshotHandler]._taken._by_name.clear)
    monkeypatch.setattr("sow.server.api.snapshots.ROWS_MAX", 4)
    server.publish("orders", {"id": 1}, {"id": 2})
    first = taken(server, topic="orders").json
    answer = taken(server, topic="orders")
    assert (answer.status, answer.json["reason"]) == (503, "busy")
    assert "release some" in answer.json["detail"]
    server.publish("orders", {"id": 3})
    assert taken(server, topic="orders").status == 413
    monkeypatch.setattr("sow.server.api.snapshots.IDLE_US", -1)
    assert taken(server, topic="orders", filter="/id=1").status == 200
    assert statuses(server, [first]) == [404]
