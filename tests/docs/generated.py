"""The generated pages and parts of pages: ``make docs`` (``python -m tests.docs``) writes them.

A part stands between two comments that name it, on whatever page:

    <!-- metrics: written by make docs -->
    <!-- end of metrics -->

docs/functions.md and, in docs/results, loads.md, nodes.md, spark-scale.md and sowbench.md are
generated as a whole, and the parts of docs/performance.md and docs/results/profiles.md are made of
the results in docs/results.
Everything else on the pages is written by hand.
"""

import functools
import re
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import page as performance
from tests.benchmarks.nodes import page as measured_nodes
from tests.benchmarks.sowbench import page as sowbench
from tests.benchmarks.spark import loads, scale
from tests.crash.faults import catalogue as faults
from tests.docs import capacity, functions, metrics, nodes, sizes
from tests.docs.elements import reference

ROOT = Path(__file__).parents[2]
PAGES = sorted({*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")})
STALE = "{} is out of date; run: make docs"

PARTS: dict[str, Callable[[], str]] = {
    name: functools.cache(make)
    for name, make in {
        "capacity": capacity.table,
        "faults": faults.table,
        "configuration": lambda: reference().rstrip("\n"),
        "metrics": metrics.table,
        "nodes": nodes.table,
        "sizes": sizes.table,
    }.items()
}
"""Each is made once: some read all of the code."""
ABOUT = {"sizes": sizes.are_about}
"""Parts that stay while their figures are about right, so that not each change of the code is one
of the page."""


def part_of(text: str, name: str) -> str | None:
    """What stands in a page as this part."""
    found = re.search(_pattern(name), text, re.S)
    return found and found[1].strip("\n")


def with_part(text: str, name: str, part: str) -> str:
    """The page with another text as this part."""
    return re.sub(_pattern(name), lambda _: _block(name, part), text, flags=re.S)


def _block(name: str, part: str) -> str:
    return f"<!-- {name}: written by make docs -->\n\n{part}\n\n<!-- end of {name} -->"


def _pattern(name: str) -> str:
    return rf"<!-- {name}: written by make docs -->\n(.*?)<!-- end of {name} -->"


def generated(path: Path) -> str:
    """A page as `make docs` writes it."""
    if path == functions.PAGE:
        return functions.page()
    if path == sowbench.PAGE:
        return sowbench.made()
    for large in (measured_nodes, loads, scale):
        if path == large.PAGE:
            return large.made()
    text = path.read_text()
    if path in (performance.PAGE, performance.PROFILES):
        text = performance.made(text)
    for name, make in PARTS.items():
        written = part_of(text, name)
        if written is not None and not (name in ABOUT and ABOUT[name](written, make())):
            text = with_part(text, name, make())
    return text
