"""A view on Spark: the log of a topic as a stream, aggregated to the rows of its groups.

Two stateful operators follow one another, for records and for groups (`sow.spark.view_state`): the
rows of a batch reflect the whole batch, and both states belong to one checkpoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from conflated_topics.spark.frames import Turn, handed_on, turned, with_bucket
from conflated_topics.state_partitions import BUCKET, COUNT, divided, gathered
from sow.spark.grouped_view import SparkView
from sow.spark.view_state import CHANGES_PACKED, LOGGED, VIEW_ROWS, take_changes, take_records

PACKED = f"{BUCKET} int, rows binary"
LOGGED_SCHEMA = pa.schema(
    [("key", pa.string()), ("op", pa.string()), ("bookmark", pa.int64()), ("value", pa.string())]
)
CHECKED = "spark.sql.streaming.unsupportedOperationCheck"


def rows_of_groups(frame: Any, view: SparkView) -> Any:
    """The log of a topic as changed rows of a view."""
    logged = with_bucket(frame.select(*LOGGED), ["key"], COUNT)
    packed = logged.mapInArrow(_packed, PACKED)
    changes = turned(packed, _records_turns(view), CHANGES_PACKED)
    return turned(changes, _groups_turns(view), VIEW_ROWS)


@contextmanager
def following_operators(spark: Any) -> Iterator[None]:
    """Allow queries in which one stateful operator follows another.

    Spark refuses two that are written in Python, because a query has one watermark, and output of
    the first may be late for the second. Neither of these operators uses time.
    """
    before = spark.conf.get(CHECKED)
    spark.conf.set(CHECKED, "false")
    try:
        yield
    finally:
        spark.conf.set(CHECKED, before)


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, packed for their buckets."""
    table, places = gathered(batches, LOGGED_SCHEMA)
    some = [(at, rows) for at, rows in enumerate(divided(table, places, COUNT)) if rows]
    if some:
        buckets, packed = zip(*some, strict=True)
        columns = [pa.array(buckets, pa.int32()), pa.array(packed, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=CHANGES_PACKED)


def _records_turns(view: SparkView) -> Turn:
    def turn(_bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        done = take_records(view, _state(stored), _came(frames))
        stored.update((done.state,))
        yield from handed_on(done.changes)

    return turn


def _groups_turns(view: SparkView) -> Turn:
    def turn(_bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        done = take_changes(view, _state(stored), _came(frames))
        stored.update((done.state,))
        yield from handed_on(done.rows)

    return turn


def _state(stored: Any) -> bytes | None:
    return bytes(stored.get[0]) if stored.exists else None


def _came(frames: Iterable[Any]) -> Sequence[bytes]:
    return [bytes(rows) for frame in frames for rows in frame["rows"].tolist()]
