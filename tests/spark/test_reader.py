"""Batch reads plan their parts; a server is needed here, and no Java."""

import json

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema

from sow.errors import SowError
from sow.spark import snapshots
from sow.spark.columns import ROW
from sow.spark.http import ServerRefusal
from sow.spark.source import SowDataSource

pytestmark = [pytest.mark.spark, pytest.mark.edge]

OTHER = "00000000000000bb"
NOWHERE = "http://127.0.0.1:9"


def rows(server, topic, schema=None, **options):
    source = SowDataSource({"url": server.url, "topic": topic, **options})
    if schema is None:
        source.schema()  # as Spark asks where its user gives none
        schema = ROW
    reader = source.reader(from_arrow_schema(schema))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, schema).to_pylist()


def test_a_pattern_is_read_as_its_topics_at_one_moment(server):
    server.publish("/desk/a", {"id": 1}, {"id": 2})
    server.publish("/desk/b", {"id": 1})
    found = rows(server, "desks")
    assert sorted((row["topic"], json.loads(row["value"])["id"]) for row in found) == [
        ("/desk/a", 1),
        ("/desk/a", 2),
        ("/desk/b", 1),
    ]


def test_a_pattern_of_too_many_topics_is_not_read_at_once(server, monkeypatch):
    server.publish("/desk/a", {"id": 1})
    monkeypatch.setattr(snapshots, "MEMBERS_MAX", 0)
    with pytest.raises(Exception, match="read its log, with startingBookmark"):
        rows(server, "desks")


@pytest.mark.parametrize("name", ["/desk/a,b", "/desk/a%2Cb", "/desk/100%"])
def test_the_log_of_a_topic_of_any_name_is_read(server, name):
    server.publish("/desk/a", {"id": 1})
    server.publish(name, {"id": 2})
    found = rows(server, name, startingBookmark="earliest")
    assert {row["topic"] for row in found} == {name}


def test_a_read_of_the_log_ends_where_it_is_sent(server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1})
    (first,) = rows(server, "orders", startingBookmark=start, endingBookmark="latest")
    server.publish("orders", {"id": 2})
    (_, second) = rows(server, "orders", startingBookmark=start)
    at = second["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    log = server.get("/v1/status").json["log"]
    for ending in (str(first["bookmark"]), f"{log}-{first['bookmark']}", at):
        assert rows(server, "orders", startingBookmark=start, endingBookmark=ending) == [first]


def test_a_read_of_a_range_of_another_log_is_refused(server):
    newest = server.get("/v1/log/extent").json["newest"]
    for requested in ({"startingBookmark": f"{OTHER}-{newest}"}, {"asOf": f"{OTHER}-{newest}"}):
        with pytest.raises(ServerRefusal, match="is of the log"):
            rows(server, "orders", **requested)
    with pytest.raises(ServerRefusal, match="is of the log"):
        rows(server, "orders", startingBookmark="earliest", endingBookmark=f"{OTHER}-{newest}")


GROUPS = {"projection": "/desk, SUM(/qty) AS /qty", "grouping": "/desk"}


def test_rows_of_groups_are_made_by_the_server_once_while_the_read_is_planned(server):
    server.publish("orders", *({"id": n, "desk": "ab"[n % 2], "qty": n} for n in range(5)))
    source = SowDataSource({"url": server.url, "topic": "orders", "filter": "/id > 0"} | GROUPS)
    source.schema()
    reader = source.reader(from_arrow_schema(ROW))
    (part,) = reader.partitions()
    server.publish("orders", {"id": 9, "desk": "a", "qty": 100})
    for _ in range(2):
        found = pa.Table.from_batches(reader.read(part), ROW).to_pylist()
        assert {row["topic"] for row in found} == {"orders"}
        assert [json.loads(row["value"]) for row in found] == [
            {"desk": "b", "qty": 4},
            {"desk": "a", "qty": 6},
        ]


def test_the_columns_of_groups_are_those_of_their_rows(server):
    server.publish("orders", {"id": 1, "desk": "a", "qty": 2})
    requested = {"url": server.url, "topic": "orders", "inferSchema": "true"} | GROUPS
    assert SowDataSource(requested).schema().names == ["desk", "qty"]
    schema = pa.schema([("desk", pa.string()), ("qty", pa.int64())])
    assert rows(server, "orders", schema, **GROUPS) == [{"desk": "a", "qty": 2}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "orders", "partitions": "2"} | GROUPS, "come in one piece"),
        ({"topic": "orders", "projection": "/a"}, "projection needs grouping"),
        ({"topic": "orders", "startingBookmark": "0"} | GROUPS, "leave out startingBookmark"),
        ({"topic": "ordres"}, "did you mean orders"),
        ({"topic": "orders", "filtre": "1"}, "no option 'filtre'"),
        ({"topic": "orders", "columns": "valu"}, "no column 'valu'"),
        ({"topic": "orders", "partitions": "0"}, "it must be a whole number, 1 or more"),
        ({"topic": "orders", "filter": "/id >"}, "filter"),
        ({}, "give the topic"),
        ({"topic": "orders", "url": NOWHERE, "retryTimeout": "0"}, f"{NOWHERE} cannot be reached"),
    ],
)
def test_a_mistake_in_the_options_is_answered_with_what_to_write(server, options, says):
    def planned():
        source = SowDataSource({"url": server.url, **options})
        source.schema()
        return source.reader(from_arrow_schema(ROW)).partitions()

    with pytest.raises(SowError, match=says):
        planned()
