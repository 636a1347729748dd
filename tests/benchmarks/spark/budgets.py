"""Budgets of SOW with Spark: ratios to Spark's own cost, and what a stream has to hold."""

from tests.benchmarks.budgets import Budget, ratio, value
from tests.benchmarks.measure import Figure


def times_the_floor(figure: Figure) -> float:
    """How much longer it takes than its floor."""
    return 1 / figure.ratio


BUDGETS = (
    Budget("read", "Spark reads a topic: rows", ratio, 0.4, "of the floor", True),
    Budget("read, not row by row", "Spark reads rows: Arrow", ratio, 6, "times as fast", True),
    Budget("write", "Spark writes a topic: documents", ratio, 0.3, "of the floor", True),
    Budget(
        "write, not row by row", "Spark writes rows: documents", ratio, 10, "times as fast", True
    ),
    Budget(
        "conflation of a log",
        "Spark conflates a log: 1 s",
        times_the_floor,
        1.1,
        "times the tumbling windows",
    ),
    Budget("as-of join", "Spark joins as of: 10 rows to 1", times_the_floor, 5, "times pandas"),
    Budget(
        "conflation of a stream",
        "Spark conflates a stream, capacity: batches of a second",
        value,
        100_000,
        "rows/s",
        True,
    ),
    Budget(
        "conflation of a live feed",
        "Spark conflates a stream, live: every second",
        value,
        0.85,
        "of its time",
    ),
    Budget("latency by Spark", "Spark conflates a topic, latency: 1 s, p50", value, 3, "s"),
)
