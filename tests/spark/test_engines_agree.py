"""Spark's batch and stream operators say what the embedded engine says of the same log."""

import os

import pyarrow as pa
import pyarrow.parquet
import pytest

from conflated_topics.spark import conflate
from tests.conflated_topics.engines import (
    ROWS,
    book_levels,
    bus_positions,
    embedded,
    random_logs,
    said_by,
)

pytestmark = pytest.mark.spark
INTERVAL_US = 1_000_000
LEVELS = None if ROWS is None else 20_000
"""Of the recorded book: fewer than where no Spark is started, and many windows still."""
PIECES = 3


def logs(recordings):
    """All of them as one log, in order of time; no two have a key in common."""
    tables = [random_logs(300), book_levels(recordings, LEVELS), bus_positions(recordings)]
    return pa.concat_tables(tables).sort_by("ts").combine_chunks()


def end_of(log):
    """What ends the last windows: a stream hands on only what later records have ended."""
    row = {**log.slice(len(log) - 1).to_pylist()[0], "key": "end", "gone": False}
    row["ts"] = row["ts"].replace(year=2099)
    return pa.Table.from_pylist([row], schema=log.schema)


def test_batch_and_stream_say_what_the_embedded_engine_says(spark, recordings, tmp_path):
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    log = logs(recordings)
    said = embedded(log, INTERVAL_US)
    source = tmp_path / "log"
    source.mkdir()
    size = -(-len(log) // PIECES)
    parts = [log.slice(start, size) for start in range(0, len(log), size)]
    for number, part in enumerate([*parts, end_of(log)]):
        path = source / f"{number}.parquet"
        pyarrow.parquet.write_table(part, path)
        os.utime(path, (number, number))  # Spark takes them by their times
    whole = spark.read.parquet(str(source))
    options = {"delete": "gone", "max_skew": None}
    batch = conflate(whole, "key", "ts", "1s", **options).where("key <> 'end'")
    assert said_by(batch.toArrow()) == said

    pieces = spark.readStream.schema(whole.schema).option("maxFilesPerTrigger", 1)
    query = (
        conflate(pieces.parquet(str(source)), "key", "ts", "1s", **options)
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert said_by(spark.read.parquet(str(tmp_path / "out")).toArrow()) == said
    assert len(said) > 1_000
    spark.conf.set("spark.sql.shuffle.partitions", "1")
