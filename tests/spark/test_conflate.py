"""`conflate` on Spark: batches and streams against the core, and the core against the server's."""

import json
import os
import random
from collections import Counter
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from conflated_topics.recorded import Spec, conflate_table
from conflated_topics.spark import conflate
from tests.edge.serving import records
from tests.spark.stopping import forget_last_batch

pytestmark = pytest.mark.spark
Observation = pytest.importorskip("pyspark.sql").Observation

UTC = pa.timestamp("us", tz="UTC")
BEFORE = datetime(1970, 1, 1, tzinfo=UTC_ZONE)
COLUMNS = pa.schema(
    [
        ("sym", pa.string()),
        ("ts", UTC),
        ("bookmark", pa.int64()),
        ("px", pa.float64()),
        ("big", pa.int64()),
        ("leg", pa.struct([("q", pa.int64())])),
        ("gone", pa.bool_()),
    ]
)


def log(seed, count=400, keys=7):
    """A random log in order of time; whole numbers beyond what a float holds, and nulls."""
    chance = random.Random(seed)
    rows, now_us = [], 1_700_000_000_000_000
    for bookmark in range(count):
        now_us += chance.choice([0, 0, 1, 300_000, 700_000, 1_000_000])
        rows.append(
            {
                "sym": f"k{chance.randrange(keys)}",
                "ts": now_us,
                "bookmark": bookmark,
                "px": chance.choice([None, chance.random()]),
                "big": chance.choice([None, 2**60 + bookmark]),
                "leg": chance.choice([None, {"q": bookmark}]),
                "gone": chance.random() < 0.2,
            }
        )
    columns = {name: [row[name] for row in rows] for name in COLUMNS.names}
    columns["ts"] = pa.array(columns["ts"], pa.int64()).cast(UTC)
    return pa.table(columns, schema=COLUMNS)


def expected(table, policy="latest", delete=None):
    spec = Spec(("sym",), "ts", 1_000_000, policy, ("bookmark",), delete)
    return by_time(conflate_table(table, spec))


def by_time(table):
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: (row["window_end"] or BEFORE, row["sym"]))


@pytest.mark.parametrize(
    ("policy", "delete"),
    [
        ("latest", None),
        ("merge", None),
        ({"px": "sum", "big": "max", "leg": "first"}, None),
        ({"big": "count"}, "gone"),
        ("merge", "gone"),
    ],
)
def test_a_batch_is_conflated_as_the_core_does_it(spark, policy, delete):
    table = log(1)
    found = conflate(spark.createDataFrame(table), ["sym"], "ts", "1s", policy, delete=delete)
    assert by_time(found.toArrow()) == expected(table, policy, delete)
    assert len(expected(table, policy, delete)) > 50


def test_the_least_and_greatest_are_those_of_spark(spark):
    values = "(0, double('nan')), (1, -0.5D), (2, double('inf')), (3, null)"
    frame = spark.sql(f"SELECT 'a' AS k, timestamp_millis(n) AS ts, x FROM VALUES {values} t(n, x)")
    for policy in ("min", "max"):
        (row,) = conflate(frame, "k", "ts", "1s", policy).collect()
        (same,) = frame.selectExpr(f"{policy}(x) AS x").collect()
        assert str(row.x) == str(same.x)


def test_an_empty_batch_is_empty(spark):
    frame = spark.createDataFrame(log(1).slice(0, 0))
    assert conflate(frame, "sym", "ts", "1s").count() == 0


def test_several_intervals_are_each_what_it_is_alone(spark):
    table = log(1)
    frame = spark.createDataFrame(table)
    rows = conflate(frame, "sym", "ts", ["1s", "1000 ms"], delete="gone").toArrow().to_pylist()
    for written in ("1s", "1000 ms"):
        of_one = [row for row in rows if row["interval"] == written]
        alone = [{**row, "interval": written} for row in expected(table, delete="gone")]
        assert sorted(of_one, key=lambda row: (row["window_end"], row["sym"])) == alone
    assert len(rows) == 2 * len(alone)


class Feed:
    """A directory that a stream reads, a file at a time, and the rows that the stream has given."""

    def __init__(self, spark, directory, name, **options):
        self.spark, self.directory, self.name, self.options = spark, directory, name, options
        self.files = 0
        (directory / "in").mkdir()
        self.out = directory / "out"

    def put(self, table):
        import pyarrow.parquet

        self.files += 1
        path = self.directory / "in" / f"{self.files:03}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (self.files, self.files))  # Spark takes them by their times

    def run(self, *columns):
        """Read what is there, as a query of its own that goes on from the last one's checkpoint."""
        source = (
            self.spark.readStream.schema(self.spark.createDataFrame(log(1, 1)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.directory / "in"))
        )
        chosen = source.selectExpr(*columns or ["*"])
        found = conflate(chosen, ["sym"], "ts", **{"interval": "1s", **self.options})
        query = (
            found.writeStream.format("parquet")
            .option("path", str(self.out))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        self.progress = query.recentProgress

    def counted(self):
        """What the last run has counted of rows that took no part."""
        sums = Counter({"late": 0, "ahead": 0, "without_key": 0})
        for progress in self.progress:
            (name,) = progress["observedMetrics"]
            assert name.startswith("conflation ")
            sums.update(progress["observedMetrics"][name].asDict())
        return dict(sums)

    def rows(self):
        return by_time(self.spark.read.parquet(str(self.out)).toArrow())


def out_of_order(table, by, seed):
    """The same rows, each up to `by` places later."""
    chance = random.Random(seed)
    places = [place + chance.randrange(by) for place in range(len(table))]
    return table.take(pa.array(sorted(range(len(table)), key=places.__getitem__)))


def test_a_stream_in_any_pieces_and_partitions_gives_what_the_whole_does(spark, tmp_path):
    table = log(2)
    coming = out_of_order(table, 8, 2)  # at most 7 s, since no two are a second apart or more
    feed = Feed(
        spark, tmp_path, "pieces", policy="merge", delete="gone", lateness="7s", late="late",
        buckets=3,
    )  # fmt: skip
    ahead = {**table.slice(0, 1).to_pylist()[0]}
    ahead["ts"] = datetime.now(UTC_ZONE) + timedelta(days=365)  # and does not stop the others
    feed.put(pa.concat_tables([table.from_pylist([ahead], COLUMNS), coming.slice(0, 37)]))
    feed.run()  # and from its checkpoint once more below, with other partitions
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    early = table.slice(100, 1)  # what is seconds too late by then
    for piece in (coming.slice(37, 1), coming.slice(38), early):
        feed.put(piece)
    feed.run()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    until = table["ts"][-1].as_py() - timedelta(seconds=7)
    closed = [row for row in expected(table, "merge", "gone") if row["window_end"] <= until]
    late = [row for row in feed.rows() if row.pop("late")]
    assert [row for row in feed.rows() if not row.pop("late")] == closed
    assert len(closed) > 50
    nowhere = {"window_start": None, "window_end": None}
    late.sort(key=lambda row: row["ts"])
    assert late == [{**early.to_pylist()[0], **nowhere}, {**ahead, **nowhere}]
    assert feed.counted() == {"late": 1, "ahead": 0, "without_key": 0}


def one_by_one(table, seconds, until):
    """The windows of each key that ended by then, found row by row."""
    open_windows, closed, interval = {}, [], timedelta(seconds=seconds)
    for row in table.to_pylist():  # in order of time and bookmark
        start, _ = open_windows.get(row["sym"], (row["ts"], row))
        if row["ts"] >= start + interval:
            closed.append(open_windows[row["sym"]])
            start = row["ts"]
        open_windows[row["sym"]] = (start, row)
    ends = [(start + interval, start, row) for start, row in (*closed, *open_windows.values())]
    return sorted(
        (end, row["sym"], start, row["bookmark"]) for end, start, row in ends if end <= until
    )


def test_a_stream_of_several_intervals_goes_on_with_each_as_one_by_one(spark, tmp_path):
    """Out of order, in one pass over the rows, and with each last batch made once more."""
    table, allowed = log(3, 90), timedelta(seconds=7)
    coming = out_of_order(table, 8, 3)
    feed = Feed(
        spark, tmp_path, "several", interval=["1s", "2s"], buckets=2, late="late", lateness="7s"
    )
    early = table.slice(0, 1)  # what is seconds too late by then
    pieces = (coming.slice(0, 45), pa.concat_tables([coming.slice(45), early]))
    for rows, partitions in zip(pieces, ("1", "3"), strict=True):
        feed.put(rows)
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        feed.run()
        assert len(feed.progress[0]["observedMetrics"]) == 1
        forget_last_batch(tmp_path / "checkpoint", tmp_path / "out")
    feed.run()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    assert feed.counted() == {"late": 1, "ahead": 0, "without_key": 0}
    rows = feed.rows()
    (late,) = (row for row in rows if row["late"])
    assert late["interval"] is None
    until = table["ts"][-1].as_py() - allowed
    for written, seconds in (("1s", 1), ("2s", 2)):
        found = [
            (row["window_end"], row["sym"], row["window_start"], row["bookmark"])
            for row in rows
            if row["interval"] == written
        ]
        assert found == one_by_one(table, seconds, until)
        assert len(found) > 20


def test_rows_without_a_key_and_rows_far_ahead_take_no_part_in_a_batch(spark):
    table = log(1, 5)
    odd = table.slice(0, 2).to_pylist()
    odd[0]["sym"], odd[1]["ts"] = None, datetime.now(UTC_ZONE) + timedelta(days=365)
    frame = spark.createDataFrame(pa.concat_tables([table, table.from_pylist(odd, COLUMNS)]))
    with pytest.raises(Exception, match="1 records have no 'sym', which is a key"):
        conflate(frame, "sym", "ts", "1s").count()
    counts = Observation("odd")
    found = conflate(frame, "sym", "ts", "1s", null_keys="drop", late="aside", counts=counts)
    rows = found.toArrow().to_pylist()
    (ahead,) = (row for row in rows if row.pop("aside"))
    assert (ahead["sym"], ahead["window_start"]) == (odd[1]["sym"], None)
    rows = [row for row in rows if row != ahead]
    assert sorted(rows, key=lambda row: (row["window_end"], row["sym"])) == expected(table)
    assert counts.get == {"late": 0, "ahead": 1, "without_key": 1}


@pytest.mark.slow
def test_what_may_be_null_changes_nothing_about_a_state(spark, tmp_path):
    feed = Feed(spark, tmp_path, "nullable")
    table = log(3, 50).drop_columns("px").append_column("px", pa.array([1.0] * 50))
    feed.put(table.select(COLUMNS.names).slice(0, 25))
    feed.run()
    feed.put(table.select(COLUMNS.names).slice(25))
    feed.run(*("coalesce(px, 0D) AS px" if name == "px" else name for name in COLUMNS.names))
    until = table["ts"][-1].as_py()
    closed = [row for row in expected(table.select(COLUMNS.names)) if row["window_end"] <= until]
    assert feed.rows() == closed
    feed.put(table.select(COLUMNS.names))
    with pytest.raises(Exception, match="has its columns in another order"):
        feed.run(*COLUMNS.names[::-1])


@pytest.mark.slow
def test_another_conflation_does_not_take_up_a_checkpoint(spark, tmp_path):
    feed = Feed(spark, tmp_path, "spec")
    feed.put(log(3, 50))
    feed.run()
    feed.put(log(3, 50))
    feed.options = {"policy": "merge"}
    with pytest.raises(Exception, match="this state belongs to another conflation"):
        feed.run()
    feed.options = {"buckets": 8}
    with pytest.raises(Exception, match="it has buckets 32, not 8; continue with its settings"):
        feed.run()


@pytest.mark.slow  # the next one conflates a topic from its log into another, too
@pytest.mark.edge
def test_a_topic_is_conflated_from_its_log_into_another(spark, server, tmp_path):
    start = server.get("/v1/log/extent").json["newest"]
    for n in range(30):
        server.publish("orders", {"id": n % 3, "n": n})
    server.request("DELETE", records("orders", filter="/id = 0"))
    log_rows = server.get(f"/v1/log?from={start}&topics=orders").rows
    source = (
        spark.readStream.format("sow")
        .options(url=server.url, topic="orders", startingBookmark=start)
        .load()
    )
    found = conflate(
        source.selectExpr("*", "op <> 'publish' as gone"), "key", "ts", "1ms", delete="gone"
    )
    query = (
        found.where("not gone")
        .selectExpr("value")
        .writeStream.format("sow")
        .options(url=server.url, topic="loud")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = server.get(f"/v1/log?from={start}&topics=loud").rows
    assert 3 <= len(copied) <= len(log_rows)
    assert {json.dumps(row["d"]) for row in copied} <= {
        json.dumps(row["d"]) for row in log_rows if "d" in row
    }


@pytest.mark.edge
def test_the_last_windows_of_a_silent_topic_are_handed_on(spark, server, tmp_path):
    start = server.get("/v1/log/extent").json["newest"]
    source = (
        spark.readStream.format("sow")
        .options(url=server.url, topic="orders", startingBookmark=start, closesWithin="200ms")
        .load()
    )
    query = (
        conflate(source, "key", "ts", "200ms", buckets=2)
        .select("value")
        .writeStream.format("sow")
        .options(url=server.url, topic="loud")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        with server.socket() as client:
            client.ask({"c": "subscribe", "t": "loud"})
            for n in (1, 2):
                server.publish("orders", {"id": 1, "n": n})
                # Nothing comes after it, and it is handed on all the same.
                assert client.until(c="p")[-1]["d"] == {"id": 1, "n": n}
    finally:
        query.stop()
