"""Reading in batches: the log and records in Arrow."""

import json

import pytest

from tests.edge.arrow import (
    ARROW,
    rows,
    table,
)
from tests.edge.serving import records

SCHEMA = {
    "bookmark": "int64",
    "topic": "string",
    "key": "string",
    "op": "string",
    "ts": "timestamp[us, tz=UTC]",
    "value": "string",
}


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


def test_the_log_has_the_columns_and_fields_that_are_requested(server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1, "px": 2.5, "leg": {"qty": 3}})
    server.request("DELETE", records("orders", filter="/id = 1"))
    log = f"/v1/log?topics=orders&from={start}"
    assert rows(server.get(f"{log}&columns=op,value&select=/px", ARROW)) == [
        {"op": "publish", "value": '{"px":2.5}'},
        {"op": "delete", "value": None},
    ]
    first, second = server.get(f"{log}&select=-/leg").rows
    assert (first["d"], "d" in second) == ({"id": 1, "px": 2.5}, False)
    newest = server.get("/v1/log/extent").json["newest"]
    empty = table(server.get(f"/v1/log?from={newest}&columns=value", ARROW))
    assert empty.schema.names == ["value"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("columns=value", "columns is for Arrow"),
        ("columns=nope&format=arrow", "a row has no column nope"),
        ("columns=&format=arrow", "columns names none"),
        ("select=id&topics=orders", "is not a path"),
        ("select=/id&topics=string", "are sent whole or not at all"),
    ],
)
def test_columns_and_fields_that_rows_cannot_have_are_refused(server, query, says):
    answer = server.get(f"/v1/log?{query}")
    assert (answer.status, says in answer.json["detail"]) == (400, True)


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
