"""Spark's batch and stream operators say what the embedded engine says of the same log."""

import shutil

import pyarrow as pa
import pyarrow.parquet
import pytest

from conflated_topics.spark import conflate
from tests.conflated_topics.engines import (
    DATA,
    ROWS,
    book_levels,
    bus_positions,
    embedded,
    random_logs,
    said_by,
)

pytestmark = pytest.mark.spark
has_data = pytest.mark.skipif(not DATA.exists(), reason="the recorded data is not here")
PIECES = 3


@pytest.fixture
def conflated(spark, tmp_path):
    """What Spark says of a log, as a batch and as a stream of several pieces."""

    def run(log, interval):
        source = tmp_path / "log"
        source.mkdir()
        # What is in one piece of a stream and not in the next must not matter, nor its order in it.
        size = -(-len(log) // PIECES)
        for piece in range(PIECES):
            part = log.slice(piece * size, size)
            pyarrow.parquet.write_table(part, source / f"{piece}.parquet")
        # What ends the last windows: a stream hands on only what later records have ended.
        last = pa.table(
            [["end"], log["ts"].slice(len(log) - 1), ["{}"], [False]], schema=log.schema
        ).to_pylist()
        last[0]["ts"] = last[0]["ts"].replace(year=2099)
        pyarrow.parquet.write_table(
            pa.Table.from_pylist(last, schema=log.schema), source / f"{PIECES}.parquet"
        )
        schema = spark.read.parquet(str(source)).schema
        batch = conflate(spark.read.parquet(str(source)), "key", "ts", interval, delete="gone")
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            conflate(rows, "key", "ts", interval, delete="gone")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        stream = spark.read.parquet(str(tmp_path / "out")).toArrow()
        found = said_by(batch.where("key <> 'end'").toArrow()), said_by(stream)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        return found

    return run


def test_they_agree_on_random_logs(conflated):
    log = random_logs(300)
    said = embedded(log, 250_000)
    assert conflated(log, "250ms") == (said, said)


@has_data
def test_they_agree_on_recorded_order_books(conflated):
    log = book_levels(ROWS)
    said = embedded(log, 1_000_000)
    assert conflated(log, "1s") == (said, said)


@has_data
def test_they_agree_on_recorded_bus_positions(conflated):
    log = bus_positions()
    said = embedded(log, 600_000_000)
    assert conflated(log, "10m") == (said, said)
