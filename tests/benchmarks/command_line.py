"""The command line of the benchmarks: which of them, in which size, kept or only shown.

The programs (`tests.benchmarks`, `.sowbench` and `.spark`) are catalogues of benchmarks by name.
"""

import argparse
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

Size = TypeVar("Size")
Measured = TypeVar("Measured")


def arguments(
    prog: str,
    catalogue: Iterable[str],
    sizes: Sequence[Any],
    alone: Sequence[str] = (),
) -> argparse.Namespace:
    """What was asked for; ends with usage if it makes no sense.

    The first of the sizes is the real one. Those in `alone` have a part of the page to themselves
    and are no part of the whole; `requested.is_part` says that some of the whole were asked for.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {prog}")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(catalogue))
    full, *others = sizes
    size = parser.add_mutually_exclusive_group()
    size.set_defaults(size=full)
    for other in others:
        text = f"{other.name} sizes: a first look, not what is published"
        size.add_argument(
            f"--{other.name}", dest="size", action="store_const", const=other, help=text
        )
    parser.add_argument(
        "--write", action="store_true", help="keep the results in docs/results, and show them"
    )
    requested = parser.parse_args()
    unknown = set(requested.names) - set(catalogue)
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(catalogue)}")
    if (
        requested.write
        and len(requested.names) > 1
        and any(name in alone for name in requested.names)
    ):
        parser.error(f"--write keeps {', '.join(alone)} without others")
    requested.is_part = bool(requested.names) and requested.names[0] not in alone
    requested.names = requested.names or [name for name in catalogue if name not in alone]
    return requested


def measured(
    catalogue: Mapping[str, Callable[[Size], Iterable[Measured]]], names: Iterable[str], size: Size
) -> tuple[list[Measured], dict[str, float]]:
    """What benchmarks gave, one after the other, and how many seconds each took.

    One that fails is left out: what the others have measured in half an hour is worth as much.
    """
    found: list[Measured] = []
    took_s: dict[str, float] = {}
    for name in names:
        start = time.perf_counter()
        try:
            found += list(catalogue[name](size))
        except Exception:
            traceback.print_exc()
            continue
        took_s[name] = time.perf_counter() - start
        print(f"{name}: {took_s[name]:.0f} s", file=sys.stderr, flush=True)
    if not took_s:
        raise SystemExit("nothing was measured")
    return found, took_s


def check_all(names: Iterable[str], took_s: Mapping[str, float]) -> None:
    """End the program with what is missing, if something is."""
    if failed := [name for name in names if name not in took_s]:
        raise SystemExit(f"not measured, since it failed: {', '.join(failed)}")


def allow_many_sockets() -> None:
    """A thousand subscribers need as many files open, here and in every child."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
