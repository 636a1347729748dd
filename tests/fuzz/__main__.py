"""`python -m tests.fuzz DOOR [--inputs N] [--seed S] [--block B]`: many inputs for one door.

In a process of its own, since an input may end it. The inputs of a block follow from seed and
block, so that whatever happens can be made to happen again. Prints what came of them as JSON.
"""

import argparse
import json
import random
import resource
import sys
import time

from tests.fuzz.arrow import ArrowDoor
from tests.fuzz.credentials import CredentialsDoor
from tests.fuzz.doors import ConfigurationDoor, FilterDoor, FrameDoor

DOORS = {
    "arrow": ArrowDoor,
    "credentials": CredentialsDoor,
    "frame": FrameDoor,
    "filter": FilterDoor,
    "configuration": ConfigurationDoor,
}
BLOCK = 1_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("door", choices=DOORS)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--block", type=int, help="only this one")
    requested = parser.parse_args()
    blocks = (
        [requested.block] if requested.block is not None else range(-(-requested.inputs // BLOCK))
    )
    begun_s, let_in, longest_s = time.monotonic(), 0, 0.0
    before_bytes = peak_bytes()
    for block in blocks:
        # The last line shows where it ended.
        print(
            f"{requested.door} --seed {requested.seed} --block {block}", file=sys.stderr, flush=True
        )
        came_in, took_s = knocks(
            DOORS[requested.door](), random.Random(f"{requested.seed} {block}")
        )
        let_in, longest_s = let_in + came_in, max(longest_s, took_s)
    inputs = len(blocks) * BLOCK
    seconds = time.monotonic() - begun_s
    grown = (peak_bytes() - before_bytes) // 1024**2
    print(
        json.dumps(
            {
                "door": requested.door,
                "inputs": inputs,
                "let_in": let_in,
                "a_second": round(inputs / seconds),
                "longest_ms": round(longest_s * 1_000, 1),
                "grown_mb": grown,
            }
        )
    )


def knocks(door, rng: random.Random) -> tuple[int, float]:
    """How many of a block's inputs are let in, and the seconds of the one that took longest."""
    let_in, longest_s = 0, 0.0
    for _ in range(BLOCK):
        data = door.input(rng)
        begun_s = time.perf_counter()
        try:
            let_in += door.knock(data)
        except BaseException:
            print(f"by the input {data!r}", file=sys.stderr)
            raise
        longest_s = max(longest_s, time.perf_counter() - begun_s)
    return let_in, longest_s


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
