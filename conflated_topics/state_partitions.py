"""The buckets of a conflated stream: how rows reach them, and the turn of each.

The keys of a stream are divided into a constant number of *buckets*, which belongs to the state,
not to the cores or partitions of a run, so that any run can continue another. A bucket has its
state as bytes, and its turn is a function of these and of new rows.

    rows + bucket + verdict ──pack──> one packed row for each bucket ──turn──> state, rows

Packed rows are Arrow streams, so that every type stays as it is, and each bucket gets the newest
time of all keys. It does not use Spark, which brings the packed rows of a bucket together and keeps
its bytes (`conflated_topics.spark`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.envelope import from_ipc, to_ipc
from conflated_topics.recorded import State, refuse_missing_keys, standing_alone, times_us
from conflated_topics.reorder_buffer import OrderedStream, fall_silent, take_in
from conflated_topics.spec import Spec

VERDICT = "__verdict"

TAKEN = 0
"""It takes part."""
LATE = 1
"""Older than the allowed lateness."""
AHEAD = 2
"""Further ahead of the clock than allowed."""
KEYLESS = 3
"""Null in a key."""
TICK = 4
"""No record: only its time counts."""

ASIDE = (LATE, AHEAD)
"""Records that may be emitted beside the result. One without a key cannot: it belongs to none."""
COUNTED = {"late": LATE, "ahead": AHEAD, "without_key": KEYLESS}
"""The names under which they are counted."""

BUCKET = "__bucket"
PACKED = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("newest_us", pa.int64()),
        ("ends", pa.bool_()),
        ("rows", pa.binary()),
    ]
)
NEVER_US = -(2**63)
"""Stands for a missing newest time; a null would make other numbers of the column floats."""
COUNT = 32
"""Enough for as many cores, few enough for one: an idle bucket's turn takes about 1 ms."""
COUNT_MAX = 4096
"""Tasks that any cluster can run for a stream; each bucket is a state that is read every time."""


@dataclass(frozen=True)
class Buckets:
    """The buckets of one stream: its spec, its columns, and the number of buckets.

    `schema` is that of the rows without their bucket and verdict. Raises ValueError for an invalid
    number.
    """

    spec: Spec
    schema: pa.Schema
    lateness_us: int = 0
    count: int = COUNT

    def __post_init__(self) -> None:
        check_count(self.count)

    def pack(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, whose last columns are bucket and verdict, as packed rows."""
        table, places = gathered(batches, self.schema.append(pa.field(VERDICT, pa.int8())))
        if not len(table):
            return
        verdicts = np.asarray(table[VERDICT])
        taken = table.filter(pa.array(verdicts == TAKEN))
        refuse_missing_keys(taken, self.spec)
        times_us(taken[self.spec.time], self.spec.time)
        timed = table[self.spec.time].filter(pa.array((verdicts == TAKEN) | (verdicts == TICK)))
        newest = pc.max(timed).cast(pa.int64()).as_py()
        kept = verdicts != TICK
        rows = divided(table.filter(pa.array(kept)), places[kept], self.count)
        yield self._packed(NEVER_US if newest is None else newest, False, rows)

    def end(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Packed rows for all buckets that mark the end of the log."""
        if any(len(batch) for batch in batches):
            yield self._packed(NEVER_US, True, [b""] * self.count)

    def _packed(self, newest_us: int, ends: bool, rows: list[bytes]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(self.count, dtype=np.int32)),
                pa.array(np.full(self.count, newest_us)),
                pa.array(np.full(self.count, ends)),
                pa.array(rows, pa.binary()),
            ],
            schema=PACKED,
        )

    def turn(
        self, stored: bytes | None, rows: Iterable[bytes], newest_us: int, ends: bool
    ) -> "Turn":
        """One bucket's turn; `stored` is its state, None at first, the others are packed rows."""
        stream, schema = self._stream(stored), self.schema.append(pa.field(VERDICT, pa.int8()))
        tables = [from_ipc(packed) for packed in rows if packed]
        table = pa.concat_tables([schema.empty_table(), *tables])
        taken = pc.equal(table[VERDICT], TAKEN)
        came = table.filter(taken).drop_columns(VERDICT)
        reported_us = None if newest_us == NEVER_US else newest_us
        stream, out, late = take_in(stream, came, reported_us, self.lateness_us, ends)
        given = [_judged(out, TAKEN)]
        if len(late):
            given.append(_judged(standing_alone(late, self.spec), LATE))
        if len(came) < len(table):
            aside = table.filter(pc.invert(taken))
            alone = standing_alone(aside.drop_columns(VERDICT), self.spec)
            given.append(alone.append_column(VERDICT, aside[VERDICT]))
        return self._turned(stream, pa.concat_tables(given))

    def silence(self, stored: bytes, now_us: int) -> "Turn":
        """The turn when nothing has come for a while, at `now_us` by the clock."""
        stream, out = fall_silent(self._stream(stored), now_us)
        return self._turned(stream, _judged(out, TAKEN))

    def result_schema(self) -> pa.Schema:
        """The columns of the results of turns."""
        return self.spec.output_schema(self.schema).append(pa.field(VERDICT, pa.int8()))

    def _stream(self, stored: bytes | None) -> OrderedStream:
        if stored is None:
            return OrderedStream(State(self.spec))
        return OrderedStream.from_bytes(stored, self.spec, self.count)

    def _turned(self, stream: OrderedStream, rows: pa.Table) -> "Turn":
        kept = (stream.waiting, stream.state.pending)
        waits = any(table is not None and len(table) for table in kept)
        return Turn(stream.to_bytes(self.count), rows, waits)


@dataclass(frozen=True)
class Turn:
    """The result of a turn: the next state, the rows with their verdicts, and whether the state
    holds more that a later turn could emit."""

    state: bytes
    rows: pa.Table
    waits: bool


def check_count(count: int) -> None:
    """Raise ValueError for an invalid number of buckets."""
    if type(count) is not int or not 1 <= count <= COUNT_MAX:
        raise ValueError(f"{count!r} is no number of buckets; write a number from 1 to {COUNT_MAX}")


def gathered(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> tuple[pa.Table, "np.typing.NDArray[np.int32]"]:
    """The rows of one partition, in the columns of `schema`, and the bucket of each."""
    places, tables = [np.empty(0, np.int32)], []
    for batch in batches:
        at = batch.schema.get_field_index(BUCKET)
        places.append(batch.column(at).to_numpy())
        tables.append(batch.remove_column(at).cast(schema))
    return pa.Table.from_batches(tables, schema), np.concatenate(places)


def divided(table: pa.Table, places: "np.typing.NDArray[np.int32]", count: int) -> list[bytes]:
    """The rows of each bucket, packed; `places` is the bucket of each row."""
    by_bucket = np.argsort(places, kind="stable")
    table, counts = table.take(pa.array(by_bucket)), np.bincount(places, minlength=count)
    stops = np.cumsum(counts)
    return [
        to_ipc(table.slice(stop - count, count)) if count else b""
        for stop, count in zip(stops.tolist(), counts.tolist(), strict=True)
    ]


def _judged(rows: pa.Table, verdict: int) -> pa.Table:
    return rows.append_column(VERDICT, pa.array(np.full(len(rows), verdict, np.int8)))
