"""Conflation on Spark: the windows of a recorded log or of a stream, as the server would cut them.

    conflate(df, keys=["key"], time="ts", interval="1s")

A DataFrame is brought together by key and each partition folded at once. A stream is brought
together in a few *buckets* of keys, each with one blob of state; per-key state costs a thousand
times as much. Rows cross Spark's state operator packed as Arrow, so that every type comes through
as it is.

Windows are cut on record time. A stream hands a window on when records of its end or later have
come, of whatever key: the stream's time is that of all keys together. A row whose `op` (or `_op`)
is ``tick`` stands for no record, only for its time; the data source `sow` sends them
(`closesWithin`), so that the last windows of a stream that has fallen silent are handed on too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Policy, Spec, State, conflate_table, parse_interval, step

BUCKET = "__bucket"
PACKED = f"{BUCKET} int, seen_us long, rows binary"
STATE = "state binary"
TICK = "tick"
OPERATION_COLUMNS = ("op", "_op")
"""The column that says what a row does: of rows as they are, and of typed ones."""
BYTES_OF_A_PARTITION = 128 * 1024**2
"""As Spark cuts files: a task holds its partition in memory, several times over while it sorts."""


def conflate(
    df: Any,
    keys: str | Sequence[str],
    time: str,
    interval: str | timedelta,
    policy: Policy = "latest",
    order: str | Sequence[str] | None = None,
    delete: str | None = None,
    *,
    closes_after: str | timedelta | None = None,
) -> Any:
    """A DataFrame, batch or streaming, with at most one row for each key and interval.

    `keys` and `order` are column names (`order` breaks ties of `time`; by default `bookmark` where
    there is such a column), `time` a timestamp column, `interval` ``"1s"`` or a timedelta. `policy`
    is an operation (latest, merge, sum, min, max, first, count), one for some columns each, or a
    callable that folds two values of the column `value`. `delete` names a boolean column.

    Returns the input's columns as they stand at the close of each window, and `window_start` and
    `window_end`. A batch hands on every window. A stream, to be written in append mode, keeps
    those that have not ended; with `closes_after` it also hands on what no record has ended, once
    nothing has come for that long by the clock (such a query never ends by itself, so not with an
    `availableNow` trigger). Raises ValueError for what does not fit the columns.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    spec = _spec(df, keys, time, interval, policy, order, delete)
    if not df.isStreaming:
        return conflate_each_batch(df, spec)
    schema = _schema(df)
    result = from_arrow_schema(spec.output_schema(schema))
    return _stream(df, spec, schema, result, closes_after)


def _spec(
    df: Any,
    keys: str | Sequence[str],
    time: str,
    interval: str | timedelta,
    policy: Policy,
    order: str | Sequence[str] | None,
    delete: str | None,
) -> Spec:
    return Spec(
        (keys,) if isinstance(keys, str) else tuple(keys),
        time,
        parse_interval(interval),
        policy,
        _order(order, df.columns, time),
        delete,
    )


def _schema(df: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(df.schema, timezone=zone, prefers_large_types=False)


def conflate_each_batch(df: Any, spec: Spec) -> Any:
    """Each batch as a log of its own, of which every window is handed on at its end.

    For a batch that is all there is, also where a stream makes it (files, taken up once).
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = _schema(df)
    result = from_arrow_schema(spec.output_schema(schema))
    return _by_key(df, spec).mapInArrow(_whole(spec, schema), result)


def _order(order: str | Sequence[str] | None, columns: Sequence[str], time: str) -> tuple[str, ...]:
    if order is None:
        return ("bookmark",) if "bookmark" in columns and time != "bookmark" else ()
    return (order,) if isinstance(order, str) else tuple(order)


# Batches.


def _by_key(df: Any, spec: Spec) -> Any:
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    return df.repartition(max(partitions, _size_bytes(df) // BYTES_OF_A_PARTITION), *spec.keys)


def _size_bytes(df: Any) -> int:
    """What Spark knows of the input's size; 0 where it cannot be asked."""
    try:
        size = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # over Spark Connect there is no plan to ask
        return 0
    return size if size < 2**45 else 0  # a size that nobody knows is said to be huge


def _whole(spec: Spec, schema: pa.Schema) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def conflate_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = _without_ticks(_table(batches, schema))
        yield from conflate_table(table, spec).combine_chunks().to_batches()

    return conflate_partition


def _table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)


def _without_ticks(table: pa.Table) -> pa.Table:
    kept = _records(table)
    return table if kept is None else table.filter(kept)


def _records(table: pa.Table) -> pa.Array | None:
    """Which rows are records; None where all are."""
    for name in OPERATION_COLUMNS:
        if name in table.schema.names and pa.types.is_string(table.schema.field(name).type):
            return pc.fill_null(pc.not_equal(table[name], TICK), True)
    return None


# Streams.


def _stream(
    df: Any, spec: Spec, schema: pa.Schema, result: Any, closes_after: str | timedelta | None
) -> Any:
    from pyspark.sql.functions import col, lit, pmod, xxhash64
    from pyspark.sql.streaming.state import GroupStateTimeout

    buckets = 2 * int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    bucket = pmod(xxhash64(*[col(key) for key in spec.keys]), lit(buckets)).cast("int")
    silence_ms = 0 if closes_after is None else parse_interval(closes_after) // 1000
    timeout = GroupStateTimeout.ProcessingTimeTimeout if silence_ms else GroupStateTimeout.NoTimeout
    packed = df.withColumn(BUCKET, bucket).mapInArrow(_packer(spec, schema, buckets), PACKED)
    folded = packed.groupBy(BUCKET).applyInPandasWithState(
        _folder(spec, schema, silence_ms), "rows binary", STATE, "append", timeout
    )
    return folded.mapInArrow(_unpack, result)


def _packer(
    spec: Spec, schema: pa.Schema, buckets: int
) -> Callable[[Iterable[Any]], Iterator[pa.RecordBatch]]:
    """Packs the rows of each bucket, and tells every bucket how far time has come."""

    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers, tables = [], []
        for batch in batches:
            at = batch.schema.get_field_index(BUCKET)
            numbers.append(batch.column(at).to_numpy())
            tables.append(batch.remove_column(at).cast(schema))
        if not tables:
            return
        table = pa.Table.from_batches(tables, schema).combine_chunks()
        seen_us = pc.max(table[spec.time]).cast(pa.int64()).as_py()
        if seen_us is None:
            raise ValueError(f"no record has a time in {spec.time!r}; leave them out or fill it")
        places = np.concatenate(numbers)
        kept = _records(table)
        if kept is not None:
            table, places = table.filter(kept), places[np.asarray(kept)]
        by_bucket = np.argsort(places, kind="stable")
        table, cuts = table.take(pa.array(by_bucket)), np.bincount(places, minlength=buckets)
        ends = np.cumsum(cuts)
        rows = [
            _to_ipc(table.slice(end - count, count)) if count else b""
            for end, count in zip(ends.tolist(), cuts.tolist(), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(buckets, dtype=np.int32)),
                pa.array(np.full(buckets, seen_us)),
                pa.array(rows, pa.binary()),
            ],
            names=[BUCKET, "seen_us", "rows"],
        )

    return pack


def _folder(spec: Spec, schema: pa.Schema, silence_ms: int) -> Callable[..., Iterator[Any]]:
    """One bucket's turn: its state, what has come for it, and the windows that have ended."""
    empty = schema.empty_table()

    def fold(_bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        import pandas as pd

        state = State.from_bytes(bytes(stored.get[0]), spec) if stored.exists else State(spec)
        batch, now_us = empty, None
        if stored.hasTimedOut:
            # Nothing at all has come for a while, so by the clock everything older is here.
            now_us = stored.getCurrentProcessingTimeMs() * 1000
        else:
            batch, now_us = _came(frames, empty)
        state, out = step(state, batch, now_us)
        state = _not_before(state, out, now_us if not stored.hasTimedOut else None)
        stored.update((state.to_bytes(),))
        if silence_ms and state.pending is not None and len(state.pending):
            stored.setTimeoutDuration(silence_ms)
        if len(out):
            yield pd.DataFrame({"rows": [_to_ipc(out)]})

    return fold


def _came(frames: Iterable[Any], empty: pa.Table) -> tuple[pa.Table, int | None]:
    """What has come for a bucket, and the latest time of any record of any bucket."""
    tables, now_us = [], None
    for frame in frames:
        tables += [_from_ipc(rows) for rows in frame["rows"] if rows]
        seen_us = int(frame["seen_us"].max())
        now_us = seen_us if now_us is None else max(now_us, seen_us)
    return (pa.concat_tables(tables) if tables else empty), now_us


def _not_before(state: State, out: pa.Table, seen_us: int | None) -> State:
    """What comes later counts as of no earlier time than what the others have seen already, nor
    within a window that was handed on: a key is not handed on twice in one interval."""
    times = [time_us for time_us in (state.stream_us, seen_us) if time_us is not None]
    if len(out):
        times.append(pc.max(out["window_end"]).cast(pa.int64()).as_py())
    return replace(state, stream_us=max(times)) if times else state


def _unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for rows in batch.column("rows").to_pylist():
            yield from _from_ipc(rows).combine_chunks().to_batches()


def _to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _from_ipc(rows: bytes) -> pa.Table:
    return pa.ipc.open_stream(rows).read_all()
