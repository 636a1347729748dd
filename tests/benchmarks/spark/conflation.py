"""Conflation of a recorded log, and as-of joins: exact windows of each key, beside tumbling ones.

The floor is what one would write in Spark for want of better: the last row of each key in windows
that begin on the full second. It hands on more rows, and some of them late or early; ours cuts
each key's windows where its records begin them, as the server does.

The floor of a join is `merge_asof` of pandas, which has all rows in memory and one core.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from conflated_topics.spark import asof_join, conflate
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.spark.sizes import Sizes
from tests.benchmarks.spark.transfers import consume

ROWS_A_KEY_AND_SECOND = 10
ROWS_OF_A_STATE = 10
TOLERANCE_S = 5
FLOOR = "tumbling windows, max_by"


def conflation(spark: Any, sizes: Sizes) -> Iterator[Figure]:
    """A log in Parquet, with windows of one second."""
    with TemporaryDirectory(prefix="sow-bench-") as directory:
        _record(spark, sizes, directory)
        log = spark.read.parquet(directory)

        def ours() -> Any:
            return conflate(log, ["key"], "ts", "1s", order="bookmark")

        rows = ours().count(), _tumbling(log).count()
        assert 0 < rows[0] <= rows[1], rows
        taken = in_turn(
            sizes.repetitions,
            lambda: seconds(lambda: consume(ours())),
            lambda: seconds(lambda: consume(_tumbling(log))),
        )
    yield Figure(
        "Spark conflates a log",
        "1 s",
        "s",
        taken[0],
        taken[1],
        FLOOR,
        note=f"{rows[0]:,} rows come of it, {rows[1]:,} of the floor",
    )


def joins(spark: Any, sizes: Sizes) -> Iterator[Figure]:
    """Rows with the last of a tenth as many that is not younger, of their key."""
    import pandas as pd

    with TemporaryDirectory(prefix="sow-bench-") as directory:
        sides = Path(directory, "left"), Path(directory, "right")
        for side, every in zip(sides, (1, ROWS_OF_A_STATE), strict=True):
            _moments(spark, sizes, every).write.parquet(str(side))

        def ours() -> None:
            left, right = (spark.read.parquet(str(side)) for side in sides)
            states = right.withColumnRenamed("n", "state")
            consume(asof_join(left, states, "key", "ts", f"{TOLERANCE_S}s"))

        def floor() -> None:
            left, right = (pd.read_parquet(side) for side in sides)
            states = right.rename(columns={"n": "state"})
            pd.merge_asof(
                left.sort_values("ts"),
                states.sort_values("ts"),
                on="ts",
                by="key",
                tolerance=pd.Timedelta(seconds=TOLERANCE_S),
            )

        taken = in_turn(
            max(1, sizes.repetitions // 2), lambda: seconds(ours), lambda: seconds(floor)
        )
    yield Figure(
        "Spark joins as of",
        f"{ROWS_OF_A_STATE} rows to 1",
        "s",
        taken[0],
        taken[1],
        "merge_asof of pandas",
        note=f"{sizes.log_rows:,} rows of {sizes.keys:,} keys",
    )


def _moments(spark: Any, sizes: Sizes, every: int) -> Any:
    rate = ROWS_A_KEY_AND_SECOND * sizes.keys
    return spark.range(0, sizes.log_rows, every).selectExpr(
        "id n",
        f"pmod(xxhash64(id div {every}), {sizes.keys}) key",
        f"timestamp_micros(1700000000000000 + id * 1000000 div {rate}) ts",
    )


def _record(spark: Any, sizes: Sizes, directory: str) -> None:
    rate = ROWS_A_KEY_AND_SECOND * sizes.keys
    spark.range(sizes.log_rows).selectExpr(
        "id + 1 bookmark",
        f"concat('order-', pmod(xxhash64(id), {sizes.keys})) key",
        f"timestamp_micros(1700000000000000 + id * 1000000 div {rate}) ts",
        "round(pmod(hash(id, 1), 1000000) / 1000D, 3) px",
        "cast(pmod(hash(id, 2), 1000) as int) qty",
    ).write.mode("overwrite").parquet(directory)


def _tumbling(log: Any) -> Any:
    from pyspark.sql.functions import col, max_by, struct, window

    last = max_by(struct(*log.columns), struct("ts", "bookmark"))
    return log.groupBy(window(col("ts"), "1 second"), "key").agg(last.alias("last"))
