"""`python -m tests.benchmarks.nodes [NAME ...] [--quick | --tiny] [--write]`."""

from collections.abc import Callable, Iterator

from tests.benchmarks.command_line import allow_many_sockets, arguments, check_all, measured
from tests.benchmarks.machine import facts
from tests.benchmarks.measure import Figure
from tests.benchmarks.nodes import edges, followers, shared_log
from tests.benchmarks.nodes.budgets import BUDGETS
from tests.benchmarks.nodes.page import publish
from tests.benchmarks.nodes.sizes import FULL, QUICK, TINY, Sizes
from tests.benchmarks.report import show
from tests.benchmarks.results import Run

CATALOGUE: dict[str, Callable[[Sizes], Iterator[Figure]]] = {
    "primary": edges.primary,
    "passing": edges.passing,
    "staleness": edges.staleness,
    "crowd": edges.crowd,
    "followers": followers.followers,
    "shared": shared_log.shared_log,
}


def main() -> None:
    """Run what was asked for, show it, and keep it if that was asked for."""
    requested = arguments("tests.benchmarks.nodes", CATALOGUE, (FULL, QUICK, TINY))
    allow_many_sockets()
    before = facts()
    figures, took_s = measured(CATALOGUE, requested.names, requested.size)
    show(figures, BUDGETS)
    if requested.write:
        size = f"{requested.size.name}, {requested.size.repetitions} repetitions"
        publish(Run(size, before, took_s, figures), requested.is_part)
    check_all(requested.names, took_s)


if __name__ == "__main__":
    main()
