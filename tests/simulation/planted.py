"""Bugs planted one at a time into a copy of the tree: the suite has to catch each of them.

`python -m tests.simulation.planted` runs all, or those of the parts that are given; a mutation that
survives, or whose text is no longer there exactly once, fails the run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit

from tests.effort import PLANTED
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import PARTS

ROOT = Path(__file__).parents[2]
SUITE_CPU_S_MAX = 1200
"""A suite that never ends is not green. It is processor time: a busy machine catches nothing."""
NO_SUCH_TESTS = 4
SUITES = (
    (
        "tests/laws",
        "tests/topic",
        "tests/streaming",
        "tests/engine",
        "tests/sessions",
        "tests/indexes",
        "tests/query",
        "tests/history",
        "tests/core/test_clock.py",
        "tests/conflated_topics",
    ),
    ("tests/simulation/test_simulation.py",),
)
"""The tests that run one after the other, the longest at the end."""
NODES_SUITES = (("tests/simulation/test_nodes.py",),)
"""What needs several nodes to be seen is seen by no other test."""


def found_once(mutation: Mutation) -> bool:
    """Whether the text to change is there, and only once."""
    return (ROOT / mutation.file).read_text().count(mutation.text) == 1


def own_test(mutation: Mutation) -> str:
    """The tests of the changed module itself: run first, as they are quick and mostly find it."""
    path = Path(mutation.file)
    folder = path.parent.relative_to("sow") if path.parts[0] == "sow" else path.parent
    name = "" if path.name == "__init__.py" else f"test_{path.name}"
    return str(Path("tests") / folder / name)


def survives(mutation: Mutation, *suites: Sequence[str]) -> bool:
    """Whether every one of these suites stays green although the bug is there."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in ("sow", "conflated_topics", "tests"):
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "benchmarks")
            )
        shutil.copy(ROOT / "pyproject.toml", copy)
        path = copy / mutation.file
        path.write_text(path.read_text().replace(mutation.text, mutation.instead))
        return all(is_green(copy, suite) for suite in suites)


def is_green(copy: Path, suite: Sequence[str]) -> bool:
    """Whether a suite passes in a copy of the tree; one that never ends does not."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *suite],
        cwd=copy,
        env={**os.environ, "SOW_EFFORT": PLANTED, "SOW_PURE": "1"},
        capture_output=True,
        check=False,
        preexec_fn=lambda: setrlimit(RLIMIT_CPU, (SUITE_CPU_S_MAX, SUITE_CPU_S_MAX)),
    )
    assert run.returncode != NO_SUCH_TESTS, run.stderr
    return run.returncode == 0


def main(words: Sequence[str] | None = None) -> int:
    """Plant every bug of some parts; the number that were not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parts = parser.parse_args(words).parts or [*PARTS]
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    planted = [(part, mutation) for part in parts for mutation in PARTS[part]]
    missed = 0
    for part, mutation in planted:
        suites = NODES_SUITES if part == "nodes" else SUITES
        if not found_once(mutation):
            verdict = "TEXT NOT FOUND"
        else:
            verdict = "SURVIVES" if survives(mutation, [own_test(mutation)], *suites) else "caught"
        missed += verdict != "caught"
        print(f"{verdict:<15} {mutation.file}: {mutation.name}", flush=True)
    print(f"{len(planted) - missed} of {len(planted)} planted bugs caught")
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
