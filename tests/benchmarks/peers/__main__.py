"""`python -m tests.benchmarks.peers [--quick] [--write]`: about half an hour, or a few minutes."""

import argparse
import sys

from tests.benchmarks.__main__ import allow_many_sockets
from tests.benchmarks.peers.comparison import FULL, QUICK, compared
from tests.benchmarks.peers.table import page, put_into_page


def main() -> None:
    """Compare, show, and write it if that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--write", action="store_true", help="rewrite docs/performance.md")
    asked = parser.parse_args()
    allow_many_sockets()
    text = page(compared(QUICK if asked.quick else FULL), QUICK if asked.quick else FULL)
    print(text)
    if asked.write:
        put_into_page(text)


if __name__ == "__main__":
    sys.exit(main())
