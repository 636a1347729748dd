"""`asof_join` on Spark: batches and streams against the core."""

import os
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet
import pytest

from conflated_topics.asof import AsOf
from conflated_topics.spark import asof_join
from tests.spark.stopping import forget_last_batch

pytestmark = pytest.mark.spark
Observation = pytest.importorskip("pyspark.sql").Observation

BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
US = pa.timestamp("us", tz="UTC")
TRADES = pa.schema([("sym", pa.string()), ("ts", US), ("id", pa.int64())])
QUOTES = pa.schema([("sym", pa.string()), ("ts", US), ("bookmark", pa.int64()), ("px", "float64")])
JOIN = AsOf(("sym",), "ts", 2_000_000, ("bookmark",))


def logs(seed, count=300):
    """A log of trades and one of quotes, in the order of their times."""
    chance = random.Random(seed)
    left, right, now = [], [], BEGIN
    for number in range(count):
        now += timedelta(seconds=chance.choice([0, 0.3, 1, 4]))
        row = {"sym": chance.choice(["a", "b", None]), "ts": now}
        if chance.random() < 0.5:
            left.append({**row, "id": number})
        else:
            right.append({**row, "bookmark": number, "px": chance.random()})
    return pa.Table.from_pylist(left, TRADES), pa.Table.from_pylist(right, QUOTES)


def by_id(table):
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_a_batch_is_joined_as_the_core_does_it(spark):
    left, right = logs(1)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    ahead = pa.Table.from_pylist([{"sym": "a", "ts": tomorrow, "id": -1}], TRADES)
    counts = Observation()
    frames = map(spark.createDataFrame, (pa.concat_tables([left, ahead]), right))
    joined = asof_join(*frames, "sym", "ts", "2s", counts=counts)
    assert joined.columns == ["sym", "ts", "id", "bookmark", "px"]
    assert by_id(joined.toArrow()) == by_id(JOIN.joined(left, right))
    nothing = {"late_left": 0, "late_right": 0, "ahead_right": 0}
    assert counts.get == {**nothing, "ahead_left": 1}


def test_sides_that_do_not_fit_are_refused(spark):
    left, right = map(spark.createDataFrame, logs(1, 20))
    with pytest.raises(ValueError, match="both sides have a column 'id'"):
        asof_join(left, right.withColumn("id", right.bookmark), "sym", "ts", "2s")
    with pytest.raises(ValueError, match="read both as streams"):
        asof_join(spark.readStream.format("rate").load(), right, "sym", "ts", "2s")


class Fed:
    """Two directories that a stream joins, a file of each at a time."""

    def __init__(self, spark, directory):
        self.spark, self.directory = spark, directory

    def put(self, name, number, table):
        (self.directory / name).mkdir(exist_ok=True)
        path = self.directory / name / f"{number:03}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (number, number))  # Spark takes them by their times

    def run(self, **options):
        """Join what is there, going on from the last run's checkpoint."""
        left, right = (
            self.spark.readStream.schema(self.spark.createDataFrame(schema.empty_table()).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.directory / name))
            for name, schema in (("trades", TRADES), ("quotes", QUOTES))
        )
        joined = asof_join(left, right, "sym", "ts", "2s", buckets=4, **options)
        query = (
            joined.writeStream.format("parquet")
            .option("path", str(self.directory / "out"))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query.recentProgress

    def rows(self):
        return by_id(self.spark.read.parquet(str(self.directory / "out")).toArrow())


def test_a_stream_in_any_pieces_and_partitions_gives_what_the_whole_does(spark, tmp_path):
    left, right = logs(2)
    fed = Fed(spark, tmp_path)
    for name, table, cuts in (("trades", left, [0, 5, 90]), ("quotes", right, [0, 40, 60])):
        for number, (start, stop) in enumerate(pairwise(cuts)):
            fed.put(name, number, table.slice(start, stop - start))
    fed.run()
    fed.put("trades", 8, left.slice(90))
    fed.put("quotes", 8, right.slice(60))
    # Of another run, with other partitions; and seconds too late by then.
    fed.put("quotes", 9, right.slice(0, 1))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    progress = fed.run(counts="left out")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    newest = right["ts"][-1].as_py()
    expected = [row for row in by_id(JOIN.joined(left, right)) if row["ts"] < newest]
    assert len(expected) > 100
    assert fed.rows() == expected
    late = [one["observedMetrics"]["left out"]["late_right"] for one in progress]
    assert sum(late) == 1


def one_by_one(left, right):
    """For each row on the left the price of the last fitting one on the right, looked for."""
    found = {}
    for trade in left:
        fitting = [
            (quote["ts"], quote["bookmark"], quote["px"])
            for quote in right
            if trade["sym"] is not None
            and quote["sym"] == trade["sym"]
            and timedelta(0) <= trade["ts"] - quote["ts"] <= timedelta(seconds=2)
        ]
        found[trade["id"]] = max(fitting)[2] if fitting else None
    return found


def test_rows_out_of_order_are_joined_as_one_by_one_also_when_a_batch_is_made_again(
    spark, tmp_path
):
    chance, late = random.Random(3), timedelta(seconds=5)
    sides = logs(3)
    fed, runs = Fed(spark, tmp_path), ("1", "3", "2")
    coming = [
        sorted(side.to_pylist(), key=lambda row: row["ts"] + late * chance.random())
        for side in sides
    ]
    for number, partitions in enumerate(runs):
        for name, rows, schema in zip(("trades", "quotes"), coming, (TRADES, QUOTES), strict=True):
            size = len(rows) // len(runs) + 1
            some = rows[number * size : (number + 1) * size]
            fed.put(name, number, pa.Table.from_pylist(some, schema))
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        fed.run(lateness=late, counts="left out")
        forget_last_batch(tmp_path / "checkpoint", tmp_path / "out")
    progress = fed.run(lateness=late, counts="left out")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    left, right = (side.to_pylist() for side in sides)
    until = max(row["ts"] for row in right) - late
    expected = one_by_one([row for row in left if row["ts"] < until], right)
    assert {row["id"]: row["px"] for row in fed.rows()} == expected
    assert len(fed.rows()) == len(expected) > 80
    assert sum(px is not None for px in expected.values()) > 20
    assert all(one["observedMetrics"]["left out"]["late_left"] == 0 for one in progress)
