"""`python -m tests.simulation`: many seeds, or one to look at."""

import argparse
import time

from tests.simulation.simulation import run


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--seeds", type=int, default=2000, help="run so many seeds")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--steps", type=int, default=120)
    asked = parser.parse_args()
    if asked.seed is not None:
        run(asked.seed, asked.clients, asked.steps)
        return
    began = time.monotonic()
    for seed in range(asked.first, asked.first + asked.seeds):
        run(seed, asked.clients, asked.steps)
    print(f"{asked.seeds} seeds in {time.monotonic() - began:.0f} s: no difference")


if __name__ == "__main__":
    main()
