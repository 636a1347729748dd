"""Bugs planted one at a time into a copy of the tree: the suite has to catch each of them.

`python -m tests.simulation.planted` plants all, or those of the parts that are given. A bug is
caught by a test that fails with it and passes without it: one that fails anyway catches nothing.
A bug that survives, or whose text is no longer there exactly once, fails the run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from resource import RLIMIT_CPU, setrlimit
from typing import NamedTuple

from tests.effort import PLANTED
from tests.simulation.mutation import Mutation
from tests.simulation.mutations import PARTS

ROOT = Path(__file__).parents[2]
SUITE_CPU_S_MAX = 1200
"""A suite that never ends is not green. It is processor time: a busy machine catches nothing."""
TESTS_FAILED = (1, -24)
"""What pytest says of it, or the signal of a suite that has used its time. Everything else, such as
tests that are not there, is a fault of the run."""
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
SUITES_OF = {
    "nodes": (("tests/simulation/test_nodes.py",),),
    "shared_log": (("tests/shared_log/test_simulation.py",),),
}
"""What needs several nodes to be seen is seen by no other test."""


class Round(NamedTuple):
    """Tests that are run together, and with what effort."""

    effort: str
    suite: Sequence[str]


def rounds(part: str, mutation: Mutation) -> Iterator[Round]:
    """What looks for a bug, the quickest first: most are caught by the changed module's tests."""
    suites = SUITES_OF.get(part, SUITES)
    for effort in ("1", PLANTED):
        for suite in ([own_test(mutation)], *suites):
            yield Round(effort, suite)


def found_once(mutation: Mutation) -> bool:
    """Whether the text to change is there, and only once."""
    return (ROOT / mutation.file).read_text().count(mutation.text) == 1


def own_test(mutation: Mutation) -> str:
    """The tests of the changed module itself."""
    path = Path(mutation.file)
    folder = path.parent.relative_to("sow") if path.parts[0] == "sow" else path.parent
    name = "" if path.name == "__init__.py" else f"test_{path.name}"
    return str(Path("tests") / folder / name)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the tree. One serves for all bugs, so that what is not changed is compiled once."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for name in ("sow", "conflated_topics", "tests"):
            shutil.copytree(
                ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "benchmarks")
            )
        for name in ("pyproject.toml", "config.xml"):
            shutil.copy(ROOT / name, copy)
        yield copy


@contextmanager
def planted(copy: Path, mutation: Mutation) -> Iterator[None]:
    """The bug is there meanwhile. The file gets its old time back: what was compiled of the bug
    has another."""
    source, path = ROOT / mutation.file, copy / mutation.file
    path.write_text(source.read_text().replace(mutation.text, mutation.instead))
    try:
        yield
    finally:
        shutil.copy2(source, path)


def catches(copy: Path, mutation: Mutation, one: Round) -> str | None:
    """The test that fails because of the bug; None if the bug survives this round."""
    with planted(copy, mutation):
        if is_green(copy, one, "--cache-clear"):
            return None
    failed = copy / ".pytest_cache/v/cache/lastfailed"
    name = next(iter(json.loads(failed.read_text())), "") if failed.exists() else "no end"
    # Without a name all run again.
    if is_green(copy, one, "--last-failed"):
        return name
    print(f"{'FAILS ANYWAY':<15} {name}", flush=True)
    return None


def is_green(copy: Path, one: Round, *options: str) -> bool:
    """Whether a suite passes in a copy of the tree; one that never ends does not."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", *options, *one.suite],
        cwd=copy,
        env={**os.environ, "SOW_EFFORT": one.effort, "SOW_PURE": "1"},
        capture_output=True,
        check=False,
        preexec_fn=lambda: setrlimit(RLIMIT_CPU, (SUITE_CPU_S_MAX, SUITE_CPU_S_MAX)),
    )
    assert run.returncode in (0, *TESTS_FAILED), (run.returncode, run.stdout, run.stderr)
    return run.returncode == 0


def verdict(copy: Path, part: str, mutation: Mutation) -> tuple[str, str]:
    """What became of a bug, and the test that caught it."""
    if not found_once(mutation):
        return "TEXT NOT FOUND", ""
    for one in rounds(part, mutation):
        if name := catches(copy, mutation, one):
            return "caught", f"by {name}"
    return "SURVIVES", ""


def main(words: Sequence[str] | None = None) -> int:
    """Plant every bug of some parts; the number that were not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parts = parser.parse_args(words).parts or [*PARTS]
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}")
    chosen = [(part, mutation) for part in parts for mutation in PARTS[part]]
    missed = 0
    with copied() as copy:
        for part, mutation in chosen:
            found, by = verdict(copy, part, mutation)
            missed += found != "caught"
            print(f"{found:<15} {mutation.file}: {mutation.name} {by}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs caught")
    return missed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
