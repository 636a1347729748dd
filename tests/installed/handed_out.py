"""What is handed out, made without a network: the source, wheels, and environments that have one.

An environment has SOW from a wheel, and of what the environment of the tests has it has just what
the metadata asks for: each distribution that a part of SOW declares, and what those ask for in
turn, as links. Whatever is imported and not declared is therefore missing there.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_SOURCE = shutil.ignore_patterns(
    ".*", "build", "dist", "data", "__pycache__", "*.egg-info", "*.pyc", "*.so"
)
WAIT_S = 600
"""A safety net: a compiler may run for long on a busy machine."""


def copy_of_the_source(directory: Path) -> Path:
    """The checkout without what has been made in it: building leaves files behind."""
    return Path(shutil.copytree(ROOT, directory, ignore=NOT_SOURCE))


def built(kind: str, source: Path, target: Path) -> Path:
    """A `wheel` or an `sdist`, by the backend of pyproject.toml itself."""
    target.mkdir(exist_ok=True)
    making = f"from setuptools.build_meta import build_{kind} as build; build({str(target)!r})"
    run(sys.executable, "-c", making, cwd=source)
    (made,) = target.iterdir()
    return made


def environment(directory: Path, wheel: Path, extras: frozenset[str]) -> Path:
    """A new environment with a wheel and what these extras of it ask for; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    python = directory / "bin" / "python"
    paths = {"base": str(directory), "platbase": str(directory)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet"),
        *("--no-index", "--no-deps", "--no-warn-script-location", wheel),
        cwd=directory,
    )
    for found in requested_for(extras):
        link(found, site)
    return python


def requirements(extras: frozenset[str]) -> list[Requirement]:
    """What SOW asks for with these extras, those of extras that are asked for by extras too."""
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    requested = [Requirement(text) for text in texts]
    inner = frozenset(
        extra for one in requested if one.name == PROJECT["name"] for extra in one.extras
    )
    if inner <= extras:
        return [one for one in requested if one.name != PROJECT["name"]]
    return requirements(extras | inner)


def requested_for(extras: frozenset[str]) -> list[Distribution]:
    """The distributions that these extras bring, each once."""
    found: dict[str, Distribution] = {}
    waiting = requirements(extras)
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        seen = name in found
        if seen and not one.extras:
            continue
        found[name] = distribution(one.name)
        given = [default_environment() | {"extra": extra} for extra in ("", *one.extras)]
        waiting += [
            inner
            for inner in map(Requirement, found[name].requires or ())
            if inner.marker is None or any(inner.marker.evaluate(where) for where in given)
            if not (seen and canonicalize_name(inner.name) in found)
        ]
    return list(found.values())


def link(found: Distribution, site: Path) -> None:
    """Links in `site` to what a distribution has beside its packages' names, and to those."""
    tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
    for top in tops:
        target = site / top
        if not target.exists():
            target.symlink_to(Path(str(found.locate_file(top))))


def run(*words: object, cwd: Path | None = None) -> str:
    """What a program printed; an error with what it said where it failed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=kept, capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
