"""The footprint: what is installed, and how long Python takes until it can be used.

Sizes are of the files that SOW has without its tests, and of the distributions that a part of it
asks for, as they stand in the environment that measures; times are of the CPU of a new process,
against one that imports nothing.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.processes import ROOT
from tests.benchmarks.sizes import Sizes
from tests.installed.handed_out import requested_for

PACKAGES = ("sow", "conflated_topics")
PARTS = ("client", "server")
IMPORTS = {"client": "import sow.client", "server": "import sow.cli.commands.serve"}
MIB = 2**20


def footprint(sizes: Sizes) -> Iterator[Figure]:
    """What each part takes of a disk, and its first import of the CPU."""
    own = sum(_bytes(ROOT / package) for package in PACKAGES)
    for part in PARTS:
        brought = sum(
            found.locate_file(file).stat().st_size
            for found in requested_for(frozenset({part}))
            for file in found.files or ()
            if found.locate_file(file).is_file()
        )
        yield Figure(
            "size on disk",
            f"the {part} with what it asks for",
            "MiB",
            [(own + brought) / MIB],
            [own / MIB],
            "SOW alone",
        )
    for part, statement in IMPORTS.items():
        ours, bare = in_turn(
            sizes.repetitions, lambda said=statement: _cpu_ms(said), lambda: _cpu_ms("pass")
        )
        yield Figure("first import", f"the {part}: {statement}", "ms of CPU", ours, bare, "python")


def _bytes(folder: Path) -> int:
    """What a package takes without what Python makes of it."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def _cpu_ms(statement: str) -> float:
    """How much CPU a Python takes that does this and ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Authorities that the machine trusts are read where somebody wants them.
    quiet = {**os.environ, "SSL_CERT_FILE": os.devnull}
    subprocess.run([sys.executable, "-c", statement], check=True, cwd=ROOT, env=quiet)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000
