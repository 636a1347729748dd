"""What users of other connectors report: schemas that change, zones, names, empty partitions.

Retention that overtakes a reader, servers and executors that are killed are in `test_faults.py` and
tests/crash/spark, with attempts that run at the same time; tokens that end in `test_secured.py`.
"""

import json
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructField, StructType

from conflated_topics.spark import asof_join, conflate
from sow.spark.http import SowServer as Client
from tests.spark import test_asof as joining
from tests.spark import test_conflate as conflating
from tests.spark.proxy import Proxy
from tests.spark.test_faults import Kills

pytestmark = [pytest.mark.spark, pytest.mark.edge]


@pytest.fixture
def read(spark, server):
    """Reads a topic by a schema."""

    def frame(schema, topic="orders", **options):
        options = {"url": server.url, "topic": topic, **options}
        return spark.read.format("sow").options(**options).schema(schema).load()

    return frame


@pytest.fixture
def save(server):
    """Writes a DataFrame into a topic."""

    def write(frame, topic="orders"):
        frame.write.format("sow").options(url=server.url, topic=topic).mode("append").save()

    return write


@pytest.fixture
def setting(spark):
    """Changes settings of the session for a test."""
    before = {}

    def change(name, value):
        before.setdefault(name, spark.conf.get(name))
        spark.conf.set(name, value)

    yield change
    for name, value in before.items():
        spark.conf.set(name, value)


def test_fields_that_come_go_and_change_their_type(spark, server, tmp_path):
    start = server.get("/v1/log/extent").json["newest"]

    def run(schema):
        frame = spark.readStream.format("sow").options(url=server.url, topic="orders")
        query = (
            frame.option("startingBookmark", start)
            .schema(schema)
            .load()
            .writeStream.format("sow")
            .options(url=server.url, topic="loud")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    server.publish("orders", {"id": 1, "px": 1.5}, {"id": 2, "px": "two", "leg": {"q": 1}})
    run("id long, px double")
    server.publish("orders", {"id": 3, "px": 3, "leg": {"q": 2, "r": 0}}, {"id": 4, "leg": 7})
    run("id long, px string, leg struct<q:long>")
    assert server.records("loud", order_by="/id") == [
        {"id": 1, "px": 1.5},
        {"id": 2, "px": None},
        {"id": 3, "px": "3", "leg": {"q": 2}},
        {"id": 4, "px": None, "leg": None},
    ]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_a_moment_is_the_same_in_every_zone_and_a_wall_clock_is_left_alone(
    spark, server, read, save, setting, zone
):
    setting("spark.sql.session.timeZone", zone)
    kinds = "at timestamp, plain timestamp_ntz, day date"
    written = spark.sql(
        "SELECT 1 id, timestamp'2026-11-01 05:30:00.123456Z' at, "  # the hour comes twice
        "timestamp_ntz'2026-03-08 02:30:00' plain, date'2026-03-08' day"  # it never comes
    )
    save(written)
    (record,) = server.records("orders")
    assert record == {
        "id": 1,
        "at": "2026-11-01T05:30:00.123456Z",
        "plain": "2026-03-08T02:30:00",
        "day": "2026-03-08",
    }
    texts = [f"string({name})" for name in ("at", "plain", "day")]
    assert read(kinds).selectExpr(*texts).first() == written.selectExpr(*texts).first()
    (row,) = read("_ts timestamp").selectExpr("unix_micros(_ts) us").collect()
    ts = server.get("/v1/log?topics=orders&from=0").rows[-1]["ts"]
    assert datetime.fromtimestamp(row.us / 1e6, UTC) == datetime.fromisoformat(ts)


def test_a_conflated_stream_and_a_join_go_on_in_another_zone(spark, setting, tmp_path):
    table, feed = conflating.log(4, 60), conflating.Feed(spark, tmp_path, "zones", lateness="1s")
    left, right = joining.logs(4)
    for rows, zone in ((table.slice(0, 30), "Asia/Kolkata"), (table.slice(30), "UTC")):
        setting("spark.sql.session.timeZone", zone)
        feed.put(rows)
        feed.run()
        frames = map(spark.createDataFrame, (left, right))
        joined = asof_join(*frames, "sym", "ts", "2s").toArrow()
        assert joining.by_id(joined) == joining.by_id(joining.JOIN.joined(left, right))
        alone = conflate(spark.createDataFrame(table), "sym", "ts", "1s").toArrow()
        assert conflating.by_time(alone) == conflating.expected(table)
    until = table["ts"][-1].as_py() - timedelta(seconds=1)
    closed = [row for row in conflating.expected(table) if row["window_end"] <= until]
    assert feed.rows() == closed
    assert len(closed) > 10


def test_nanoseconds_are_cut_in_a_time_and_kept_in_a_text(server, read, save):
    text = "2026-01-02T03:04:05.123456789Z"
    server.publish("orders", {"id": 1, "at": text})
    (row,) = read("at timestamp").selectExpr("unix_micros(at) us").collect()
    assert row.us % 1_000_000 == 123_456
    save(read("id long, at string"), "loud")
    assert server.records("loud") == [{"id": 1, "at": text}]


def test_names_differ_by_case_as_in_json(server, read, save, setting):
    server.publish("orders", {"id": 1, "Px": 1, "px": 2})
    assert read("Px long").collect() == [(1,)]
    assert read("PX long").collect() == [(None,)]
    setting("spark.sql.caseSensitive", "true")
    both = read("id long, px long, Px long")
    assert both.select("Px", "px").collect() == [(1, 2)]
    save(both, "loud")
    assert server.records("loud") == server.records("orders")


NAMES = ["a.b", "a b", "ü", "x`y", "a/b", "~", "'", '"', "\\", "$"]


def test_names_may_have_dots_and_whatever_else(spark, server, read, save):
    schema = StructType([StructField(name, LongType()) for name in ("id", *NAMES)])
    rows = [tuple(range(number, number + len(NAMES) + 1)) for number in (1, 2)]
    save(spark.createDataFrame(rows, schema))
    assert server.records("orders", order_by="/id") == [
        dict(zip(schema.names, row, strict=True)) for row in rows
    ]
    assert sorted(read(schema).collect()) == rows
    for pushdown in ("false", "true"):
        some = read(schema, pushdown=pushdown).where("`a.b` = 3 AND `a b` > 0")
        assert some.collect() == [rows[1]]
    with pytest.raises(ValueError, match=r"'a\.b'"):
        conflate(read(schema).selectExpr("*", "now() ts"), "a.b", "ts", "1s")


def test_partitions_without_rows_read_write_and_conflate_nothing(spark, server, read, save):
    before = server.get("/v1/log/extent").json["newest"]
    save(spark.range(2).repartition(7, "id"))
    save(spark.range(2).where("id > 5"))
    assert server.get(f"/v1/log/extent?topics=orders&from={before}").json["rows"] == 2
    found = read("id long, _ts timestamp", partitions="7")
    assert found.rdd.getNumPartitions() == 7
    assert sorted(row.id for row in found.collect()) == [0, 1]
    assert conflate(found, "id", "_ts", "1s").count() == 2
    assert read("id long", filter="/id > 5", partitions="3").collect() == []


def test_a_server_that_is_killed_in_the_middle_of_a_batch_read(spark, tmp_path):
    """Its snapshots are gone with it: the next life makes them again, of the log."""
    kills = Kills(tmp_path / "data", [("after", "part"), ("before", "part")])
    proxy = Proxy(kills.victim.url)
    try:
        client = Client(proxy.url)
        client.json("POST", "/v1/topics/orders/records", [{"id": n} for n in range(40)])
        frame = spark.read.format("sow").options(url=proxy.url, topic="orders", partitions=4)
        frame = frame.load()
        assert frame.rdd.getNumPartitions() == 4  # the snapshot is taken, and outlived
        client.json("POST", "/v1/topics/orders/records", [{"id": 100}])
        proxy.way = kills
        found = sorted(json.loads(row.value)["id"] for row in frame.collect())
        assert kills.moments == []
        assert found == list(range(40))
    finally:
        proxy.close()
        kills.victim.kill()
