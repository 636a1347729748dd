"""Rows of changes: what a server makes of its log, and what is written of them; no Java."""

import itertools
import json
import random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sow.core.pipelines import LOG, RECORDS, STREAM
from sow.errors import ClientError
from sow.spark.changes import CHANGE, check_applied, check_change_columns, merge_statement
from sow.spark.columns import JSON_MESSAGES
from sow.spark.http import ServerRefusal, read_options
from sow.spark.reader import SowReader
from sow.spark.rows import DataLoss, range_of_log
from sow.spark.source import SowDataSource
from sow.spark.stream import SowStreamReader
from sow.spark.write_target import WriteTarget, check_columns
from sow.spark.writer import RowMessages, SowWriter
from tests.edge.serving import records

pytestmark = [pytest.mark.spark, pytest.mark.edge]

TYPED = pa.schema(
    [
        ("px", pa.float64()),
        ("id", pa.int64()),
        ("_change_type", pa.string()),
        ("_commit_version", pa.string()),
        ("_bookmark", pa.int64()),
    ]
)


def options_of(server, topic="orders", **more):
    return read_options({"url": server.url, "topic": topic, "changeFormat": "cdc", **more})


def end_of_log(server):
    return int(server.get("/v1/log/extent").json["newest"])


def batch_of(server, schema=CHANGE, messages=None, **more):
    reader = SowReader(options_of(server, **more), schema, True, messages)
    (part,) = reader.partitions()
    return [row for batch in reader.read(part) for row in batch.to_pylist()]


def fill(server):
    """An insert, an update, an unchanged publish and a delete; returns the bookmark before."""
    server.clear()
    begin = end_of_log(server)
    for px in (1, 2, 2):
        server.publish("orders", {"id": 1, "px": px})
    server.request("DELETE", records("orders", filter="/id = 1"))
    return begin


def test_changes_are_rows_with_both_images_and_deletes_have_the_key_alone(server):
    begin = fill(server)
    found = batch_of(server, startingBookmark=str(begin))
    assert [
        (row["_change_type"], json.loads(row["value"]), row["_commit_version"] - begin)
        for row in found
    ] == [
        ("insert", {"id": 1, "px": 1}, 1),
        ("update_preimage", {"id": 1, "px": 1}, 2),
        ("update_postimage", {"id": 1, "px": 2}, 2),
        ("update_preimage", {"id": 1, "px": 2}, 3),
        ("update_postimage", {"id": 1, "px": 2}, 3),
        ("delete", {"id": 1}, 4),
    ]
    assert {row["_topic"] for row in found} == {"orders"}
    assert len({row["_key"] for row in found}) == 1
    assert found[1]["_commit_timestamp"] == found[2]["_commit_timestamp"]


def test_columns_of_a_schema_are_the_bodys_and_the_changes(server):
    begin = fill(server)
    found = batch_of(server, TYPED, JSON_MESSAGES, startingBookmark=str(begin))
    assert [(row["_change_type"], row["px"], row["id"]) for row in found] == [
        ("insert", 1.0, 1),
        ("update_preimage", 1.0, 1),
        ("update_postimage", 2.0, 1),
        ("update_preimage", 2.0, 1),
        ("update_postimage", 2.0, 1),
        ("delete", None, 1),
    ]
    assert all(int(row["_commit_version"]) == row["_bookmark"] for row in found)


def test_what_leaves_a_filter_is_deleted_and_what_enters_is_inserted(server):
    server.clear()
    begin = end_of_log(server)
    for px in (1, 5, 6, 1):
        server.publish("orders", {"id": 1, "px": px})
    found = batch_of(server, startingBookmark=str(begin), filter="/px > 2")
    assert [(row["_change_type"], json.loads(row["value"]).get("px")) for row in found] == [
        ("insert", 5),
        ("update_preimage", 5),
        ("update_postimage", 6),
        ("delete", None),
    ]


def test_deletes_of_other_types_and_keys_have_the_key_fields_too(server):
    server.clear()
    for topic, body, kind, key in (
        ("pairs", b'{"a":1,"b":{"c":2,"d":3},"e":4}', "application/json", '{"a":1,"b":{"c":2}}'),
        ("nvfix", b"id=7|px=2|", "text/plain", "id=7|"),
        ("keyless", b'{"a":1}', "application/json", None),
    ):
        begin = end_of_log(server)
        more = {"k": "k"} if topic == "keyless" else {}
        assert server.post(topic, body, kind, **more).status < 300, topic
        gone = {"keys": "k"} if more else {"filter": "1 = 1"}
        server.request("DELETE", records(topic, **gone))
        found = batch_of(server, topic=topic, startingBookmark=str(begin))
        assert [row["_change_type"] for row in found] == ["insert", "delete"], topic
        assert found[1]["value"] == key
    # Without a body it is a row all the same.
    schema = pa.schema([("a", pa.int64()), ("_key", pa.string())])
    found = batch_of(server, schema, JSON_MESSAGES, topic="keyless", startingBookmark=str(begin))
    assert found == [{"a": 1, "_key": "k"}, {"a": None, "_key": "k"}]


def test_columns_without_a_schema_are_those_of_the_change(server):
    server.clear()
    server.publish("orders", {"id": 1, "px": 2.5})
    given = {"url": server.url, "topic": "orders", "changeFormat": "cdc", "startingBookmark": "0"}
    assert SowDataSource(given).schema().names == CHANGE.names
    inferred = SowDataSource({**given, "inferSchema": "true"})
    schema = inferred.schema()
    assert schema.names == ["id", "px", *CHANGE.names[1:]]
    assert inferred.reader(schema).messages is not None
    few = SowDataSource({**given, "columns": "_key,_change_type"})
    reader = few.reader(few.schema())
    rows = [
        row for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()
    ]
    assert {*rows[-1]} == {"_key", "_change_type"}
    assert rows[-1]["_change_type"] == "insert"
    with pytest.raises(ClientError, match="op"):
        SowDataSource({**given, "columns": "op"}).schema()


def test_a_stream_has_one_part_a_bound_of_changes_and_records_first(server):
    server.clear()
    server.publish("orders", {"id": 1, "px": 1})
    reader = SowStreamReader(
        options_of(server, startingBookmark="snapshot", maxRowsPerTrigger="1"), CHANGE
    )
    limit, at, said = reader.getDefaultReadLimit(), reader.initialOffset(), []
    end = reader.latestOffset(at, limit)
    for px in (2, 3):
        server.publish("orders", {"id": 1, "px": px})
    for _ in range(3):
        for _again in range(2):
            rows = [
                row
                for part in reader.partitions(at, end)
                for batch in reader.read(part)
                for row in batch.to_pylist()
            ]
            said.append([(row["_change_type"], json.loads(row["value"])["px"]) for row in rows])
        at, end = end, reader.latestOffset(end, limit)
    updates = [[("update_preimage", px), ("update_postimage", px + 1)] for px in (1, 2)]
    assert said == [[("insert", 1)]] * 2 + [updates[0]] * 2 + [updates[1]] * 2


def test_an_earlier_state_that_is_not_kept_is_data_loss(server, monkeypatch):
    begin = fill(server)
    refusal = ServerRefusal("the log no longer has what it was", {"reason": "invalid bookmark"})

    def arrow(*_arguments, **_more):
        raise refusal

    monkeypatch.setattr("sow.spark.http.SowServer.arrow", arrow)
    for fails in (True, False):
        with pytest.raises(DataLoss, match="no longer has what it was"):
            list(
                range_of_log(
                    options_of(server).server, "orders", begin, begin + 1, None, fails,
                    needed={"before": "keys"},
                )
            )  # fmt: skip


@pytest.mark.parametrize(
    ("use", "more", "said"),
    [
        (RECORDS, {}, "changeFormat means nothing in a read of records"),
        (RECORDS, {"asOf": "1"}, "changeFormat means nothing in a read of records"),
        (STREAM, {"readMode": "latest"}, "readMode latest"),
        (LOG, {"readMode": "latest"}, "readMode latest is for streams"),
        (STREAM, {"closesWithin": "1s"}, "closesWithin"),
        (LOG, {"pushdown": "true"}, "pushdown"),
        (STREAM, {"changeFormat": "delta"}, "changeFormat is 'delta'"),
    ],
)
def test_what_changes_do_not_go_with_is_refused_by_name(use, more, said):
    with pytest.raises(ClientError, match=said):
        read_options({"topic": "orders", "changeFormat": "cdc", **more}, use)


def test_changes_may_be_named_where_they_are_the_default():
    assert not read_options({"topic": "o", "readMode": "changes", "changeFormat": "rows"}, LOG).cdc


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (pa.field("_commit_version", pa.int32()), "_commit_version cannot be read as int32"),
        (pa.field("px", pa.float64(), nullable=False), "px is NOT NULL"),
    ],
)
def test_columns_that_a_change_cannot_have_are_refused(server, field, said):
    with pytest.raises(ClientError, match=said):
        check_change_columns(pa.schema([field]), options_of(server))
    key = pa.field("id", pa.int64(), nullable=False)
    check_change_columns(pa.schema([key]), options_of(server))


# Writing them.

TO = WriteTarget(key_is_field=False, topic="orders", keys=("/id",), domain="orders")


def written(batch, to=TO):
    found = RowMessages(read_options({"topic": to.topic}), to, frozenset()).of(batch)
    return found.to_pylist()


def test_rows_of_changes_apply_them():
    batch = pa.RecordBatch.from_pylist(
        [
            {"id": 1, "px": 5, "_change_type": "insert", "_commit_version": 1},
            {"id": 1, "px": 5, "_change_type": "update_preimage", "_commit_version": 2},
            {"id": 1, "px": 6, "_change_type": "update_postimage", "_commit_version": 2},
            {"id": 1, "px": None, "_change_type": "delete", "_commit_version": 3},
        ]
    )
    assert written(batch) == [
        {"op": "publish", "value": '{"id":1,"px":5}'},
        {"op": "publish", "value": '{"id":1,"px":6}'},
        {"op": "delete", "value": '{"id":1,"px":null}'},
    ]


def test_images_before_an_update_alone_are_nothing_to_write(server, monkeypatch):
    monkeypatch.setattr("sow.spark.writer.part_and_attempt", lambda: (0, "a"))
    rows = [{"id": 1, "_change_type": "update_preimage"}]
    batch = pa.RecordBatch.from_pylist(rows)
    writer = SowWriter(
        read_options({"url": server.url, "topic": "orders"}), from_arrow_schema(batch.schema)
    )
    (part,) = writer.write(iter([batch])).parts
    assert part.rows == 0
    more = pa.RecordBatch.from_pylist([{"id": 9, "_change_type": "update_postimage"}])
    staged = writer.write(iter([batch, more]))
    assert [one.rows for one in staged.parts] == [1]
    writer.commit([staged])
    assert server.records("orders", filter="/id = 9") == [{"id": 9}]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": 1, "_change_type": "upsert"}, "upsert"),
        ({"id": 1, "_change_type": None}, "null"),
        ({"id": None, "_change_type": "delete", "_key": "7"}, "there is no _topic"),
        ({"id": None, "_change_type": "delete", "_key": "7", "_topic": None}, "there is no _topic"),
    ],
)
def test_rows_that_cannot_be_applied_are_refused(row, said):
    schema = pa.schema([(n, pa.int64() if n == "id" else pa.string()) for n in row])
    with pytest.raises(ClientError, match=said):
        written(pa.RecordBatch.from_pylist([row], schema))


def test_a_delete_without_key_fields_goes_by_its_sow_key_in_its_own_topic():
    row = {"id": None, "_change_type": "delete", "_key": "7", "_topic": "orders"}
    schema = pa.schema([(n, pa.int64() if n == "id" else pa.string()) for n in row])
    (found,) = written(pa.RecordBatch.from_pylist([row], schema))
    assert found == {"op": "delete", "key": "7", "value": None}


def test_keys_of_a_topic_without_key_fields_are_those_of_the_changes():
    to = WriteTarget(key_is_field=False, topic="plain")
    rows = [
        {"value": '{"a":1}', "_change_type": "insert", "_key": "k", "_topic": "plain"},
        {"value": None, "_change_type": "delete", "_key": "k", "_topic": "plain"},
    ]
    assert written(pa.RecordBatch.from_pylist(rows), to) == [
        {"op": "publish", "key": "k", "value": '{"a":1}'},
        {"op": "delete", "key": "k", "value": None},
    ]


def test_what_says_in_another_way_what_rows_do_is_refused():
    both = StructType().add("_change_type", "string").add("op", "string")
    for given, schema, said in (
        ({}, both, "op stands beside it"),
        ({"mode": "publish"}, from_arrow_schema(CHANGE), "option mode"),
        ({"op_column": "x"}, from_arrow_schema(CHANGE), "option opColumn"),
    ):
        with pytest.raises(ClientError, match=said):
            check_applied(given, schema)
    check_applied({"mode": "delete"}, StructType().add("value", "string"))
    check_columns(from_arrow_schema(CHANGE), read_options({"topic": "orders"}), TO)


# One MERGE.


def test_a_merge_takes_the_newest_change_of_each_key():
    found = merge_statement("db.t", "v", ["id", "p`x", "_change_type", "_commit_version"], ["id"])
    assert found.split("\n") == [
        "MERGE INTO db.t AS t",
        "USING (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY `id` ORDER BY "
        "CAST(`_commit_version` AS BIGINT) DESC) AS `_newest` FROM v "
        "WHERE `_change_type` <> 'update_preimage') WHERE `_newest` = 1) AS s",
        "ON t.`id` <=> s.`id`",
        "WHEN MATCHED AND s.`_change_type` = 'delete' THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET t.`p``x` = s.`p``x`",
        "WHEN NOT MATCHED AND s.`_change_type` <> 'delete' THEN INSERT (`id`, `p``x`) VALUES "
        "(s.`id`, s.`p``x`)",
    ]


def test_sparks_parser_takes_the_statement(spark):
    parser = spark._jsparkSession.sessionState().sqlParser()
    for table in ("lake.db.orders", "delta.`/lake/orders`"):
        text = merge_statement(table, "v", ["id", "a b", "_change_type", "_commit_version"], ["id"])
        assert "MergeInto" in parser.parsePlan(text).toString()


MERGED = pa.schema(
    [
        ("id", pa.int32()),
        ("leg", pa.string()),
        ("px", pa.int32()),
        ("_change_type", pa.string()),
        ("_commit_version", pa.string()),
    ]
)


class Frame:
    def __init__(self, *columns):
        self.columns, self.done = list(columns), []
        self.sparkSession = self.catalog = self

    def __getattr__(self, name):
        return lambda *arguments: self.done.append((name, *arguments))


def test_a_merge_is_one_statement_and_what_is_missing_is_named():
    from sow.spark import merge_into

    frame = Frame("id", "px", "_change_type", "_commit_version")
    assert merge_into(frame, "t", ["id"]) is None
    (made, view), (ran, statement), (dropped, gone) = frame.done
    assert (made, ran, dropped) == ("createOrReplaceTempView", "sql", "dropTempView")
    assert statement.startswith("MERGE INTO t AS t")
    assert view == gone
    assert view in statement
    for columns, keys, said in (
        (("id", "_commit_version"), ["id"], "'_change_type'"),
        (("id", "_change_type"), ["id"], "'_commit_version'"),
        (frame.columns, ["idd"], "'idd'"),
        (frame.columns, [], "needs keys"),
        ((*frame.columns, "_key"), ["_key"], "withColumnRenamed"),
    ):
        with pytest.raises(ClientError, match=said):
            merge_into(Frame(*columns), "t", keys)


def in_duckdb(text):
    """A MERGE of Spark's in the spelling of DuckDB."""
    for spark, here in (
        ("`", '"'),
        ("<=>", "IS NOT DISTINCT FROM"),
        ("UPDATE SET t.", "UPDATE SET "),
    ):
        text = text.replace(spark, here)
    return text


def test_merges_of_batches_make_the_table_that_one_by_one_makes():
    """Run by an engine that has a MERGE, since neither Delta nor Iceberg is at hand."""
    import duckdb

    connection = duckdb.connect()
    columns = ["id", "leg", "px", "_change_type", "_commit_version"]
    connection.execute("CREATE TABLE t (id INTEGER, leg VARCHAR, px INTEGER)")
    text = in_duckdb(merge_statement("t", "changes", columns, ["id", "leg"]))
    chance, version, expected = random.Random(40), 0, {}
    for _ in range(60):
        changes = []
        for _ in range(chance.randrange(1, 12)):
            version += 1
            key = chance.randrange(4), chance.choice(["a", None])
            if key in expected and chance.random() < 0.4:
                changes.append((*key, None, "delete", version))
                del expected[key]
                continue
            if key in expected:
                changes.append((*key, expected[key], "update_preimage", version))
            kind = "update_postimage" if key in expected else "insert"
            expected[key] = chance.choice([None, version])
            changes.append((*key, expected[key], kind, version))
        chance.shuffle(changes)
        rows = pa.table(dict(zip(columns, map(list, zip(*changes, strict=True)), strict=True)))
        connection.register("changes", rows.cast(MERGED))
        for _ in range(chance.choice([1, 2])):  # a batch may be applied once more
            connection.execute(text)
        found = connection.execute("SELECT id, leg, px FROM t").fetchall()
        assert {tuple(key): px for *key, px in found} == expected
        assert len(found) == len(expected)


# Copies.


class Died(Exception):
    """A driver has."""


class Copying:
    """A driver that copies a topic by rows of changes, as Spark plans its batches, with what its
    checkpoint has: where batches end, and how many are done."""

    def __init__(self, server):
        self.server, self.ends, self.done = server, [], 0

    def live(self, steps_left):
        """One life, which may end before any step; returns when all is copied."""
        steps = itertools.count(1)

        def step():
            if next(steps) == steps_left:
                raise Died

        reader = SowStreamReader(options_of(self.server, maxRowsPerTrigger="5"), CHANGE)
        self.ends = self.ends or [reader.initialOffset()]
        while True:
            if len(self.ends) == self.done + 1:
                step()
                end = reader.latestOffset(self.ends[-1], reader.getDefaultReadLimit())
                if end["bookmark"] == self.ends[-1]["bookmark"]:
                    return
                self.ends.append(end)
            step()
            (part,) = reader.partitions(*self.ends[self.done : self.done + 2])
            batches = [*reader.read(part)]
            step()
            to = {"url": self.server.url, "topic": "loud", "writer": "w", "epoch": str(self.done)}
            writer = SowWriter(read_options(to), from_arrow_schema(CHANGE))
            staged = writer.write(iter(batches))
            step()
            writer.commit([staged])
            step()
            self.done += 1


def made_by(rows):
    """What each row of a log makes of the records."""
    records_now, found = {}, []
    for row in rows:
        records_now.pop(row["k"], None)
        if row["op"] == "publish":
            records_now[row["k"]] = row["d"]
        found.append(sorted((one["id"], one["px"]) for one in records_now.values()))
    return found


def test_a_copy_killed_ten_times_is_the_original_at_every_bookmark(server, monkeypatch):
    """With Spark itself, and files beside the topic: tests/crash/spark/copies.py."""
    server.clear()
    begin, chance, there = end_of_log(server), random.Random(40), set()
    for number in range(40):
        key = chance.randrange(5)
        if key in there and chance.random() < 0.3:
            there.remove(key)
            server.request("DELETE", records("orders", filter=f"/id = {key}"))
        else:
            there.add(key)
            server.publish("orders", {"id": key, "px": number % 3})

    def log(topic):
        return server.get(f"/v1/log?topics={topic}&from={begin}&limit=1000").rows

    originals = [
        sorted((one["id"], one["px"]) for one in server.records("orders", as_of=row["bm"]))
        for row in log("orders")
    ]
    assert len(originals) == 40
    copying, lives = Copying(server), itertools.count()
    copying.ends = [
        SowStreamReader(options_of(server, startingBookmark=str(begin)), CHANGE).initialOffset()
    ]
    monkeypatch.setattr("sow.spark.writer.part_and_attempt", lambda: (0, str(next(lives))))
    for dies_before in range(1, 11):
        with pytest.raises(Died):
            copying.live(dies_before)
        copied = made_by(log("loud"))
        assert copied == originals[: len(copied)]
    copying.live(0)
    assert made_by(log("loud")) == originals
