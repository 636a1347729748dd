"""`python -m tests.benchmarks [NAME ...] [--quick | --tiny] [--write]`."""

from tests.benchmarks.budgets import BUDGETS, STALLS_BUDGETS
from tests.benchmarks.catalogue import CATALOGUE
from tests.benchmarks.command_line import allow_many_sockets, arguments, check_all, measured
from tests.benchmarks.machine import facts
from tests.benchmarks.page import publish
from tests.benchmarks.report import show
from tests.benchmarks.results import Run
from tests.benchmarks.sizes import FULL, QUICK, TINY

STALLS = "stalls"


def main() -> None:
    """Run what was asked for, show it, and keep it if that was asked for."""
    requested = arguments("tests.benchmarks", CATALOGUE, (FULL, QUICK, TINY), alone=(STALLS,))
    allow_many_sockets()
    before = facts()
    figures, took_s = measured(CATALOGUE, requested.names, requested.size)
    is_bench = requested.names != [STALLS]
    show(figures, BUDGETS if is_bench else STALLS_BUDGETS)
    if requested.write:
        size = f"{requested.size.name}, {requested.size.repetitions if is_bench else 1} repetitions"
        run = Run(size, before, took_s, figures)
        publish("bench" if is_bench else STALLS, run, requested.is_part)
    check_all(requested.names, took_s)


if __name__ == "__main__":
    main()
