"""As-of joins on Spark: each row of one DataFrame with the latest row of another, at that moment.

    asof_join(trades, quotes, keys="symbol", time="ts", tolerance="5s")

Both sides are divided into buckets of keys. In a batch each bucket is joined at once; in streams it
has a state, in which rows wait for the other side (`conflated_topics.asof`). The result is
the same, whatever the triggers.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa

from conflated_topics.asof import (
    LEFT_OUT,
    OUTCOME,
    TAKES_PART,
    TIME_ONLY,
    AsOf,
    JoinBuckets,
    SideName,
)
from conflated_topics.spark.conflation import (
    MAX_SKEW,
    Turn,
    arrow_schema,
    column,
    counted,
    enough_partitions,
    handed_on,
    is_ahead,
    is_tick,
    names,
    numbered,
    skew_us,
    state_of,
    tie_breakers,
    turned,
    with_bucket,
)
from conflated_topics.state_partitions import BUCKET, COUNT, COUNT_MAX, NEVER_US
from conflated_topics.user_texts import parse_interval

PACKED = f"{BUCKET} int, left_us long, right_us long, left binary, right binary"


def asof_join(
    left: Any,
    right: Any,
    keys: str | Sequence[str],
    time: str,
    tolerance: str | timedelta,
    *,
    order: str | Sequence[str] | None = None,
    lateness: str | timedelta = "0s",
    max_skew: str | timedelta | None = MAX_SKEW,
    counts: Any = None,
    buckets: int = COUNT,
) -> Any:
    """Each row of `left` with the last row of `right` at its time or before: a left join.

    `keys` and `time` are columns of both, `time` a timestamp without nulls. The row on the right
    is older by no more than `tolerance`, an interval such as ``"5s"`` or a timedelta, inclusive;
    where there is none its columns are null. `order` names columns of the right that decide
    between rows of the same time; by default `bookmark`, where the right has that. The result has
    the columns of the left and those that the right has beside keys and time.

    Both sides are batches, or both are streams. A row on the left of a stream waits until the
    right has passed its time, and rows that it may be joined with are kept for it. Rows that are
    late on their side by more than `lateness`, and those further ahead of the clock than `max_skew`
    (None: any), are left out; they are counted as `late_left`, `late_right`, `ahead_left` and
    `ahead_right` in the observed metrics, under `counts`: a name, by default ``as-of join 1`` and
    so on, or for a batch an `Observation`. `buckets` is how many tasks can share a stream; a
    checkpoint keeps its number.

    Raises ValueError for columns that do not fit: missing, of other types, or with the same name on
    both sides.
    """
    if left.isStreaming != right.isStreaming:
        stream, batch = ("left", "right") if left.isStreaming else ("right", "left")
        raise ValueError(
            f"the {stream} side is a stream and the {batch} side is not; read both as streams, "
            "or both as batches"
        )
    schemas = {"left": arrow_schema(left), "right": arrow_schema(right)}
    join = AsOf(
        names(keys),
        time,
        parse_interval(tolerance, least_us=0),
        tie_breakers(order, schemas["right"].names, time),
    )
    late_us = parse_interval(lateness, least_us=0)
    ahead_us = skew_us(max_skew)
    count = buckets
    if not left.isStreaming:
        count = min(max(map(enough_partitions, (left, right))), COUNT_MAX)
    divided = JoinBuckets(join, schemas["left"], schemas["right"], late_us, count)
    sides = [
        with_bucket(_judged(side, name, schemas[name], time, ahead_us), join.keys, count)
        for name, side in (("left", left), ("right", right))
    ]
    bring_together = _streams if left.isStreaming else _batches
    joined = bring_together(sides[0], sides[1], divided)
    under = counts or numbered("as-of join")
    joined = counted(joined, under, OUTCOME, {name: name for name in LEFT_OUT})
    return joined.where(column(OUTCOME) == TAKES_PART).drop(OUTCOME)


def _judged(side: Any, name: str, schema: pa.Schema, time: str, ahead_us: int | None) -> Any:
    """The rows with the status that each row has by itself."""
    from pyspark.sql.functions import lit, when

    outcome = lit(TAKES_PART)
    if ahead_us is not None:
        outcome = when(is_ahead(time, ahead_us), lit(f"ahead_{name}")).otherwise(outcome)
    if (tick := is_tick(schema)) is not None:
        outcome = when(tick, lit(TIME_ONLY)).otherwise(outcome)
    return side.withColumn(OUTCOME, outcome)


def _batches(left: Any, right: Any, buckets: JoinBuckets) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    schemas = [
        side.append(pa.field(OUTCOME, pa.string())) for side in (buckets.left, buckets.right)
    ]

    def join_bucket(left: pa.Table, right: pa.Table) -> pa.Table:
        sides = [
            table.drop_columns(BUCKET).cast(schema)
            for table, schema in zip((left, right), schemas, strict=True)
        ]
        return buckets.whole(*sides)

    # Of one frame, both sides may have the same columns of it; Spark Connect would take those of
    # the right for those of the left, and leave them out. Aliases are columns of their own.
    right = right.select(*(column(name).alias(name) for name in right.columns))
    cogrouped = left.groupBy(column(BUCKET)).cogroup(right.groupBy(column(BUCKET)))
    return cogrouped.applyInArrow(join_bucket, from_arrow_schema(buckets.result_schema()))


def _streams(left: Any, right: Any, buckets: JoinBuckets) -> Any:
    sides: tuple[tuple[SideName, Any], ...] = (("left", left), ("right", right))
    one, other = (side.mapInArrow(partial(buckets.pack, name), PACKED) for name, side in sides)
    return turned(one.union(other), _turns(buckets), buckets.result_schema())


def _turns(buckets: JoinBuckets) -> Turn:
    def turn(_bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        lefts: list[bytes] = []
        rights: list[bytes] = []
        left_us = right_us = NEVER_US
        for frame in frames:
            lefts += frame["left"].tolist()
            rights += frame["right"].tolist()
            left_us = max(left_us, int(frame["left_us"].max()))
            right_us = max(right_us, int(frame["right_us"].max()))
        state, rows = buckets.turn(state_of(stored), lefts, rights, left_us, right_us)
        stored.update((state,))
        yield from handed_on(rows)

    return turn
