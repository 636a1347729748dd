"""`python -m tests.benchmarks.spark [NAME ...] [--quick | --tiny] [--write]`."""

from functools import partial

from sow.spark import session
from tests.benchmarks.command_line import arguments, check_all, measured
from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.page import publish
from tests.benchmarks.report import show
from tests.benchmarks.results import Run
from tests.benchmarks.spark.budgets import BUDGETS
from tests.benchmarks.spark.conflation import conflation, joins
from tests.benchmarks.spark.engine import engine
from tests.benchmarks.spark.sizes import FULL, QUICK, TINY
from tests.benchmarks.spark.streams import streams
from tests.benchmarks.spark.transfers import transfers

CATALOGUE = {
    "transfers": transfers,
    "conflation": conflation,
    "joins": joins,
    "streams": streams,
    "engine": engine,
}


def main() -> None:
    """Run what was asked for in one session of two cores, show it, and keep it if asked to."""
    requested = arguments("tests.benchmarks.spark", CATALOGUE, (FULL, QUICK, TINY))
    before = facts((*LIBRARIES, "pyarrow", "pyspark"))
    spark = session("bench", "local[2]", {"spark.driver.memory": "2g"})
    try:
        there = {name: partial(benchmark, spark) for name, benchmark in CATALOGUE.items()}
        figures, took_s = measured(there, requested.names, requested.size)
    finally:
        spark.stop()
    show(figures, BUDGETS)
    if requested.write:
        run = Run(requested.size.described, before, took_s, figures)
        publish("bench-spark", run, requested.is_part)
    check_all(requested.names, took_s)


if __name__ == "__main__":
    main()
