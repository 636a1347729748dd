"""Conflation on Spark: the windows of a recorded log or of a stream, as the server would cut them.

    conflate(df, keys=["key"], time="ts", interval="1s")

A batch DataFrame is partitioned by key and each partition folded at once. A stream is partitioned
into a few *buckets* of keys (`conflated_topics.state_partitions`), each with one blob of state;
per-key state costs a thousand times as much.

Windows are cut on record time. A stream emits a window when records of its end or later have come,
of any key: the stream's time is that of all keys together. A row whose `op` (or `_op`) is ``tick``
is no record and has only a time; the data source `sow` sends them (`closesWithin`), so that a
silent stream emits its last windows too.

Spark gives each row the status that it has by itself: one far ahead of the clock would stop the
time of all keys, and one without a key belongs to none. The clock is Spark's of the batch, which
the checkpoint stores, so that a repeated batch assigns the same statuses.

As-of joins (`conflated_topics.spark.asof`) use the common part: columns, buckets and packed rows. A
bucket's turn returns rows as Arrow streams in a binary column.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Policy, Spec, conflate_table, from_ipc, standing_alone, to_ipc
from conflated_topics.state_partitions import (
    AHEAD,
    ASIDE,
    BUCKET,
    COUNT,
    COUNTED,
    KEYLESS,
    NEVER_US,
    TAKEN,
    TICK,
    VERDICT,
    Buckets,
)
from conflated_topics.user_texts import parse_interval

Turn = Callable[[Any, Iterable[Any], Any], Iterator[Any]]
"""A bucket's turn as Spark calls it: the bucket, the packed rows, and its state."""
STATE = "state binary"
OPERATION_COLUMNS = ("op", "_op")
"""The column with the operation of a row: of rows as they are, and of typed ones."""
BYTES_OF_A_PARTITION = 128 * 1024**2
"""Size by which Spark splits files: a task holds its partition, several times while it sorts."""
MAX_SKEW = "1h"
"""More than clocks and time zones differ, less than an obvious mistake."""


_numbers: defaultdict[str, Iterator[int]] = defaultdict(partial(itertools.count, 1))


def numbered(kind: str) -> str:
    """The default name for the counts of a query: `conflation 1`."""
    return f"{kind} {next(_numbers[kind])}"


def names(one_or_several: str | Sequence[str]) -> tuple[str, ...]:
    """The names of columns; a single one may be given as it is."""
    return (one_or_several,) if isinstance(one_or_several, str) else tuple(one_or_several)


def tie_breakers(
    order: str | Sequence[str] | None, columns: Sequence[str], time: str
) -> tuple[str, ...]:
    """The columns that order rows of the same time: the named ones, or `bookmark` if there is such
    a column."""
    if order is None:
        return ("bookmark",) if "bookmark" in columns and time != "bookmark" else ()
    return names(order)


def skew_us(max_skew: str | timedelta | None) -> int | None:
    """How far ahead of the clock a row may be; None: any distance."""
    return None if max_skew is None else parse_interval(max_skew, least_us=0)


def column(name: str) -> Any:
    """A column by its exact name."""
    from pyspark.sql.functions import col

    return col(f"`{name}`")


def arrow_schema(df: Any) -> pa.Schema:
    """The columns of a DataFrame for the core; raises ValueError for invalid names.

    All are nullable, and times in UTC: one version of a query may infer less than another, or run
    in a session with another zone, and both must share the state.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for name in df.columns:
        if name in (BUCKET, VERDICT):
            raise ValueError(f"{name!r} is a reserved column name; rename the input's")
        if "." in name or "`" in name:
            raise ValueError(
                f"the column {name!r} has a dot or a backtick in its name, so Spark "
                "cannot pass it to Python; rename it"
            )
    return to_arrow_schema(df.schema.toNullable(), timezone="UTC", prefers_large_types=False)


def is_ahead(time: str, skew_us: int) -> Any:
    """Whether a row is further ahead of the clock than allowed. The clock is Spark's of the batch,
    which the checkpoint stores."""
    from pyspark.sql.functions import current_timestamp, lit, unix_micros

    time_us = unix_micros(column(time).cast("timestamp"))
    return time_us > unix_micros(current_timestamp()) + lit(skew_us)


def is_tick(schema: pa.Schema) -> Any:
    """Whether a row has only a time; None if no column has operations."""
    from pyspark.sql.functions import coalesce, col, lit

    for name in OPERATION_COLUMNS:
        if name in schema.names and pa.types.is_string(schema.field(name).type):
            return coalesce(col(name) == "tick", lit(False))
    return None


def counted(rows: Any, under: Any, judgement: str, values: Mapping[str, Any]) -> Any:
    """The same rows, counting those with one of the `values` in the column `judgement` by its name,
    in the metrics `under` a name."""
    from pyspark.sql.functions import col, count_if, lit

    numbers = [count_if(col(judgement) == lit(value)).alias(name) for name, value in values.items()]
    return rows.observe(under, *numbers)


def with_bucket(df: Any, keys: Sequence[str], count: int) -> Any:
    """The rows with the bucket of their keys."""
    from pyspark.sql.functions import lit, pmod, xxhash64

    bucket = pmod(xxhash64(*map(column, keys)), lit(count)).cast("int")
    return df.withColumn(BUCKET, bucket)


def enough_partitions(df: Any) -> int:
    """Partitions of a batch that a task can hold each."""
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    return max(partitions, _size_bytes(df) // BYTES_OF_A_PARTITION)


def _size_bytes(df: Any) -> int:
    """Spark's estimate of the input's size; 0 if it is not available."""
    try:
        size = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # Spark Connect has no plan
        return 0
    return size if size < 2**45 else 0  # Spark reports an unknown size as huge


def turned(packed: Any, turn: Turn, schema: pa.Schema, silence_ms: int = 0) -> Any:
    """The rows, in the columns of `schema`, that the turns of buckets return for a stream of packed
    rows. With `silence_ms` a bucket also has a turn after so long without rows."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.streaming.state import GroupStateTimeout

    timeout = GroupStateTimeout.ProcessingTimeTimeout if silence_ms else GroupStateTimeout.NoTimeout
    turns = packed.groupBy(BUCKET).applyInPandasWithState(
        turn, "rows binary", STATE, "append", timeout
    )
    return turns.mapInArrow(_unpacked, from_arrow_schema(schema))


def state_of(stored: Any) -> bytes | None:
    """The bytes that a bucket's last turn has stored; None before the first."""
    return bytes(stored.get[0]) if stored.exists else None


def handed_on(rows: pa.Table) -> Iterator[Any]:
    """The result of a turn for Spark: a packed row, or nothing."""
    import pandas as pd

    if len(rows):
        yield pd.DataFrame({"rows": [to_ipc(rows)]})


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that turns have returned."""
    for batch in batches:
        for rows in batch.column("rows").to_pylist():
            yield from from_ipc(rows).combine_chunks().to_batches()


PACKED = f"{BUCKET} int, newest_us long, ends boolean, rows binary"
NullKeys = Literal["refuse", "drop"]
INTERVAL_COLUMN = "interval"
"""The column of the result that distinguishes several intervals."""
INTERVAL_NUMBER = "__number"
NUMBER_FIELD = pa.field(INTERVAL_NUMBER, pa.int32())
"""The index of a row's interval in an internal column."""


def conflate(
    df: Any,
    keys: str | Sequence[str],
    time: str,
    interval: str | timedelta | Sequence[str],
    policy: Policy = "latest",
    order: str | Sequence[str] | None = None,
    delete: str | None = None,
    *,
    lateness: str | timedelta = "0s",
    max_skew: str | timedelta | None = MAX_SKEW,
    late: str | None = None,
    null_keys: NullKeys = "refuse",
    counts: Any = None,
    buckets: int = COUNT,
    closes_after: str | timedelta | None = None,
    ends: Any = None,
) -> Any:
    """A DataFrame, batch or streaming, with at most one row for each key and interval.

    `keys` and `order` are column names (`order` breaks ties of `time`; by default `bookmark` where
    there is such a column), `time` a timestamp column, `interval` ``"1s"`` or a timedelta, or a
    list of such texts: then there are the windows of each, and a column `interval` that holds its
    text as it is written. `policy` is an operation (latest, merge, sum, min, max, first, count),
    one for some columns each, or a callable that folds two values of the column `value`. `delete`
    names a boolean column.

    A row of a stream that is older than the newest of earlier triggers by at most `lateness` is
    folded in its order; all rows wait that long. Older ones, and those further ahead of the clock
    than `max_skew` (None: any), are left out. They are dropped, or with `late`, the name of a new
    boolean column, emitted whole, with null windows. A row with a null key is refused, or left out
    with ``null_keys="drop"``. All of them are counted as `late`, `ahead` and `without_key` in the
    observed metrics of the query's progress, under `counts`: a name, by default ``conflation 1``
    and so on, or for a batch an `Observation`.

    Returns the input's columns at the close of each window, and `window_start` and `window_end`. A
    batch emits every window. A stream, to be written in append mode, keeps those that have not
    ended; with `closes_after` it also emits windows that no record has ended, once nothing has come
    for that long by the clock (such a query never ends by itself, so not with an `availableNow`
    trigger), and with `ends`, another stream, all of them whenever that has a row. `buckets` is how
    many tasks can share a stream; a checkpoint keeps its number.

    Raises ValueError for arguments that do not fit the columns.
    """
    texts: Sequence[str] | None = None
    lengths: Sequence[str | timedelta]
    if isinstance(interval, str | timedelta):
        lengths = [interval]
    else:
        lengths = texts = _several(interval, df.columns, late)
    specs = [
        Spec(
            names(keys),
            time,
            parse_interval(length),
            policy,
            tie_breakers(order, df.columns, time),
            delete,
        )
        for length in lengths
    ]
    wanted = _Wanted(
        specs[0],
        specs,
        texts,
        parse_interval(lateness, least_us=0),
        skew_us(max_skew),
        late,
        null_keys,
        counts or numbered("conflation"),
    )
    schema = arrow_schema(df)
    wanted.check(schema)
    judged = df.withColumn(VERDICT, wanted.verdict(schema))
    if not df.isStreaming:
        return wanted.result(_batch(wanted.counted(judged), wanted, schema))
    silence_ms = 0 if closes_after is None else parse_interval(closes_after) // 1000
    divided = [Buckets(spec, schema, wanted.lateness_us, buckets) for spec in specs]
    return wanted.result(wanted.counted(_stream(judged, divided, silence_ms, ends)))


def _several(intervals: Sequence[str], columns: Sequence[str], late: str | None) -> tuple[str, ...]:
    """The texts of several intervals; raises ValueError for an invalid list, or one that does not
    fit these columns."""
    if not intervals:
        raise ValueError("the list of intervals is empty; write at least one, such as '1s'")
    for text in intervals:
        if not isinstance(text, str):
            raise ValueError(
                f"{text!r} in the list of intervals is no text, which is what the column "
                f"{INTERVAL_COLUMN!r} holds; write 500ms, 1s or 5m"
            )
    if len(set(intervals)) < len(intervals):
        raise ValueError(f"the list of intervals {list(intervals)} has one twice; leave one out")
    if INTERVAL_COLUMN in (*columns, late):
        raise ValueError(f"{INTERVAL_COLUMN!r} is a column of the result; rename the other one")
    return tuple(intervals)


@dataclass(frozen=True)
class _Wanted:
    """The conflation without the settings of a stream. There is a spec for each interval, and
    `spec` is the first of them; `texts` are those of several."""

    spec: Spec
    specs: Sequence[Spec]
    texts: Sequence[str] | None
    lateness_us: int
    ahead_us: int | None
    late: str | None
    null_keys: NullKeys
    counts: Any

    def check(self, schema: pa.Schema) -> None:
        """Raise ValueError for settings that do not fit the columns."""
        if self.null_keys not in ("refuse", "drop"):
            raise ValueError(f"null_keys is {self.null_keys!r}; write 'refuse' or 'drop'")
        if self.late is not None and not (isinstance(self.late, str) and self.late.strip()):
            raise ValueError(
                f"late is {self.late!r}; give the name of the column that marks late rows"
            )
        taken = [name.lower() for name in self.spec.output_schema(schema).names]
        if self.late is not None and self.late.lower() in taken:
            raise ValueError(
                f"there is a column {self.late!r} already; choose another name for late rows"
            )

    def verdict(self, schema: pa.Schema) -> Any:
        """The status of each row by itself, as a column."""
        from pyspark.sql.functions import lit, when

        verdict = lit(TAKEN)
        if self.ahead_us is not None:
            ahead = is_ahead(self.spec.time, self.ahead_us)
            verdict = when(ahead, lit(AHEAD)).otherwise(verdict)
        if self.null_keys == "drop":
            for key in self.spec.keys:
                verdict = when(column(key).isNull(), lit(KEYLESS)).otherwise(verdict)
        if (tick := is_tick(schema)) is not None:
            verdict = when(tick, lit(TICK)).otherwise(verdict)
        return verdict.cast("byte")

    def counted(self, rows: Any) -> Any:
        """The same rows, counting those that are left out by their status."""
        return counted(rows, self.counts, VERDICT, COUNTED)

    def result(self, rows: Any) -> Any:
        """The result for the caller of rows with their status."""
        from pyspark.sql.functions import array, col, lit, when

        if self.texts is not None:
            name = array(*map(lit, self.texts))[col(INTERVAL_NUMBER)]
            rows = rows.withColumn(INTERVAL_COLUMN, when(col(VERDICT) == TAKEN, name))
        rows = rows.drop(INTERVAL_NUMBER)
        if self.late is None:
            return rows.where(col(VERDICT) == TAKEN).drop(VERDICT)
        rows = rows.where(col(VERDICT).isin(TAKEN, *ASIDE))
        return rows.withColumn(self.late, col(VERDICT) != TAKEN).drop(VERDICT)


# Batches.


def _batch(judged: Any, wanted: _Wanted, schema: pa.Schema) -> Any:
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import from_arrow_schema

    spec = wanted.spec
    kept = (TAKEN,) if wanted.late is None else (TAKEN, *ASIDE)
    parts = enough_partitions(judged)
    judged = judged.where(col(VERDICT).isin(*kept))
    judged = judged.repartition(parts, *map(column, spec.keys))
    result = spec.output_schema(schema).append(pa.field(VERDICT, pa.int8())).append(NUMBER_FIELD)
    return judged.mapInArrow(_whole(wanted.specs, schema), from_arrow_schema(result))


def _whole(specs: Sequence[Spec], schema: pa.Schema) -> Callable[[Iterable[Any]], Iterator[Any]]:
    columns = schema.append(pa.field(VERDICT, pa.int8()))

    def conflate_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches([batch.cast(columns) for batch in batches], columns)
        taken = pc.equal(table[VERDICT], TAKEN)
        log = table.filter(taken).drop_columns(VERDICT)
        for number, spec in enumerate(specs):
            rows = conflate_table(log, spec)
            verdicts = pa.array([TAKEN] * len(rows), pa.int8())
            yield from _numbered(rows.append_column(VERDICT, verdicts), number).to_batches()
        aside = table.filter(pc.invert(taken))
        if len(aside):
            alone = standing_alone(aside.drop_columns(VERDICT), specs[0])
            yield from _numbered(alone.append_column(VERDICT, aside[VERDICT]), 0).to_batches()

    return conflate_partition


def _numbered(rows: pa.Table, number: int) -> pa.Table:
    """Rows with the index of their interval among several."""
    numbers = pa.array(np.full(len(rows), number, np.int32))
    return rows.append_column(NUMBER_FIELD, numbers).combine_chunks()


# Streams.


def _stream(judged: Any, several: Sequence[Buckets], silence_ms: int, ends: Any) -> Any:
    """The rows that a stream emits, by one operator: each interval has buckets of its own, which
    get the same rows."""
    buckets = several[0]
    bucketed = with_bucket(judged, buckets.spec.keys, buckets.count)
    packed = bucketed.mapInArrow(_to_each(buckets.pack, several), PACKED)
    if ends is not None:
        packed = packed.union(ends.mapInArrow(_to_each(buckets.end, several), PACKED))
    result = buckets.result_schema().append(NUMBER_FIELD)
    return turned(packed, _turns(several, silence_ms), result, silence_ms)


Packing = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _to_each(pack: Packing, several: Sequence[Buckets]) -> Packing:
    """The same packed rows for the buckets of each interval, which follow one another."""

    def packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in pack(batches):
            for number in range(len(several)):
                shifted = pc.add(batch.column(0), pa.scalar(number * several[0].count, pa.int32()))
                yield batch.set_column(0, batch.schema.field(0), shifted)

    return packed


def _turns(several: Sequence[Buckets], silence_ms: int) -> Turn:
    def turn(bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        number = int(bucket[0]) // several[0].count
        buckets = several[number]
        state = state_of(stored)
        if stored.hasTimedOut:
            assert state is not None
            # Nothing at all has come for a while, so by the clock all older rows are here.
            done = buckets.silence(state, stored.getCurrentProcessingTimeMs() * 1000)
        else:
            done = buckets.turn(state, *_came(frames))
        stored.update((done.state,))
        if silence_ms and done.waits:
            stored.setTimeoutDuration(silence_ms)
        rows = done.rows
        if number:  # rows that are left out are emitted once
            rows = rows.filter(pc.equal(rows[VERDICT], TAKEN))
        yield from handed_on(_numbered(rows, number))

    return turn


def _came(frames: Iterable[Any]) -> tuple[list[bytes], int, bool]:
    """The packed rows of a bucket: rows, the newest time of all buckets, and whether it ends."""
    rows: list[bytes] = []
    newest_us, ends = NEVER_US, False
    for frame in frames:
        rows += frame["rows"].tolist()
        newest_us = max(newest_us, int(frame["newest_us"].max()))
        ends = ends or bool(frame["ends"].any())
    return rows, newest_us, ends
