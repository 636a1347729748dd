"""The buckets of a conflated stream: how rows reach them, in which order, and the turn of each.

The keys of a stream are divided into a constant number of *buckets*, which belongs to the state,
not to the cores or partitions of a run, so that any run can continue another. A bucket has its
state as bytes, and its turn is a function of these and of new rows.

    rows + bucket + verdict ──pack──> one packed row for each bucket ──turn──> state, rows

Packed rows are Arrow streams, so that every type stays as it is, and each bucket gets the newest
time of all keys. It does not use Spark, which brings the packed rows of a bucket together and keeps
its bytes (`conflated_topics.spark`).

The core (`conflated_topics.recorded`) folds records in the order of their times, and cannot undo a
fold. So records wait in their bucket until no older one can come any more (`OrderedStream`).

    came ──> waiting ──older than the watermark──> core ──> rows
      └──older than the watermark after earlier batches──> late, never folded

The *watermark* is the newest time of all records, less the allowed lateness. A record is late if it
is older than the watermark after earlier batches; those of its own batch do not count. The results
are the windows of the records that were not late, cut as if these had come in order: batch
boundaries do not change them.

Records of one time wait for each other, too, so that the columns that break ties decide. It reads
no clock, and sees only some of the keys, except that the newest time is that of all of them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.folds import WINDOW_END, Spec
from conflated_topics.recorded import (
    Envelope,
    State,
    continued,
    from_ipc,
    refuse_missing_keys,
    standing_alone,
    step,
    times_us,
    to_ipc,
)

MAGIC_OF_EARLIER_RELEASES = b"CTRS"
AGAIN = (
    "begin again with a new checkpoint (of a pipeline: remove its Checkpoint, or its directory "
    "under pipelines in the data directory)"
)
ENVELOPE = Envelope(b"CTRO", 1, "conflated stream", AGAIN)


@dataclass(frozen=True)
class OrderedStream:
    """The state of a stream after a batch. Immutable; each function makes the next one.

    `newest_us` is the newest time reported, `watermark_us` the time before which the core has all
    records, and `waiting` the records that it does not have yet.
    """

    state: State
    newest_us: int | None = None
    watermark_us: int | None = None
    waiting: Any = None

    def to_bytes(self, buckets: int) -> bytes:
        """This stream, for `from_bytes`, as one of `buckets` parts by key."""
        waiting = b"" if self.waiting is None else to_ipc(self.waiting)
        about = {"buckets": buckets, "newest_us": self.newest_us, "watermark_us": self.watermark_us}
        return ENVELOPE.seal(about, [self.state.to_bytes(), waiting])

    @classmethod
    def from_bytes(cls, data: bytes, spec: Spec, buckets: int) -> "OrderedStream":
        """The stream that `to_bytes` wrote; raises ValueError for one that cannot continue.

        That is one of another spec, or of another number of buckets, which distributes keys
        differently.
        """
        if data[:4] == MAGIC_OF_EARLIER_RELEASES:
            raise ValueError(
                "this state was written by an earlier release, in which it depended on the number "
                f"of shuffle partitions, and cannot be continued; {AGAIN}"
            )
        about, (state, waiting) = ENVELOPE.open(data)
        ENVELOPE.refuse_another(about, {"buckets": buckets})
        return cls(
            State.from_bytes(state, spec),
            about["newest_us"],
            about["watermark_us"],
            from_ipc(waiting) if waiting else None,
        )


def take_in(
    stream: OrderedStream, came: Any, newest_us: int | None, lateness_us: int, ends: bool = False
) -> tuple[OrderedStream, Any, Any]:
    """Process a batch; returns the next stream, the rows of windows that ended, and late records.

    `newest_us` is the newest time of this batch, whatever the keys; None: there was none. Records
    that are up to `lateness_us` older than that of an earlier batch are folded in their order.
    `ends` marks the last batch: every window is emitted, and later records older than the newest
    one are late, since they might be older than emitted ones.
    """
    spec = stream.state.spec
    time_us = times_us(came[spec.time], spec.time)
    late = np.zeros(len(came), np.bool_)
    if stream.watermark_us is not None:
        late = time_us < stream.watermark_us
    records = behind(stream.waiting, came.filter(pa.array(~late)))
    newest_us = latest(stream.newest_us, newest_us)
    allowed_us = 0 if ends else lateness_us
    watermark_us = None if newest_us is None else newest_us - allowed_us
    stream = replace(
        stream, newest_us=newest_us, watermark_us=latest(stream.watermark_us, watermark_us)
    )
    stream, out = _handed_over(stream, records, ends)
    return stream, out, came.filter(pa.array(late))


def fall_silent(stream: OrderedStream, now_us: int) -> tuple[OrderedStream, Any]:
    """Emit the windows that ended by `now_us`, since nothing came for a while.

    The watermark moves to the end of the last of them and no further, so that as few later records
    as possible are late.
    """
    records = stream.waiting
    if records is None:
        raise ValueError("nothing has come yet, so nothing can have fallen silent")
    before = _older(records, stream.state.spec, now_us)
    _, ended = step(stream.state, records.filter(before), now_us)
    if not len(ended):
        return stream, ended
    until_us = pc.max(ended[WINDOW_END]).cast(pa.int64()).as_py()
    stream = replace(stream, watermark_us=latest(stream.watermark_us, until_us))
    return _handed_over(stream, records, ends=False)


def _handed_over(stream: OrderedStream, records: Any, ends: bool) -> tuple[OrderedStream, Any]:
    """Pass the records older than the watermark, or all, to the core; the others wait."""
    ready = _older(records, stream.state.spec, stream.watermark_us)
    if ends:
        ready = pa.array(np.ones(len(records), np.bool_))
    state, out = step(stream.state, records.filter(ready), stream.watermark_us, ends)
    waiting = records.filter(pc.invert(ready)).combine_chunks()
    return replace(stream, state=state, waiting=waiting), out


def _older(records: Any, spec: Spec, bound_us: int | None) -> Any:
    """Which records are older than a time; none of them without a time."""
    if bound_us is None:
        return pa.array(np.zeros(len(records), np.bool_))
    return pa.array(times_us(records[spec.time], spec.time) < bound_us)


def behind(waiting: Any, fresh: Any) -> Any:
    """Waiting rows, if there are any, and then new ones; raises ValueError for other columns."""
    if waiting is None:
        return fresh
    return pa.concat_tables([continued(waiting, fresh), fresh]).unify_dictionaries()


def latest(one_us: int | None, other_us: int | None) -> int | None:
    """The later one of two times; None if there is none."""
    return max((t for t in (one_us, other_us) if t is not None), default=None)


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
    [(BUCKET, pa.int32()), ("newest_us", pa.int64()), ("ends", pa.bool_()), ("rows", pa.binary())]
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
