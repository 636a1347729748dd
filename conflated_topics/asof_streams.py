"""As-of joins of streams: the waiting rows of both sides, and the turn of a bucket of keys.

A row on the left is joined once no further row on the right can precede it: when the right, of any
key, has passed its time. Until then it waits. Rows of the right are kept while rows on the left,
waiting or still to come, may be joined with them. So each side waits for the other, and batch
boundaries do not change the result.

    left  ──not late──> waiting ──older than the right's watermark──> joined
    right ──not late──> kept    ──older than both watermarks: but for the last of each key──> gone

The *watermark* of a side is its newest time, less the allowed lateness; a row is late if it is
older than the watermark after earlier batches. Late rows are left out.

Buckets, packed rows and bytes are those of a conflated stream
(`conflated_topics.state_partitions`). It reads no clock and does not use Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.asof import AsOf
from conflated_topics.envelope import Envelope, from_ipc, to_ipc
from conflated_topics.recorded import times_us
from conflated_topics.reorder_buffer import AGAIN, behind, latest
from conflated_topics.state_partitions import (
    BUCKET,
    COUNT,
    NEVER_US,
    check_count,
    divided,
    gathered,
)

OUTCOME = "__outcome"
TAKES_PART = "takes part"
TIME_ONLY = "time only"
"""No row: only its time counts."""
LEFT_OUT = ("late_left", "late_right", "ahead_left", "ahead_right")
"""Outcomes of rows that are left out, and the names under which they are counted."""
OUTCOME_FIELD = pa.field(OUTCOME, pa.string())
SideName = Literal["left", "right"]
PACKED = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("left_us", pa.int64()),
        ("right_us", pa.int64()),
        ("left", pa.binary()),
        ("right", pa.binary()),
    ]
)
ENVELOPE = Envelope(b"CTRJ", 1, "as-of join", AGAIN)


@dataclass(frozen=True)
class Side:
    """The state of one side: the rows kept, the newest time, and the time before which rows are
    late."""

    rows: Any
    newest_us: int | None = None
    watermark_us: int | None = None

    def take_in(
        self, join: AsOf, came: Any, newest_us: int | None, lateness_us: int
    ) -> tuple["Side", int]:
        """The side with the new rows, and the number of late ones."""
        late = np.zeros(len(came), np.bool_)
        if self.watermark_us is not None:
            late = times_us(came[join.time], join.time) < self.watermark_us
        rows = behind(self.rows, came.filter(pa.array(~late)))
        newest_us = latest(self.newest_us, newest_us)
        watermark_us = None if newest_us is None else newest_us - lateness_us
        return Side(rows, newest_us, latest(self.watermark_us, watermark_us)), int(late.sum())


@dataclass(frozen=True)
class Sides:
    """The state of a stream after a batch. Immutable; `take_in` makes the next one."""

    left: Side
    right: Side


class Came(NamedTuple):
    """The rows of a batch on both sides, and the newest time of each, whatever the keys; None:
    there was none."""

    left: Any
    right: Any
    left_us: int | None
    right_us: int | None


def take_in(
    sides: Sides, join: AsOf, came: Came, lateness_us: int
) -> tuple[Sides, Any, dict[str, int]]:
    """Process a batch; returns the next state, the joined rows, and the number of late rows on each
    side."""
    left, late_left = sides.left.take_in(join, came.left, came.left_us, lateness_us)
    right, late_right = sides.right.take_in(join, came.right, came.right_us, lateness_us)
    ready = np.zeros(len(left.rows), np.bool_)
    if right.watermark_us is not None:
        ready = times_us(left.rows[join.time], join.time) < right.watermark_us
    joined = join.joined(left.rows.filter(pa.array(ready)), right.rows)
    waiting = left.rows.filter(pa.array(~ready)).combine_chunks()
    since_us = None
    if left.watermark_us is not None and right.watermark_us is not None:
        # Waiting rows are not older than the right's watermark, nor are later ones than the left's.
        since_us = min(left.watermark_us, right.watermark_us)
    kept = join.wanted(right.rows, since_us)
    after = Sides(replace(left, rows=waiting), replace(right, rows=kept))
    return after, joined, {"late_left": late_left, "late_right": late_right}


@dataclass(frozen=True)
class JoinBuckets:
    """The buckets of one join: its columns, the schemas of both sides, and the number of buckets.

    Raises ValueError for columns that do not fit, and for an invalid number.
    """

    join: AsOf
    left: pa.Schema
    right: pa.Schema
    lateness_us: int = 0
    count: int = COUNT

    def __post_init__(self) -> None:
        check_count(self.count)
        self.join.result_schema(self.left, self.right)

    def result_schema(self) -> pa.Schema:
        """The columns of the results of turns: those of the join, and the outcome of the row."""
        schema = self.join.result_schema(self.left, self.right)
        return schema.append(pa.field(OUTCOME, pa.string()))

    def pack(self, side: SideName, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one partition of a side, with their buckets and outcomes, as packed rows."""
        schema = (self.left if side == "left" else self.right).append(OUTCOME_FIELD)
        table, places = gathered(batches, schema)
        if not len(table):
            return
        counts = pc.is_in(table[OUTCOME], pa.array([TAKES_PART, TIME_ONLY]))
        newest = pc.max(table[self.join.time].filter(counts)).cast(pa.int64()).as_py()
        kept = np.asarray(pc.not_equal(table[OUTCOME], TIME_ONLY))
        nothing = [b""] * self.count, np.full(self.count, NEVER_US)
        rows = divided(table.filter(pa.array(kept)), places[kept], self.count)
        side_rows = rows, np.full(self.count, NEVER_US if newest is None else newest)
        left, right = (side_rows, nothing) if side == "left" else (nothing, side_rows)
        buckets = pa.array(np.arange(self.count, dtype=np.int32))
        yield pa.RecordBatch.from_arrays(
            [
                buckets,
                pa.array(left[1]),
                pa.array(right[1]),
                pa.array(left[0], pa.binary()),
                pa.array(right[0], pa.binary()),
            ],
            schema=PACKED,
        )

    def turn(
        self,
        stored: bytes | None,
        lefts: Iterable[bytes],
        rights: Iterable[bytes],
        left_us: int,
        right_us: int,
    ) -> tuple[bytes, Any]:
        """One bucket's turn: its next state, and rows with their outcomes. `stored` is its state,
        None at first, the others are packed rows."""
        left, aside_left = _unpacked(lefts, self.left)
        right, aside_right = _unpacked(rights, self.right)
        came = Came(left, right, _time(left_us), _time(right_us))
        sides, rows, late = take_in(self._sides(stored), self.join, came, self.lateness_us)
        outcomes = aside_left + aside_right
        for name, number in late.items():
            outcomes += [name] * number
        return self._bytes(sides), self.with_outcomes(rows, outcomes)

    def whole(self, left: Any, right: Any) -> Any:
        """Both sides at once, each with its outcomes: the join of a batch."""
        left, aside_left = _taken(left)
        right, aside_right = _taken(right)
        return self.with_outcomes(self.join.joined(left, right), aside_left + aside_right)

    def with_outcomes(self, rows: Any, outcomes: Sequence[str]) -> Any:
        """The joined rows, followed by one for each row that is left out."""
        schema = self.result_schema()
        rows = rows.append_column(OUTCOME, pa.array([TAKES_PART] * len(rows), pa.string()))
        aside = {field.name: pa.nulls(len(outcomes), field.type) for field in schema}
        aside[OUTCOME] = pa.array(outcomes, pa.string())
        return pa.concat_tables([rows.cast(schema), pa.table(aside, schema)])

    def _sides(self, stored: bytes | None) -> Sides:
        if stored is None:
            return Sides(Side(self.left.empty_table()), Side(self.right.empty_table()))
        about, tables = ENVELOPE.open(stored)
        ENVELOPE.refuse_another(about, self._about())
        both = zip(tables, about["times"], strict=True)
        return Sides(*(Side(from_ipc(table), *times) for table, times in both))

    def _bytes(self, sides: Sides) -> bytes:
        tables = [to_ipc(side.rows) for side in (sides.left, sides.right)]
        times = [[side.newest_us, side.watermark_us] for side in (sides.left, sides.right)]
        return ENVELOPE.seal({**self._about(), "times": times}, tables)

    def _about(self) -> dict[str, Any]:
        """The settings that a state must share to be continued."""
        join = self.join
        return {
            "keys": list(join.keys),
            "time": join.time,
            "tolerance_us": join.tolerance_us,
            "order": list(join.order),
            "buckets": self.count,
        }


def _time(reported_us: int) -> int | None:
    return None if reported_us == NEVER_US else reported_us


def _unpacked(packed: Iterable[bytes], schema: pa.Schema) -> tuple[Any, list[str]]:
    tables = [from_ipc(rows) for rows in packed if rows]
    return _taken(pa.concat_tables([schema.append(OUTCOME_FIELD).empty_table(), *tables]))


def _taken(table: Any) -> tuple[Any, list[str]]:
    """The rows that take part, and the outcomes of those that are left out and counted."""
    takes_part = pc.equal(table[OUTCOME], TAKES_PART)
    aside = table[OUTCOME].filter(pc.is_in(table[OUTCOME], pa.array(LEFT_OUT))).to_pylist()
    return table.filter(takes_part).drop_columns(OUTCOME), aside
