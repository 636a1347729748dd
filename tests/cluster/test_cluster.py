"""SOW and Spark on a real cluster: separate executors, counts that have to be exact.

`make cluster` runs this; the default run does not. The rows of each test are its own, so the tests
can share one server and one cluster.
"""

import pyarrow as pa
import pytest

from conflated_topics.recorded import Spec, conflate_table
from conflated_topics.spark import conflate
from tests.cluster.daemons import WORKERS, executors_of

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS = 20_000
KEYS = 100
PARTS = 4
BATCH_ROWS = 7_000


@pytest.fixture(scope="module")
def written(spark, server):
    """The bookmark before `ROWS` rows that executors have written to `orders`."""
    start = int(server.get("/v1/log/extent").json["newest"])
    rows = spark.range(0, ROWS, 1, PARTS).selectExpr("id", f"id % {KEYS} account", "id * 0.5D px")
    rows.write.format("sow").options(url=server.url, topic="orders").mode("append").save()
    return start


def read(spark, server, topic, **options):
    return spark.read.format("sow").options(url=server.url, topic=topic, **options)


def bookmarks(frame):
    return sorted(row.bookmark for row in frame.select("bookmark").collect())


def test_both_workers_have_an_executor(spark):
    assert executors_of(spark, WORKERS) == WORKERS


def test_rows_that_executors_write_are_there_once(spark, server, written):
    extent = server.get(f"/v1/log/extent?topics=orders&from={written}").json
    assert extent["rows"] == ROWS
    assert int(extent["newest"]) == written + ROWS
    assert {row["id"] for row in server.records("orders")} == set(range(ROWS))


def test_rows_that_executors_read_are_there_once(spark, server, written):
    expected = list(range(written + 1, written + ROWS + 1))
    records = read(spark, server, "orders", partitions=str(PARTS)).load()
    assert records.rdd.getNumPartitions() == PARTS
    assert bookmarks(records) == expected
    log = read(spark, server, "orders", startingBookmark=str(written)).load()
    assert bookmarks(log) == expected
    typed = read(spark, server, "orders").schema("id long, px double").load()
    assert typed.where("px = id * 0.5").count() == ROWS


def test_a_stream_through_the_cluster_copies_every_row_once(spark, server, written, tmp_path):
    before = int(server.get("/v1/log/extent").json["newest"])
    query = (
        spark.readStream.format("sow")
        .options(url=server.url, topic="orders", startingBookmark=str(written))
        .option("maxRowsPerTrigger", str(BATCH_ROWS))
        .load()
        .select("value", "op")
        .writeStream.format("sow")
        .options(url=server.url, topic="loud")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sizes == [BATCH_ROWS, BATCH_ROWS, ROWS - 2 * BATCH_ROWS]
    extent = server.get(f"/v1/log/extent?topics=loud&from={before}").json
    assert extent["rows"] == ROWS
    assert int(extent["newest"]) == before + ROWS
    assert server.records("loud", order_by="/id") == server.records("orders", order_by="/id")


def test_conflation_on_the_cluster_is_that_of_one_table(spark, server, written):
    # Times of our own: those of the server would have all rows in one window.
    found = read(spark, server, "orders", startingBookmark=str(written)).schema(
        "account long, px double, _bookmark long"
    )
    log = found.load().selectExpr(
        "account", "px", "_bookmark", f"timestamp_millis((_bookmark - {written}) * 7) at"
    )
    conflated = conflate(log, ["account"], "at", "1s", order="_bookmark")
    spec = Spec(keys=("account",), time="at", interval_us=1_000_000, order=("_bookmark",))
    table = pa.table(log.toArrow())
    expected = conflate_table(table, spec)
    assert 0 < len(expected) < ROWS
    ours = conflated.select(expected.column_names).toArrow()
    by = [("account", "ascending"), ("window_start", "ascending")]
    assert ours.sort_by(by).to_pylist() == expected.sort_by(by).to_pylist()
