"""`python -m tests.simulation.nodes`: many seeds of several nodes, or one to look at.

The order of a set of texts is another one in each process, unless PYTHONHASHSEED is 0. So it is,
and a seed that has failed fails again.
"""

import argparse
import os
import sys
import time

from tests.simulation.nodes.run import run


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.nodes")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=300, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--steps", type=int, default=150)
    requested = parser.parse_args()
    if requested.seed is not None:
        run(requested.seed, requested.steps)
        return
    began = time.monotonic()
    for seed in range(requested.first, requested.first + requested.seeds):
        run(seed, requested.steps)
    print(f"{requested.seeds} seeds of nodes in {time.monotonic() - began:.0f} s: no difference")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tests.simulation.nodes", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    main()
