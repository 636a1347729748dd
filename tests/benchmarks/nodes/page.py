"""docs/results/nodes.md: what one run has measured of edges and followers, and what it aims at.

It is made of docs/results/nodes.json and of nothing else; so is the part of docs/scaling.md that
sizes a system (`tests.docs.capacity`).
"""

from collections.abc import Iterable

from tests.benchmarks.budgets import Budget, added, added_percent, ratio, value
from tests.benchmarks.measure import Figure
from tests.benchmarks.nodes.sizes import FULL
from tests.benchmarks.page import markdown, of_figures, table
from tests.benchmarks.report import HEADINGS, families, row
from tests.benchmarks.results import FOLDER, Run, load, put_in, save

RAW = FOLDER / "nodes.json"
PAGE = FOLDER / "nodes.md"
HEAD = """# Edges and followers

What they are, and how many are needed: [more than one process](../scaling.md). `make bench-nodes`
writes this page. A screen is a connection with a subscription to one topic.
"""
BUDGETS: tuple[Budget, ...] = ()


def publish(run: Run[Figure], is_part: bool) -> None:
    """Keep a run, or the part of one beside what is kept of the rest, and write the page."""
    save(RAW, put_in(load(RAW, Figure), run) if is_part and RAW.exists() else run)
    PAGE.write_text(made())


def made() -> str:
    """The page."""
    text = text_of(load(RAW, Figure)) if RAW.exists() else "Not measured yet on this version."
    return f"{HEAD}\n{text}\n"


def text_of(run: Run[Figure]) -> str:
    """Each aim with its verdict, and each figure beside its floor."""
    lines = [of_figures(run, BUDGETS).rstrip("\n")]
    for name, members in families(run.measured).items():
        lines += ["", f"## {name}", "", *table(HEADINGS, rules)]
        lines += [markdown(row(member)) for member in members]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(made())
