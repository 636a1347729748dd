"""A directory for what Spark is started with: a script that is run, a file that it is told to read.

Both have to stand where nobody else can write, so never under a name in a directory that all share:
in the user's cache, else beside the Python that runs, else in a new directory for this process.
"""

import atexit
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def private_directory() -> Path:
    """A directory that is the user's alone."""
    return first_private(candidates(os.environ)) or _of_this_process()


def candidates(environment: Mapping[str, str]) -> list[Path]:
    """Where it may be, best first."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(base, "sow", "spark") for base in (cache, sys.prefix) if os.path.isabs(base)]


def first_private(paths: Sequence[Path]) -> Path | None:
    """The first that can be made, or is there, belongs to us and is closed to everybody else."""
    for path in paths:
        try:
            path.mkdir(0o700, parents=True, exist_ok=True)
            found = path.lstat()
        except OSError:
            continue
        closed = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
        if closed and found.st_uid == os.getuid() and os.access(path, os.W_OK):
            return path
    return None


def _of_this_process() -> Path:
    made = Path(tempfile.mkdtemp(prefix="sow-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
