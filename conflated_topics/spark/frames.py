"""What conflation and joins on Spark have in common: columns, buckets, and packed rows.

Streams are brought together in a few *buckets* of keys (`conflated_topics.state_partitions`), each
with one blob of state. What comes of a bucket's turn are rows as Arrow streams in a binary column.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from conflated_topics.ipc import from_ipc, to_ipc
from conflated_topics.row_status import VERDICT
from conflated_topics.spec import parse_interval
from conflated_topics.state_partitions import BUCKET

Turn = Callable[[Any, Iterable[Any], Any], Iterator[Any]]
"""A bucket's turn as Spark calls for it: of what bucket, the packed rows, and its state."""
STATE = "state binary"
OPERATION_COLUMNS = ("op", "_op")
"""The column that says what a row does: of rows as they are, and of typed ones."""
BYTES_OF_A_PARTITION = 128 * 1024**2
"""As Spark cuts files: a task holds its partition, several times over while it sorts."""
MAX_SKEW = "1h"
"""More than clocks differ by and zones are mistaken by, less than what is a mistake for sure."""


_numbers: defaultdict[str, Iterator[int]] = defaultdict(partial(itertools.count, 1))


def numbered(kind: str) -> str:
    """What the counts of a query are called that nobody has given a name: `conflation 1`."""
    return f"{kind} {next(_numbers[kind])}"


def names(one_or_several: str | Sequence[str]) -> tuple[str, ...]:
    """The names of columns, of which one may be said as it is."""
    return (one_or_several,) if isinstance(one_or_several, str) else tuple(one_or_several)


def tie_breakers(
    order: str | Sequence[str] | None, columns: Sequence[str], time: str
) -> tuple[str, ...]:
    """The columns that decide between rows of the same time: those that are named, or `bookmark`
    where there is such a column."""
    if order is None:
        return ("bookmark",) if "bookmark" in columns and time != "bookmark" else ()
    return names(order)


def skew_us(max_skew: str | timedelta | None) -> int | None:
    """How far ahead of the clock a row may be; None: however far."""
    return None if max_skew is None else parse_interval(max_skew, least_us=0)


def column(name: str) -> Any:
    """A column by its exact name."""
    from pyspark.sql.functions import col

    return col(f"`{name}`")


def arrow_schema(df: Any) -> pa.Schema:
    """The columns of a DataFrame as the core is given them; raises ValueError for names that
    cannot be.

    All may be null: where they may not is known better by one version of a query than by another,
    and the state of one is that of the other.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for name in df.columns:
        if name in (BUCKET, VERDICT):
            raise ValueError(f"{name!r} is a column of conflated_topics' own; rename the input's")
        if "." in name or "`" in name:
            raise ValueError(
                f"the column {name!r} has a dot or a backtick in its name, with which Spark "
                "cannot hand it to Python; rename it"
            )
    zone = df.sparkSession.conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(df.schema.toNullable(), timezone=zone, prefers_large_types=False)


def is_ahead(time: str, skew_us: int) -> Any:
    """Whether a row is further ahead of the clock than so much. The clock is Spark's of the batch,
    which the checkpoint keeps."""
    from pyspark.sql.functions import current_timestamp, lit, unix_micros

    time_us = unix_micros(column(time).cast("timestamp"))
    return time_us > unix_micros(current_timestamp()) + lit(skew_us)


def is_tick(schema: pa.Schema) -> Any:
    """Whether a row stands only for its time; None where no column says what a row does."""
    from pyspark.sql.functions import coalesce, col, lit

    for name in OPERATION_COLUMNS:
        if name in schema.names and pa.types.is_string(schema.field(name).type):
            return coalesce(col(name) == "tick", lit(False))
    return None


def counted(rows: Any, under: Any, judgement: str, values: Mapping[str, Any]) -> Any:
    """The same rows, those with one of the `values` in the column `judgement` counted by its name,
    in the metrics `under` a name."""
    from pyspark.sql.functions import col, count_if, lit

    numbers = [count_if(col(judgement) == lit(value)).alias(name) for name, value in values.items()]
    return rows.observe(under, *numbers)


def with_bucket(df: Any, keys: Sequence[str], count: int) -> Any:
    """The rows with the bucket that their keys belong to."""
    from pyspark.sql.functions import lit, pmod, xxhash64

    bucket = pmod(xxhash64(*map(column, keys)), lit(count)).cast("int")
    return df.withColumn(BUCKET, bucket)


def enough_partitions(df: Any) -> int:
    """Partitions of a batch that a task can hold each."""
    partitions = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    return max(partitions, _size_bytes(df) // BYTES_OF_A_PARTITION)


def _size_bytes(df: Any) -> int:
    """What Spark knows of the input's size; 0 where it cannot be asked."""
    try:
        size = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    except Exception:  # over Spark Connect there is no plan to ask
        return 0
    return size if size < 2**45 else 0  # a size that nobody knows is said to be huge


def turned(packed: Any, turn: Turn, schema: pa.Schema, silence_ms: int = 0) -> Any:
    """The rows, in the columns of `schema`, that the turns of buckets hand on of a stream of packed
    rows. With `silence_ms` a bucket has a turn also when nothing has come for so long."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.streaming.state import GroupStateTimeout

    timeout = GroupStateTimeout.ProcessingTimeTimeout if silence_ms else GroupStateTimeout.NoTimeout
    turns = packed.groupBy(BUCKET).applyInPandasWithState(
        turn, "rows binary", STATE, "append", timeout
    )
    return turns.mapInArrow(_unpacked, from_arrow_schema(schema))


def handed_on(rows: pa.Table) -> Iterator[Any]:
    """What a turn gives Spark: a packed row, or nothing."""
    import pandas as pd

    if len(rows):
        yield pd.DataFrame({"rows": [to_ipc(rows)]})


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows that turns have handed on."""
    for batch in batches:
        for rows in batch.column("rows").to_pylist():
            yield from from_ipc(rows).combine_chunks().to_batches()
