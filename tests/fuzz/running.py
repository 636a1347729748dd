"""Doors that are knocked at in a process of their own, since an input may end it.

`SOW_FUZZ_INPUTS=1000000` (which `make fuzz` sets) tries that many inputs, new ones every time; by
default it is some thousand, always the same ones.
"""

import json
import os
import sys
from pathlib import Path
from random import SystemRandom

from tests import forks

INPUTS = int(os.environ.get("SOW_FUZZ_INPUTS", "0"))
GROWN_MB_MAX = 256
ROOT = Path(__file__).parents[2]


def knocked(door, inputs=1_000):
    """What came of knocking at a door; fails with the command that makes it happen again."""
    seed = SystemRandom().randrange(10**9) if INPUTS else 0
    command = [sys.executable, "-m", "tests.fuzz", door, "--seed", str(seed)]
    ran = forks.run(
        [*command, "--inputs", str(INPUTS or inputs)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"python -m tests.fuzz {ran.stderr[-4000:]}"
    found = json.loads(ran.stdout)
    assert found["grown_mb"] < GROWN_MB_MAX, found
    print(found)
    return found
