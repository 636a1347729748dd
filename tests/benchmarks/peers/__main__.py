"""`python -m tests.benchmarks.peers [NAME ...] [--quick | --tiny] [--write]`."""

from tests.benchmarks.command_line import allow_many_sockets, arguments, check_all, measured
from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.page import of_peers, publish
from tests.benchmarks.peers.comparison import CATALOGUE, FULL, PACKAGES, QUICK, TINY
from tests.benchmarks.results import Run


def main() -> None:
    """Compare, show, and keep it if that was asked for."""
    requested = arguments("tests.benchmarks.peers", CATALOGUE, (FULL, QUICK, TINY))
    allow_many_sockets()
    before = facts((*LIBRARIES, *PACKAGES))
    rows, took_s = measured(CATALOGUE, requested.names, requested.size)
    run = Run(f"{requested.size.name}, {requested.size.rounds} rounds", before, took_s, rows)
    print(of_peers(run))
    if requested.write:
        publish("bench-peers", run, requested.is_part)
    check_all(requested.names, took_s)


if __name__ == "__main__":
    main()
