"""`format("sow")`: batch and stream, read and write, against a real server and a real Spark.

Types without values in messages are refused by the name of the column.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types

from sow.errors import ClientError
from sow.server.api.snapshots import SnapshotHandler
from sow.spark.source import check_types
from tests.edge.arrow import ARROW, table
from tests.edge.serving import records

pytestmark = pytest.mark.spark


TYPED = "id long, px double, sym string"


@pytest.fixture
def sow(spark, server):
    """A reader of the server, with options."""

    def reader(topic, schema=None, **options):
        found = spark.read.format("sow").options(url=server.url, topic=topic, **options)
        return (found.schema(schema) if schema else found).load()

    return reader


@pytest.fixture
def save(server):
    """Writes a DataFrame into a topic."""

    def write(frame, topic, **options):
        frame.write.format("sow").options(url=server.url, topic=topic, **options).mode(
            "append"
        ).save()

    return write


@pytest.fixture
def run(spark, server, tmp_path):
    """Runs a stream from one topic into another until it has caught up; returns its query."""

    def stream(source, sink, name="q", columns=("value", "op", "key"), **options):
        wanted = options.pop("write", {})
        frame = spark.readStream.format("sow").options(url=server.url, topic=source, **options)
        query = (
            frame.load()
            .select(*columns)
            .writeStream.format("sow")
            .options(url=server.url, topic=sink, **wanted)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    return stream


def rows_of(query):
    return [progress["numInputRows"] for progress in query.recentProgress]


# Batch reads.


@pytest.mark.edge
def test_a_read_has_the_rows_columns_of_one_moment(sow, server):
    server.publish("orders", {"id": 1, "px": 2.5}, {"id": 2})
    found = sow("orders")
    assert found.dtypes == [
        ("bookmark", "bigint"),
        ("topic", "string"),
        ("key", "string"),
        ("op", "string"),
        ("ts", "timestamp"),
        ("value", "string"),
    ]
    rows = sorted(found.collect(), key=lambda row: row.bookmark)
    assert [row.value for row in rows] == ['{"id": 1, "px": 2.5}', '{"id": 2}']
    of_server = {row["d"]["id"]: row for row in server.records("orders", meta="true")}
    assert [row.key for row in rows] == [of_server[1]["k"], of_server[2]["k"]]
    assert rows[0].bookmark == int(of_server[1]["bm"])


@pytest.mark.edge
def test_fields_come_in_the_types_of_a_schema(sow, server):
    server.publish(
        "orders",
        {"id": 1, "px": 2, "leg": {"qty": 5, "tags": ["a"]}, "at": "2026-01-02T03:04:05.5Z"},
        {"id": 2, "px": "no number", "leg": 7, "amount": 1.10},
    )
    schema = (
        "id long, px double, leg struct<qty:int,tags:array<string>>, at timestamp, "
        "amount decimal(9,2), _op string, _bookmark long"
    )
    one, two = sow("orders", schema).orderBy("id").collect()
    assert (one.px, one.leg.qty, one.leg.tags) == (2.0, 5, ["a"])
    assert one.at.replace(tzinfo=UTC) == datetime(2026, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC)
    assert (two.px, two.leg, two.at, two.amount) == (None, None, None, Decimal("1.10"))
    assert (one._op, one._bookmark + 1) == ("publish", two._bookmark)


@pytest.mark.edge
def test_the_columns_of_a_schema_are_the_bodys_whatever_their_names(sow, server):
    fields = {"key": "mine", "op": "buy", "ts": "2024-08-08T23:54:14Z", "value": "hello"}
    server.publish("orders", {"id": 1, **fields})
    (row,) = sow("orders", "key string, op string, value string").collect()
    assert tuple(row) == ("mine", "buy", "hello")
    (row,) = sow("orders", "ts timestamp").collect()
    assert row.ts.year == 2024
    (row,) = sow("orders", inferSchema="true", columns="key,_op").collect()
    assert tuple(row) == ("mine", "publish")
    (row,) = sow("orders", columns="op,ts").collect()
    assert row.op == "publish"
    assert row.ts.year > 2024


@pytest.mark.edge
def test_a_schema_can_be_taken_from_the_data(sow, server):
    server.publish("orders", {"id": 1, "px": 2.5, "sym": "A", "live": True, "leg": {"q": [1]}})
    found = sow("orders", inferSchema="true")
    assert found.dtypes == [
        ("id", "bigint"),
        ("px", "double"),
        ("sym", "string"),
        ("live", "boolean"),
        ("leg", "struct<q:array<bigint>>"),
    ]
    assert found.collect() == [(1, 2.5, "A", True, ([1],))]
    assert sow("orders", inferSchema="true", columns="sym").columns == ["sym"]


@pytest.mark.edge
def test_types_are_those_of_the_topic_and_not_of_the_records_that_are_read(sow, server):
    texts = ['"a"', "2", "1.50", '"\\u00e4"', "null", "true", '{"a": 1.0}', "[1,2]"]
    body = "\n".join(f'{{"id":{at},"mixed":{text},"n":1}}' for at, text in enumerate(texts))
    headers = {"Content-Type": "application/x-ndjson"}
    server.request("POST", records("orders"), data=body.encode(), headers=headers)
    one = sow("orders", inferSchema="true", filter="/id = 1")
    assert dict(one.dtypes)["mixed"] == "string"
    assert [row.mixed for row in one.collect()] == ["2"]
    whole = sow("orders", inferSchema="true").orderBy("id").collect()
    theirs = table(server.get(records("orders"), ARROW))
    assert [row.mixed for row in whole] == theirs.column("mixed").to_pylist()
    assert [row.n for row in whole] == [1] * len(texts)
    assert theirs.column("mixed").to_pylist()[:2] == ['"a"', "2"]


@pytest.mark.edge
def test_a_column_is_named_once(sow):
    with pytest.raises(Exception, match="columns names 'key' twice"):
        sow("orders", columns="key,key")


@pytest.mark.edge
def test_columns_of_the_row_may_be_chosen(sow, server):
    server.publish("orders", {"id": 1})
    (row,) = sow("orders", columns="op,value").collect()
    assert tuple(row) == ("publish", '{"id": 1}')


@pytest.mark.edge
def test_a_filter_of_the_servers_is_applied_there(sow, server):
    server.publish("orders", *({"id": n} for n in range(10)))
    assert sow("orders", filter="/id > 6").count() == 3


@pytest.mark.edge
def test_every_partition_reads_its_part_once(sow, server):
    server.publish("orders", *({"id": n} for n in range(100)))
    found = sow("orders", "id long", partitions="7")
    assert found.rdd.getNumPartitions() == 7
    assert sorted(row.id for row in found.collect()) == list(range(100))


@pytest.mark.edge
def test_a_read_as_of_a_bookmark_and_of_a_range_of_the_log(sow, server):
    then = server.publish("orders", {"id": 1}, {"id": 2}).json["bookmark"]
    server.publish("orders", {"id": 1, "later": True})
    server.request("DELETE", records("orders", filter="/id = 2"))
    assert {row.value for row in sow("orders", asOf=then).collect()} == {'{"id": 1}', '{"id": 2}'}
    log = sow("orders", startingBookmark=then).orderBy("bookmark").collect()
    assert [(row.op, row.value) for row in log] == [
        ("publish", '{"id": 1, "later": true}'),
        ("delete", None),
    ]


@pytest.mark.edge
def test_a_read_outlives_the_snapshot_that_it_was_planned_with(sow, server):
    server.publish("orders", {"id": 1}, {"id": 2})
    found = sow("orders")
    assert found.count() == 2
    server.publish("orders", {"id": 3})
    server.server._handlers[
        SnapshotHandler
    ]._taken._by_name.clear()  # as after a restart, or an idle hour
    assert found.count() == 2


@pytest.mark.edge
def test_a_conflated_topic_can_be_read(sow, server):
    server.publish("orders", {"id": 1, "price": 200})
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "dear-C"})
        client.until(c="p")
    assert sow("dear-C").count() == 1


@pytest.mark.edge
def test_spark_reuses_the_plan_of_a_filtered_read(sow, server):
    """Why `pushdown` is off by default. Once this fails, Spark has mended it: tell the guide."""
    server.publish("orders", {"id": 1}, {"id": 2})
    frame = sow("orders", "id long", pushdown="true")
    assert frame.where("id = 1").count() == 1
    assert frame.count() == 1


@pytest.mark.edge
def test_a_filter_that_is_pushed_leaves_the_answer_as_it_is(sow, server):
    server.publish("orders", *({"id": n, "s": f"s{n}"} for n in range(10)))
    typed = sow("orders", "id long, s string, _key string", pushdown="true")
    (found,) = typed.where("id > 2 AND s = 's3' AND _key IS NOT NULL").collect()
    assert (found.id, found.s) == (3, "s3")
    (row,) = sow("orders", pushdown="true").where(f"key = '{found._key}'").collect()
    assert json.loads(row.value)["id"] == 3


# Batch writes.


@pytest.mark.edge
def test_rows_become_documents(spark, save, server):
    frame = spark.sql(
        "select 1 id, 1.50D px, cast(2.30 as decimal(9,2)) amount, 'A' sym, null nothing, "
        "timestamp'2026-01-02 03:04:05' at, named_struct('q', 1) leg, array(1, 2) list, "
        "map('k', 'v') map, true flag, X'0102' bytes"
    )
    save(frame, "orders")
    assert server.get(records("orders")).body == (
        b'[{"id":1,"px":1.5,"amount":2.30,"sym":"A","nothing":null,"at":"2026-01-02T03:04:05Z",'
        b'"leg":{"q":1},"list":[1,2],"map":{"k":"v"},"flag":true,"bytes":"AQI="}]'
    )


@pytest.mark.edge
def test_a_delta_write_leaves_nulls_out(spark, save, server):
    server.publish("orders", {"id": 1, "a": 1, "b": 1})
    save(spark.sql("select 1 id, 2 a, cast(null as int) b"), "orders", mode="delta")
    assert server.records("orders") == [{"id": 1, "a": 2, "b": 1}]


@pytest.mark.edge
def test_values_are_written_as_they_are_with_their_operations(spark, save, server):
    server.publish("orders", {"id": 1, "a": 1}, {"id": 2})
    rows = [('{"id":1,"b":2}', "delta"), ('{"id":2}', "delete"), ('{"id": 3}', "publish")]
    save(spark.createDataFrame(rows, "value string, op string"), "orders")
    assert server.records("orders") == [{"id": 1, "a": 1, "b": 2}, {"id": 3}]


@pytest.mark.edge
def test_records_without_key_fields_take_the_column_key(spark, save, server):
    save(spark.sql("select 'k1' key, 5 v"), "keyless")
    (found,) = server.records("keyless", meta="true")
    assert (found["k"], found["d"]) == ("k1", {"v": 5})


@pytest.mark.edge
def test_a_bad_row_fails_the_write_and_nothing_is_applied(spark, save, server):
    frame = spark.range(100).selectExpr("case when id = 50 then null else id end as id")
    with pytest.raises(Exception, match="key field /id is missing, null or a container"):
        save(frame, "orders")
    assert server.records("orders") == []


@pytest.mark.edge
def test_bad_rows_may_be_set_aside_with_their_reasons(spark, save, server, tmp_path):
    frame = spark.range(10).selectExpr("case when id = 5 then null else id end as id")
    save(frame, "orders", deadLetterPath=str(tmp_path / "dead"))
    assert len(server.records("orders")) == 9
    (line,) = [
        line for file in (tmp_path / "dead").iterdir() for line in file.read_text().splitlines()
    ]
    found = json.loads(line)
    assert found["value"] == '{"id":null}'
    assert "/id" in found["reason"]


@pytest.mark.edge
def test_the_same_batch_written_again_is_applied_once(spark, save, server):
    before = server.get("/v1/log/extent").json["newest"]
    first = spark.sql("select id, 'first' v from range(10)")
    for partitions in (1, 3):
        save(first.repartition(partitions), "orders", writer="job", epoch="3")
    assert len(server.get(f"/v1/log?from={before}&topics=orders").rows) == 10
    with pytest.raises(Exception, match="writer 'job' has applied epoch 3 to orders with other"):
        save(spark.sql("select 1 id, 'again' v"), "orders", writer="job", epoch="3")


@pytest.mark.edge
def test_a_topic_is_not_overwritten(spark, server):
    writer = spark.range(1).write.format("sow").options(url=server.url, topic="orders")
    with pytest.raises(Exception, match="a topic is not overwritten"):
        writer.mode("overwrite").save()


@pytest.mark.edge
def test_a_mistake_in_the_options_is_a_sentence_in_what_spark_says(spark, server):
    with pytest.raises(Exception, match="no option 'filtre'"):
        spark.read.format("sow").options(url=server.url, topic="orders", filtre="1").load()


VALUES = """
SELECT id, parse_json(text) v, if(id < 3, named_struct('v', parse_json('[1, "a"]')), null) s,
  CASE id WHEN 1 THEN map(date'2026-01-02', 1) WHEN 2 THEN map() END days,
  if(id = 1, map(timestamp'2026-01-02 03:04:05.5', parse_json('7')), null) moments,
  if(id = 1, map(timestamp_ntz'2026-01-02 03:04:05', 'x'), null) times
FROM VALUES
  (1L, '{"a":1.50,"b":[1,null,"ü",true],"c":{"d":12345678901234567890123456789012345678}}'),
  (2L, '"text"'), (3L, null) t(id, text)
"""
KINDS = (
    "id long, v variant, s struct<v:variant>, days map<date,int>, "
    "moments map<timestamp,variant>, times map<timestamp_ntz,string>"
)


@pytest.mark.edge
def test_values_of_any_kind_and_names_that_are_times_come_back_as_they_were(
    spark, sow, save, run, server
):
    start = server.get("/v1/log/extent").json["newest"]
    written = spark.sql(VALUES)
    save(written, "orders")
    first = json.loads(server.get(records("orders", filter="/id = 1")).body, parse_float=str)[0]
    assert first["v"] == {
        "a": "1.50",
        "b": [1, None, "ü", True],
        "c": {"d": int("1234567890" * 3 + "12345678")},
    }
    assert first["days"] == {"2026-01-02": 1}
    assert first["moments"] == {"2026-01-02T03:04:05.500000Z": 7}
    assert first["times"] == {"2026-01-02T03:04:05": "x"}

    def shown(frame):
        texts = "id", "to_json(struct(*)) text", "schema_of_variant(v) kind"
        return frame.orderBy("id").selectExpr(*texts).collect()

    assert shown(sow("orders", KINDS)) == shown(written)
    save(sow("orders", KINDS), "loud")
    assert server.records("loud", order_by="/id") == server.records("orders", order_by="/id")
    assert len(server.get(f"/v1/log?topics=loud&from={start}").rows) == 3


@pytest.mark.edge
def test_bytes_are_read_and_written_as_they_are(spark, sow, save, server):
    bodies = {"a": b"\xff\x00", "b": b"{}", "c": b"\x01" * 100}
    save(spark.createDataFrame([*bodies.items()], "key string, value binary"), "binary")
    found = sow("binary", "value binary, _key string")
    assert {row._key: bytes(row.value) for row in found.collect()} == bodies
    save(found.selectExpr("concat('z', _key) key", "value"), "binary")
    assert {bytes(row.value) for row in sow("binary", "value binary").collect()} == {
        *bodies.values()
    }
    assert len(server.records("binary", meta="true")) == 6


# Streams.


@pytest.mark.edge
def test_a_stream_copies_a_topic_batch_by_batch_and_goes_on_where_it_was(run, server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", *({"id": n} for n in range(10)))
    options = {"startingBookmark": start, "maxRowsPerTrigger": "4"}
    assert rows_of(run("orders", "loud", columns=("value", "op"), **options)) == [4, 4, 2]
    assert len(server.records("loud")) == 10
    server.publish("orders", {"id": 3, "new": True})
    assert rows_of(run("orders", "loud", columns=("value", "op"), **options)) == [1]
    assert {"id": 3, "new": True} in server.records("loud")


@pytest.mark.edge
def test_a_stream_of_the_records_and_then_the_log_goes_on_where_it_was(run, server):
    server.publish("orders", {"id": 1, "v": 1}, {"id": 2}, {"id": 3})
    server.publish("orders", {"id": 1, "v": 2})
    options = {"startingBookmark": "snapshot", "maxRowsPerTrigger": "2"}
    assert rows_of(run("orders", "loud", columns=("value", "op"), **options)) == [3]
    server.publish("orders", *({"id": n, "v": 3} for n in range(1, 4)))
    assert rows_of(run("orders", "loud", columns=("value", "op"), **options)) == [2, 1]
    assert server.records("loud") == [{"id": n, "v": 3} for n in range(1, 4)]


@pytest.mark.edge
def test_deletes_travel_by_key_between_topics_of_one_domain(run, server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("string", "a")  # another topic's changes are not read
    server.post("keyless", b'{"v": 1}', k="a")
    server.post("keyless", b'{"v": 2}', k="b")
    server.request("DELETE", records("keyless", keys="a"))
    query = run("keyless", "keyless", startingBookmark=start)
    assert rows_of(query) == [3]
    assert [row["k"] for row in server.records("keyless", meta="true")] == ["b"]


@pytest.mark.edge
@pytest.mark.slow  # test_faults.py dies at each step
def test_a_batch_that_spark_runs_again_is_applied_once(run, server, tmp_path):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", *({"id": n} for n in range(10)))
    options = {"startingBookmark": start, "maxRowsPerTrigger": "5", "columns": ("value", "op")}
    run("orders", "loud", **options)
    newest = server.get("/v1/log/extent").json["newest"]
    # As after a crash between the server's commit and Spark's own note of it.
    for file in (tmp_path / "q" / "commits").glob("*1*"):
        file.unlink()
    query = run("orders", "loud", **options)
    assert 5 in rows_of(query)
    assert server.get("/v1/log/extent?topics=loud").json["newest"] == newest


@pytest.mark.edge
def test_a_named_consumer_holds_the_log_and_follows(run, server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1})
    newest = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 2})
    options = {"startingBookmark": start, "consumer": "job", "maxRowsPerTrigger": "1"}
    run("orders", "loud", columns=("value", "op"), **options)
    (found,) = server.get("/v1/log/consumers").json
    assert found["name"] == "job"
    assert int(found["bookmark"]) >= int(newest)


TEXT = types.StringType()


def schema(kind):
    return types.StructType([types.StructField("x", kind)])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (types.TimeType(), r"column x is of type time.*, .* use cast\(column as string\)"),
        (types.DayTimeIntervalType(), "column x is of type interval"),
        (types.YearMonthIntervalType(), "column x is of type interval"),
        (types.MapType(types.DoubleType(), TEXT), "texts, whole numbers, dates or times; use map"),
        (types.ArrayType(types.TimeType()), "column x is of type time"),
        (types.MapType(TEXT, types.TimeType()), "column x is of type time"),
        (schema(types.TimeType()), r"column x\.x is of type time"),
        (schema(TEXT).add("x", TEXT), "column x has two fields of one name"),
    ],
)
def test_a_type_without_values_is_refused(kind, says):
    with pytest.raises(ClientError, match=says):
        check_types(schema(kind))


def test_all_others_are_taken():
    taken = [types.LongType(), types.DecimalType(38, 10), types.BinaryType(), types.NullType()]
    taken += [types.TimestampNTZType(), types.DateType(), types.VariantType()]
    keys = [types.IntegerType(), types.DateType(), types.TimestampType(), types.TimestampNTZType()]
    taken += [types.MapType(key, TEXT) for key in keys]
    for kind in taken:
        check_types(schema(types.ArrayType(kind)))
