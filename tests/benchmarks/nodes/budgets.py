"""Budgets of edges and followers: what is promised of more than one process, as ratios.

They are those of the full size. `REASONS` is prose kept by hand, shown while a budget is missed.
"""

from tests.benchmarks.budgets import Budget, added, added_percent, ratio, value
from tests.benchmarks.nodes.sizes import FULL
from tests.benchmarks.queries import QUESTIONS

ADDED_PERCENT = 10.0
EDGE_MS_A_MB = 0.6
ADDED_MS = 20.0
APPLIED_A_S = 250_000
AS_FAST = 0.9
"""As fast as the primary, as far as ten pairs of short measurements can tell."""
STEP_MS = 50.0
OF_LOCAL = 0.8
FAIL_OVER_S = 2.0

MORE = FULL.screens[1:]
EDGES = [(where, kind) for kind in ("equal", "10 distinct") for where in ("1 edge", "2 edges")]
QUERIES = tuple(question.case for question in QUESTIONS)

BUDGETS = (
    *(
        Budget(
            f"the primary with {screens:,} screens behind {where}, {kind}",
            f"primary's CPU: {screens:,} screens behind {where}, {kind}",
            added_percent,
            ADDED_PERCENT,
            "% more than with ten",
        )
        for where, kind in EDGES
        for screens in MORE
    ),
    *(
        Budget(
            f"an edge with {screens:,} screens, frames of {size}",
            f"an edge: {screens:,} screens, frames of {size}",
            value,
            EDGE_MS_A_MB,
            "ms of CPU/MB",
        )
        for screens in MORE
        for size in (100, 1000)
    ),
    *(
        Budget(
            f"staleness over an edge at {rate:,}/s, p99",
            f"staleness: {rate:,}/s, 10 follow over an edge, p99",
            added,
            ADDED_MS,
            "ms more than directly",
        )
        for rate in FULL.rates
    ),
    Budget(
        "connections over two edges, each with all",
        f"connections: {FULL.crowd:,} over 2 edges, complete",
        value,
        FULL.crowd,
        "connections",
        True,
    ),
    Budget(
        "a follower catches up",
        "catch-up: while it runs, by the wall clock",
        value,
        APPLIED_A_S,
        "records/s",
        True,
    ),
    *(
        Budget(
            f"query of a follower, {case}",
            f"query of a follower: {case}",
            ratio,
            AS_FAST,
            "of the primary's speed",
            True,
        )
        for case in QUERIES
    ),
    Budget(
        "the primary during a first copy",
        f"first copy: of {FULL.records:,} records, longest wait for the primary",
        value,
        STEP_MS,
        "ms",
    ),
    Budget(
        "ingest over three replicas of NATS, groups of 220 kB",
        "shared log: three replicas of NATS, frames of 1000",
        ratio,
        OF_LOCAL,
        "of a local log's speed",
        True,
    ),
    Budget(
        "writes again after the death of the node that leads",
        f"fail-over: of {FULL.records:,} records, until a write is acknowledged",
        value,
        FAIL_OVER_S,
        "s",
    ),
    Budget(
        "the node that leads then",
        f"fail-over: of {FULL.records:,} records, longest wait for the node that leads then",
        value,
        STEP_MS,
        "ms",
    ),
)
