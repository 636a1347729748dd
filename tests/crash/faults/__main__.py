"""`python -m tests.crash.faults [--engine nats] [--faults 100] [--seed 1] [--write]`."""

import argparse
import asyncio
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash.faults.catalogue import entry, is_busy, title, write
from tests.crash.faults.engines import ENGINES, KINDS, OF_NODES
from tests.crash.faults.faults import LEADER_SHARE, Run

A_RUN = 24
BESIDE = (*OF_NODES, *KINDS)
"""Of faults beside each other: one of nodes is over sooner."""
"""Faults between two verdicts, each over a log and nodes of its own."""


def played(name, kinds, seed, directory, **more):
    """One run over a new engine."""
    engine = ENGINES[name]()
    try:
        run = Run(directory, engine, seed, **more)
        asyncio.run(run.play(kinds))
    finally:
        engine.close()
    return run


def runs(name, given):
    """The runs of so many faults over an engine, some at once: much of a fault is waiting."""

    def one(begin):
        count = min(A_RUN, given.faults - begin)
        of = BESIDE if given.beside else ENGINES[name].kinds
        kinds = [given.only or of[at % len(of)] for at in range(begin, begin + count)]
        random.Random(given.seed + begin).shuffle(kinds)
        more = {"leader_share": 1.0 if given.only else LEADER_SHARE, "beside": given.beside}
        with tempfile.TemporaryDirectory(prefix="sow-faults-") as made:
            directory = Path(made if given.keep is None else given.keep / f"{name}-{begin}")
            directory.mkdir(parents=True, exist_ok=True)
            return played(name, kinds, given.seed + begin, directory, **more)

    with ThreadPoolExecutor(given.at_once) as pool:
        yield from pool.map(one, range(0, given.faults, A_RUN))


def main():
    parser = argparse.ArgumentParser(prog="tests.crash.faults")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--faults", type=int, default=2000, help="for each engine")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", choices=KINDS, help="one kind, of nodes that lead")
    parser.add_argument("--beside", action="store_true", help="nodes fail while the engine does")
    parser.add_argument("--at-once", type=int, default=1, help="runs beside each other")
    parser.add_argument("--keep", type=Path, help="where logs and data of nodes stay")
    parser.add_argument("--write", action="store_true", help="into docs/reliability.md")
    parser.add_argument("--add", action="store_true", help="and keep what is there of before")
    given = parser.parse_args()
    bad, adds = 0, given.add
    for name in given.engine or ENGINES:
        for run in runs(name, given):
            print(f"{name}, seed {run.seed}: {run.facts}", *run.verdict.named, sep="\n", flush=True)
            bad += not run.verdict.is_good
            if given.write:
                write(entry(title(name, given.only, given.beside, is_busy()), run), adds)
                adds = True
        adds = given.add
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
