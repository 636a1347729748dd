"""Reading and writing in batches: Arrow, snapshots, staged writes, consumers of the log."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from sow.definitions import MessageTypeOptions
from sow.history.snapshot import Snapshot
from sow.messages.bflat import BFlat
from sow.server.taken_snapshots import Taken
from sow.server.writes import Chunk, Read, Recent
from sow.steps import at_once
from sow.store.staging import Attempt, StagedBatch
from tests.core.harness import ORDERS, World
from tests.edge.serving import records

FLAT = {"id": "x", "n": 5}
BFLAT = BFlat(MessageTypeOptions("bflat", "bflat"))
ARROW = "application/vnd.apache.arrow.stream"
SCHEMA = {
    "bookmark": "int64",
    "topic": "string",
    "key": "string",
    "op": "string",
    "ts": "timestamp[us, tz=UTC]",
    "value": "string",
}


def table(answer):
    assert answer.status == 200, answer.body
    return pa.ipc.open_stream(answer.body).read_all()


def rows(answer):
    return table(answer).to_pylist()


def documents(answer):
    return [json.loads(row["value"]) for row in rows(answer)]


def stream(**columns):
    batch = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(batch)
    return sink.getvalue().to_pybytes()


def staged(server, topic, values, epoch=0, writer="w", part=0, attempt="a", chunk=0, **more):
    columns = {name: more.pop(name) for name in ("op", "key") if name in more}
    return server.request(
        "POST",
        f"/v1/writes/{writer}/{epoch}?topic={topic}&part={part}&attempt={attempt}&chunk={chunk}"
        + "".join(f"&{name}={value}" for name, value in more.items()),
        data=stream(value=[json.dumps(v) if isinstance(v, dict) else v for v in values], **columns),
        headers={"Content-Type": ARROW},
    )


def committed(server, topic, *parts, epoch=0, writer="w", **more):
    body = {
        "topic": topic,
        "parts": [
            {"part": part, "attempt": attempt, "chunks": chunks, "rows": count}
            for part, attempt, chunks, count in parts
        ],
        **more,
    }
    path = f"/v1/writes/{writer}/{epoch}/commit"
    return server.request("POST", path, data=json.dumps(body).encode())


# The log and records in Arrow.


def test_the_log_in_arrow_has_six_columns_and_says_where_to_go_on(server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1}, {"id": 2})
    server.request("DELETE", records("orders", filter="/id = 1"))
    answer = server.get(f"/v1/log?from={start}", ARROW)
    found = table(answer)
    assert {field.name: str(field.type) for field in found.schema} == SCHEMA
    assert [(row["op"], row["value"]) for row in found.to_pylist()] == [
        ("publish", '{"id": 1}'),
        ("publish", '{"id": 2}'),
        ("delete", None),
    ]
    first = int(start) + 1
    assert found["bookmark"].to_pylist() == list(range(first, first + 3))
    assert answer.headers["SOW-Bookmark"] == str(first + 2)
    assert found["key"][0] == found["key"][2]


def test_an_extent_is_what_a_read_of_it_gives(server):
    start = server.get("/v1/log/extent").json["newest"]
    for n in range(5):
        server.publish("orders", {"id": n}, {"id": n + 100})
        server.publish("loud", {"id": n})
    part = server.get(f"/v1/log/extent?topics=orders&from={start}&limit=3").json
    assert part["rows"] == 3
    answer = server.get(f"/v1/log?topics=orders&from={part['from']}&to={part['to']}", ARROW)
    assert [d["id"] for d in documents(answer)] == [0, 100, 1]
    rest = server.get(f"/v1/log/extent?topics=orders&from={part['to']}").json
    assert rest["rows"] == 7
    assert rest["to"] == rest["newest"]


def test_the_extent_of_a_topic_without_a_log_is_refused(server):
    for topic in ("orders-C", "memory"):
        answer = server.get(f"/v1/log/extent?topics={topic}")
        assert (answer.status, answer.json["reason"]) == (400, "invalid topic")


def test_records_in_arrow_are_columns_or_rows_like_those_of_the_log(server):
    server.publish("orders", {"id": 1, "px": 2.5}, {"id": 2, "sym": "A"})
    found = table(server.get(records("orders"), ARROW))
    assert found.to_pylist() == [
        {"id": 1, "px": 2.5, "sym": None},
        {"id": 2, "px": None, "sym": "A"},
    ]
    with_meta = table(server.get(records("orders", meta="true", filter="/id = 2"), ARROW))
    assert {field.name: str(field.type) for field in with_meta.schema} == SCHEMA
    assert [json.loads(row["value"])["id"] for row in with_meta.to_pylist()] == [2]


def test_a_record_in_arrow_is_itself_whatever_stands_beside_it(server):
    server.post("orders", b'{"id":1,"n":9007199254740993,"day":"2025-01-02","in":{"a": [1]}}')
    server.publish("orders", {"id": 2, "n": 0.5, "day": "", "in": "x"})
    (first, second) = table(server.get(records("orders"), ARROW)).to_pylist()
    assert first == {"id": 1, "n": "9007199254740993", "day": "2025-01-02", "in": '{"a": [1]}'}
    assert second == {"id": 2, "n": "0.5", "day": "", "in": '"x"'}


@pytest.mark.parametrize(
    ("topic", "kind", "body", "row"),
    [
        ("nvfix", "text/plain", b"id=1|v=2|v=3", {"id": "1", "v": '["2","3"]'}),
        ("fix", "text/plain", b"11=1\x0144=2.50\x01", {"11": "1", "44": "2.50"}),
        ("bflat", "application/octet-stream", BFLAT.encode(FLAT), FLAT),
    ],
)
def test_messages_with_fields_are_columns_in_arrow(server, topic, kind, body, row):
    assert server.post(topic, body, kind).status == 200
    assert table(server.get(records(topic), ARROW)).to_pylist() == [row]


def test_messages_without_fields_are_one_column_in_arrow(server):
    server.post("int64", b"9007199254740993", "text/plain", k="a")
    server.post("binary", b"\0\xff", "application/octet-stream", k="a")
    assert table(server.get(records("int64"), ARROW)).to_pylist() == [{"value": 9007199254740993}]
    assert table(server.get(records("binary"), ARROW)).to_pylist() == [{"value": b"\0\xff"}]


def test_an_empty_answer_in_arrow_is_an_empty_table(server):
    assert table(server.get(records("orders"), ARROW)).num_rows == 0


def test_bodies_of_other_types_are_text_in_arrow(server):
    server.post("string", "hé".encode(), "application/octet-stream", k="a")
    assert rows(server.get(records("string", meta="true"), ARROW))[0]["value"] == "hé"


# Snapshots.


def taken(server, **asked):
    query = "&".join(f"{name}={value}" for name, value in asked.items())
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
    door = server.server._doors.snapshots

    async def look():
        door._look_after(server.server.driver.now_us() + 2_000_000)
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


def test_what_the_present_has_no_more_is_bounded_when_the_past_is_asked_for(server, monkeypatch):
    fill(server, 0)
    moment = server.get("/v1/log/extent").json["newest"]
    fill(server, 1)
    assert taken(server, topic="orders", as_of=moment).status == 200
    narrow(server, monkeypatch, snapshot_bytes_max=4 * 5_000)
    answer = taken(server, topic="orders", as_of=moment)
    assert (answer.status, answer.json["reason"]) == (413, "too large")
    assert "Limits/SnapshotMemory" in answer.json["detail"]
    monkeypatch.setattr("sow.server.snapshots.AS_OF_WAITING_MAX", 0)
    answer = taken(server, topic="orders", as_of=moment)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_rows_of_snapshots_are_bounded_in_all_and_for_a_client(server, monkeypatch):
    server.call(server.server._doors.snapshots._taken._by_name.clear)
    monkeypatch.setattr("sow.server.taken_snapshots.ROWS_MAX", 4)
    server.publish("orders", {"id": 1}, {"id": 2})
    first = taken(server, topic="orders").json
    answer = taken(server, topic="orders")
    assert (answer.status, answer.json["reason"]) == (503, "busy")
    assert "release some" in answer.json["detail"]
    server.publish("orders", {"id": 3})
    assert taken(server, topic="orders").status == 413
    monkeypatch.setattr("sow.server.taken_snapshots.IDLE_US", -1)
    assert taken(server, topic="orders", filter="/id=1").status == 200
    assert statuses(server, [first]) == [404]


def test_a_snapshot_counts_in_full_once_its_topic_is_gone():
    world = World(ORDERS)
    world.publish("orders", {"id": 1})
    topic = world.engine.topic("orders")
    parts = [Snapshot.take(topic.records, topic.records.table.live())]
    found = Taken("name", "client", topic, parts, 1, 0)
    at_once(found.measure())
    assert (found.at_most_bytes(is_there=True), found.at_most_bytes(is_there=False)) == (0, 8)
    world.publish("orders", {"id": 2})
    assert found.at_most_bytes(is_there=True) == 8
    at_once(found.count())
    assert found.at_most_bytes(is_there=True) == 0
    world.publish("orders", {"id": 1, "v": 1})
    at_once(found.count())
    assert found.at_most_bytes(is_there=True) == 8


# Staged writes.


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


def test_an_older_batch_is_refused_by_both_numbers_and_stays(server):
    staged(server, "orders", [{"id": 1}], writer="anew", epoch=7)
    committed(server, "orders", (0, "a", 1, 1), writer="anew", epoch=7)
    staged(server, "orders", [{"id": 2}], writer="anew", epoch=0)
    answer = committed(server, "orders", (0, "a", 1, 1), writer="anew", epoch=0)
    assert (answer.status, answer.json["reason"]) == (409, "epoch passed")
    assert "epoch 7" in answer.json["detail"]
    assert "epoch 0" in answer.json["detail"]
    assert server.records("orders") == [{"id": 1}]


def test_what_was_staged_outlives_the_server(server):
    staged(server, "orders", [{"id": 1}], writer="kept")
    server.stop()
    server.start()
    assert committed(server, "orders", (0, "a", 1, 1), writer="kept").status == 200
    assert server.records("orders") == [{"id": 1}]


def test_a_writers_batches_for_two_topics_are_two(server):
    staged(server, "orders", [{"id": 1}], writer="both")
    staged(server, "pairs", [{"a": 1, "b": {"c": 2}}], writer="both")
    for topic in ("orders", "pairs"):
        answer = committed(server, topic, (0, "a", 1, 1), writer="both").json
        assert answer["duplicate"] is False
    assert server.records("orders") == [{"id": 1}]
    assert server.records("pairs") == [{"a": 1, "b": {"c": 2}}]


def test_what_was_staged_for_one_topic_is_not_there_for_another(server):
    staged(server, "pairs", [{"a": 1, "b": {"c": 2}, "id": 9}], writer="astray")
    assert committed(server, "orders", (0, "a", 1, 1), writer="astray").status == 409
    assert server.records("orders") == []


def test_only_so_many_rows_are_kept_as_read():
    recent = Recent(rows_max=10)
    names = [Chunk(StagedBatch("w", 0, "t"), Attempt(0, "a"), number) for number in range(4)]
    for name, rows in zip(names, (4, 4, 4, 20), strict=True):
        recent.keep(name, Read(rows, [], []))
    assert [recent.take(name) for name in names] == [None] * 4  # the last is too many by itself
    recent.keep(names[0], Read(10, [], []))
    recent.keep(names[0], Read(9, [], []))
    assert recent.take(names[0]) == Read(9, [], [])


def test_only_so_many_bytes_are_kept_as_read():
    recent = Recent(bytes_max=1000)
    names = [Chunk(StagedBatch("w", 0, "t"), Attempt(0, "a"), number) for number in range(3)]
    for name in names:
        recent.keep(name, Read(1, [], [], 600))
    assert [recent.take(name) is not None for name in names] == [False, False, True]
    recent.keep(names[0], Read(1, [], [], 1001))
    assert recent.take(names[0]) is None


def test_only_the_attempts_that_won_are_applied(server):
    staged(server, "orders", [{"id": 1, "by": "lost"}], writer="tries", attempt="0")
    staged(server, "orders", [{"id": 2}], writer="tries", attempt="1", chunk=0)
    staged(server, "orders", [{"id": 3}], writer="tries", attempt="1", chunk=1)
    assert committed(server, "orders", (0, "1", 2, 2), writer="tries").status == 200
    assert [row["id"] for row in server.records("orders")] == [2, 3]


@pytest.mark.parametrize("part", [(0, "a", 2, 1), (0, "b", 1, 1), (0, "a", 1, 5)])
def test_a_commit_of_what_is_not_there_changes_nothing(server, part):
    staged(server, "orders", [{"id": 1}], writer="gone")
    answer = committed(server, "orders", part, writer="gone")
    assert (answer.status, answer.json["reason"]) == (409, "not staged")
    assert server.records("orders") == []


@pytest.mark.parametrize(
    ("parts", "status", "says"),
    [
        ([(0, "a", 1, 1), (0, "a", 1, 1)], 400, "a part twice"),
        ([(part, "a", 0, 0) for part in range(10_001)], 413, "10001 parts"),
        ([(0, "a" * 9000, 1, 1)], 409, "not here"),
    ],
)
def test_a_commit_that_says_too_much_is_refused(server, parts, status, says):
    staged(server, "orders", [{"id": 1}], writer="much")
    answer = committed(server, "orders", *parts, writer="much")
    assert answer.status == status
    assert says in answer.json["detail"]
    assert len(answer.body) < 600
    assert server.records("orders") == []


def test_a_batch_that_a_commit_cannot_hold_is_refused_and_stays(server, monkeypatch):
    for chunk in range(3):
        staged(server, "orders", [{"id": chunk, "v": "x" * 500}], writer="heavy", chunk=chunk)
    engine, limits = server.server.engine, server.server.configuration.limits
    small = replace(engine.configuration, limits=replace(limits, batch_bytes_max=1200))
    monkeypatch.setattr(engine, "configuration", small)
    answer = committed(server, "orders", (0, "a", 3, 3), writer="heavy")
    assert answer.status == 413
    assert "Limits/BatchSize" in answer.json["detail"]
    assert committed(server, "orders", (0, "a", 2, 2), writer="heavy").status == 200


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


def test_a_topic_is_replaced_by_nothing_only_where_that_is_said(server):
    server.publish("orders", {"id": 1})
    answer = committed(server, "orders", writer="none", **REPLACE)
    assert (answer.status, answer.json["reason"]) == (400, "bad request")
    assert "all of them would go" in answer.json["detail"]
    assert server.records("orders") == [{"id": 1}]
    assert committed(server, "orders", allow_empty=True, writer="none", **REPLACE).status == 200
    assert server.records("orders") == []


@pytest.mark.parametrize("operation", ["delete", "delta"])
def test_rows_that_replace_a_topic_are_all_published(server, operation):
    server.publish("orders", {"id": 1})
    staged(server, "orders", [{"id": 1}, {"id": 2}], op=["publish", operation], writer=operation)
    answer = committed(server, "orders", (0, "a", 1, 2), writer=operation, **REPLACE)
    assert (answer.status, f"has the op {operation}" in answer.json["detail"]) == (400, True)
    assert server.records("orders") == [{"id": 1}]


def test_an_aborted_batch_is_forgotten(server):
    staged(server, "orders", [{"id": 1}], writer="aborted")
    assert server.request("DELETE", "/v1/writes/aborted/0").status == 200
    assert committed(server, "orders", (0, "a", 1, 1), writer="aborted").status == 409


def test_a_batch_is_forgotten_for_one_topic_alone(server):
    staged(server, "orders", [{"id": 1}], writer="half")
    staged(server, "pairs", [{"a": 1, "b": {"c": 2}}], writer="half")
    assert server.request("DELETE", "/v1/writes/half/0?topic=orders").status == 200
    assert committed(server, "orders", (0, "a", 1, 1), writer="half").status == 409
    assert committed(server, "pairs", (0, "a", 1, 1), writer="half").status == 200


def test_bad_rows_refuse_a_chunk_and_each_is_named(server):
    answer = staged(server, "orders", [{"id": 1}, {"no": 1}, "{", {"id": 4}], writer="bad")
    assert (answer.status, answer.json["index"]) == (400, 1)
    assert [row["index"] for row in answer.json["rejected"]] == [1, 2]
    assert "/id" in answer.json["rejected"][0]["reason"]


def test_bad_rows_may_be_left_out(server):
    values = [{"id": 1}, {"no": 1}, None, {"id": 4}]
    answer = staged(server, "orders", values, writer="skips", rejects="skip").json
    assert answer["staged"] == 2
    assert [row["index"] for row in answer["rejected"]] == [1, 2]
    committed(server, "orders", (0, "a", 1, 2), writer="skips")
    assert [row["id"] for row in server.records("orders")] == [1, 4]


def test_every_row_that_is_left_out_is_told(server):
    values = [{"id": 1}, *({"no": n} for n in range(1_200))]
    answer = staged(server, "orders", values, writer="many", rejects="skip").json
    assert answer["staged"] == 1
    assert [row["index"] for row in answer["rejected"]] == list(range(1, 1_201))
    refused = staged(server, "orders", values, writer="many").json
    assert len(refused["rejected"]) == 1_000


def test_operations_are_carried_out_in_the_order_of_the_rows(server):
    server.publish("orders", {"id": 9, "x": 1}, {"id": 8})
    (key,) = (row["k"] for row in server.records("orders", meta="true", filter="/id = 8"))
    values = [{"id": 1, "a": 1}, {"id": 1, "b": 2}, {"id": 2}, {"id": 2}, {"id": 9, "y": 2}, None]
    operations = ["publish", "delta", None, "delete", "delta", "delete"]
    staged(server, "orders", values, op=operations, key=[None] * 5 + [key], writer="ops")
    committed(server, "orders", (0, "a", 1, 6), writer="ops")
    assert server.records("orders") == [{"id": 9, "x": 1, "y": 2}, {"id": 1, "a": 1, "b": 2}]


def test_a_topic_without_key_fields_takes_the_column_key(server):
    staged(server, "keyless", [{"v": 1}, {"v": 2}], key=["a", "b"], writer="keys")
    committed(server, "keyless", (0, "a", 1, 2), writer="keys")
    found = server.records("keyless", meta="true")
    assert {row["k"]: row["d"] for row in found} == {"a": {"v": 1}, "b": {"v": 2}}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"id": [1]}, "it must have value"),
        ({"value": ["{}"], "extra": [1]}, "it must have value"),
        ({"value": [[1]]}, "cast it to string"),
        ({"value": ["{}"], "c" * 999: [1]}, "it must have value"),
    ],
)
def test_other_columns_are_refused(server, columns, says):
    path = "/v1/writes/w/0?topic=orders"
    answer = server.request("POST", path, data=stream(**columns), headers={"Content-Type": ARROW})
    assert answer.status == 400
    assert says in answer.json["detail"]
    assert len(answer.body) < 600


def test_what_is_no_arrow_stream_is_refused(server):
    path = "/v1/writes/w/0?topic=orders"
    answer = server.request("POST", path, data=b"PAR1", headers={"Content-Type": ARROW})
    assert "not an Arrow stream" in answer.json["detail"]


def test_a_conflated_topic_takes_no_batch(server):
    assert staged(server, "orders-C", [{"id": 1}]).json["reason"] == "invalid topic"


def test_an_unknown_operation_is_a_bad_row(server):
    answer = staged(server, "orders", [{"id": 1}], op=["upsert"])
    assert "publish, delta or delete" in answer.json["detail"]


# The server's own topics.


def test_the_servers_own_topics_are_not_listed_and_not_written_to(server):
    assert not [t for t in server.get("/v1/topics").json if t["name"].startswith("/sow/")]
    assert server.publish("/sow/commits", {"writer": "w"}).json["reason"] == "invalid topic"
    staged(server, "orders", [{"id": 1}], writer="seen", epoch=3)
    committed(server, "orders", (0, "a", 1, 1), writer="seen", epoch=3)
    (found,) = server.records("/sow/commits", filter="/writer = 'seen'")
    assert (found["epoch"], found["rows"]) == (3, 1)


# Consumers.


def test_a_consumer_is_remembered_over_a_restart_and_can_be_forgotten(server):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = server.get("/v1/log/extent").json["newest"]
    body = json.dumps({"bookmark": newest}).encode()
    assert server.request("PUT", "/v1/log/consumers/reader", data=body).status == 200
    server.stop()
    server.start()
    (found,) = server.get("/v1/log/consumers").json
    assert (found["name"], found["bookmark"]) == ("reader", newest)
    assert server.request("DELETE", "/v1/log/consumers/reader").status == 200
    assert server.get("/v1/log/consumers").json == []
    assert server.request("DELETE", "/v1/log/consumers/reader").status == 404


def test_a_position_that_is_not_there_yet_is_refused(server):
    body = json.dumps({"bookmark": "999999999"}).encode()
    answer = server.request("PUT", "/v1/log/consumers/reader", data=body)
    assert answer.json["reason"] == "invalid bookmark"


def test_what_a_consumer_has_not_read_is_kept(server):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = int(server.get("/v1/log/extent").json["newest"])
    body = json.dumps({"bookmark": str(newest - 1)}).encode()
    server.request("PUT", "/v1/log/consumers/slow", data=body)
    checkpointer = server.server.checkpointer
    asked = []
    checkpointer._trim = lambda _now_us, keep_from_seq: asked.append(keep_from_seq)
    for name in checkpointer._checkpoints:
        server.wait(checkpointer.write(name))
    server.wait(checkpointer._drop_old())
    assert asked == [newest]
    server.request("DELETE", "/v1/log/consumers/slow")
    server.wait(checkpointer._drop_old())
    assert asked[1] > newest


def test_the_log_waits_for_no_consumer_while_the_disk_is_short(server, monkeypatch, caplog):
    server.publish("orders", {"id": 1}, {"id": 2})
    newest = int(server.get("/v1/log/extent").json["newest"])
    body = json.dumps({"bookmark": str(newest - 1)}).encode()
    server.request("PUT", "/v1/log/consumers/slow", data=body)
    checkpointer, journal = server.server.checkpointer, server.server.driver.journal
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
    assert found == {"name": "late", "bookmark": str(newest - 1), "behind": 1, "idle_s": 0}
    monkeypatch.setattr(server.server.driver.journal, "_base_seq", newest)
    answer = server.request("PUT", "/v1/log/consumers/late", data=body)
    assert (answer.status, answer.json["reason"]) == (409, "consumer expired")
    body = json.dumps({"bookmark": str(newest)}).encode()
    assert server.request("PUT", "/v1/log/consumers/late", data=body).status == 200


def test_a_consumers_name_is_bounded(server):
    body = json.dumps({"bookmark": "0"}).encode()
    answer = server.request("PUT", "/v1/log/consumers/" + "n" * 8000, data=body)
    assert answer.status == 400
    assert len(answer.body) < 400
