"""`python -m tests.benchmarks [NAME ...] [--quick] [--write]`."""

import argparse
import resource
import sys
import time

from tests.benchmarks.catalogue import CATALOGUE
from tests.benchmarks.measure import Figure
from tests.benchmarks.report import show, write, write_stalls
from tests.benchmarks.sizes import FULL, QUICK, Sizes

STALLS = ["stalls"]
"""Has a part of the page to itself."""


def arguments() -> argparse.Namespace:
    """What was asked for; ends with usage if it makes no sense."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CATALOGUE))
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--write", action="store_true", help="rewrite docs/performance.md")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in CATALOGUE]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(CATALOGUE)}")
    if asked.write and asked.names not in ([], STALLS):
        parser.error("--write needs a run of all benchmarks, or of stalls: leave out the names")
    return asked


def run(names: list[str], sizes: Sizes) -> list[Figure]:
    """Run benchmarks one after the other."""
    figures: list[Figure] = []
    for name in names:
        start = time.perf_counter()
        figures += CATALOGUE[name](sizes)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return figures


def allow_many_sockets() -> None:
    """A thousand subscribers need as many files open, here and in every child."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Run what was asked for, show it, and write it if that was asked for."""
    asked = arguments()
    allow_many_sockets()
    sizes = QUICK if asked.quick else FULL
    figures = run(asked.names or list(CATALOGUE), sizes)
    show(figures)
    if asked.write and asked.names == STALLS:
        write_stalls(figures)
    elif asked.write:
        write(figures, sizes)


if __name__ == "__main__":
    main()
