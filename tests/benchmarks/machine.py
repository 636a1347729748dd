"""What the figures were measured on."""

import os
import platform
import subprocess
import sysconfig
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sow.core.inner_loops import INNER_LOOPS

ROOT = Path(__file__).parents[2]
BUILD = ("CONFIG_ARGS", "PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS_NODIST")
LIBRARIES = ("aiohttp", "lmdb", "msgspec", "numpy", "orjson", "uvloop")


def facts(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Date, processor, memory and versions, each as text: asked before anything is measured."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "SOW": f"{version('sow')}{commit()}",
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": f"{platform.python_version()}, built with {built()}",
        "inner loops": INNER_LOOPS.language,
        "libraries": ", ".join(filter(None, map(installed, libraries))),
    }


def built() -> str:
    """The optimizations that a build of Python may have or lack, which is worth up to a fifth."""
    flags = " ".join(str(sysconfig.get_config_var(name)) for name in BUILD)
    pgo = "--enable-optimizations" in flags or "-fprofile-use" in flags
    lto = "--with-lto" in flags or "-flto" in flags
    return f"{'' if pgo else 'no '}PGO and {'' if lto else 'no '}LTO"


def installed(package: str) -> str:
    """A package with its version; nothing if it is not there."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def commit() -> str:
    """Which commit this is, and whether more has changed since."""
    requested = ("git", "describe", "--always", "--dirty")
    try:
        said = subprocess.run(
            requested, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" at {said.strip()}"


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor() or "unknown"
