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
    asked = arguments("tests.benchmarks", CATALOGUE, (FULL, QUICK, TINY), alone=(STALLS,))
    allow_many_sockets()
    before = facts()
    figures, took_s = measured(CATALOGUE, asked.names, asked.size)
    is_bench = asked.names != [STALLS]
    show(figures, BUDGETS if is_bench else STALLS_BUDGETS)
    if asked.write:
        size = f"{asked.size.name}, {asked.size.repetitions if is_bench else 1} repetitions"
        run = Run(size, before, took_s, figures)
        publish("bench" if is_bench else STALLS, run, asked.is_part)
    check_all(asked.names, took_s)


if __name__ == "__main__":
    main()
