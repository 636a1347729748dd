"""A private directory for files that Spark starts with: a script and a settings file.

No other user may write there, so it is never a fixed name in a shared directory: it is in the
user's cache, else beside the running Python, else a new directory for this process.
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
    """A directory that only the user can access."""
    return first_private(candidates(os.environ)) or _of_this_process()


def candidates(environment: Mapping[str, str]) -> list[Path]:
    """Candidates, best first."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(base, "sow", "spark") for base in (cache, sys.prefix) if os.path.isabs(base)]


def first_private(paths: Sequence[Path]) -> Path | None:
    """The first that exists or can be created, belongs to the user and is closed to others."""
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
