"""The common part of conflation and joins on Spark: columns, buckets, and packed rows.

Streams are partitioned into a few *buckets* of keys (`conflated_topics.state_partitions`), each
with one blob of state. A bucket's turn returns rows as Arrow streams in a binary column.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from conflated_topics.envelope import from_ipc, to_ipc
from conflated_topics.state_partitions import BUCKET, VERDICT
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
