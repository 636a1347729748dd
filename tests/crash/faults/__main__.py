"""`python -m tests.crash.faults [--engine nats] [--faults 100] [--seed 1] [--write]`."""

import argparse
import asyncio
import random
import tempfile
from pathlib import Path

from tests.crash.faults.catalogue import KINDS, entry, write
from tests.crash.faults.engines import ENGINES
from tests.crash.faults.faults import Run

A_RUN = 24
"""Faults between two verdicts, each over a log and nodes of its own."""


def played(name, kinds, seed, directory):
    """One run over a new engine."""
    engine = ENGINES[name]()
    try:
        run = Run(directory, engine, seed)
        asyncio.run(run.play(kinds))
    finally:
        engine.close()
    return run


def main():
    parser = argparse.ArgumentParser(prog="tests.crash.faults")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--faults", type=int, default=2000, help="for each engine")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", choices=KINDS, help="one kind")
    parser.add_argument("--keep", type=Path, help="where logs and data of nodes stay")
    parser.add_argument("--write", action="store_true", help="into docs/reliability.md")
    given = parser.parse_args()
    bad = 0
    for name in given.engine or ENGINES:
        runs = []
        for begin in range(0, given.faults, A_RUN):
            count = min(A_RUN, given.faults - begin)
            kinds = [given.only or KINDS[at % len(KINDS)] for at in range(count)]
            seed = given.seed + begin
            with tempfile.TemporaryDirectory(prefix="sow-faults-") as made:
                directory = given.keep or Path(made)
                directory.mkdir(exist_ok=True)
                run = played(name, kinds, seed, directory)
            runs.append(run)
            print(f"{name}, seed {seed}: {run.facts}", *run.verdict.named, sep="\n", flush=True)
            bad += not run.verdict.is_good
            if given.write:
                write(entry(name, given.seed, runs))
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
