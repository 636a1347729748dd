"""Conflation of a recorded log: exact windows of each key, beside tumbling ones.

The floor is what one would write in Spark for want of better: the last row of each key in windows
that begin on the full second. It hands on more rows, and some of them late or early; ours cuts
each key's windows where its records begin them, as the server does.
"""

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

from conflated_topics.spark import conflate
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.spark.sizes import Sizes
from tests.benchmarks.spark.transfers import consume

ROWS_A_KEY_AND_SECOND = 10
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
