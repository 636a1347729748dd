"""docs/results/nodes.md: what one run has measured of edges and followers, and what it aims at.

It is made of docs/results/nodes.json and of nothing else; so is the part of docs/scaling.md that
sizes a system (`tests.docs.nodes`).
"""

from collections.abc import Sequence

from tests.benchmarks.measure import Figure
from tests.benchmarks.nodes.budgets import BUDGETS
from tests.benchmarks.page import markdown, of_figures, table
from tests.benchmarks.report import families, number, row
from tests.benchmarks.results import FOLDER, Run, load, put_in, save

RAW = FOLDER / "nodes.json"
PAGE = FOLDER / "nodes.md"
NOT_YET = "Not measured yet on this version: run `make bench-nodes`."
HEAD = """# Edges, followers and nodes of a shared log

What they are, and how many it takes: [more than one process](../scaling.md), [high
availability](../high-availability.md). `make bench-nodes`
writes this page. A screen is a connection with a subscription to one topic; processor time is
that of a whole process. Latencies are of an open loop: they count from the moment meant for a
record.
"""
HEADINGS = ("case", "unit", "min", "median", "max", "floor", "of the floor", "note")
RULES = ("---", "---", *["---:"] * 5, "---")


def publish(run: Run[Figure], is_part: bool) -> None:
    """Keep a run, or the part of one beside what is kept of the rest, and write the page."""
    save(RAW, put_in(load(RAW, Figure), run) if is_part and RAW.exists() else run)
    PAGE.write_text(made())


def figures() -> dict[str, Figure]:
    """What was measured, by name; nothing where nothing was."""
    return {one.name: one for one in load(RAW, Figure).measured} if RAW.exists() else {}


def made() -> str:
    """The page."""
    text = text_of(load(RAW, Figure)) if RAW.exists() else NOT_YET
    return f"{HEAD}\n{text}\n"


def text_of(run: Run[Figure]) -> str:
    """The aims with their verdicts, and each figure beside its floor."""
    lines = [of_figures(run, BUDGETS).rstrip("\n")]
    for name, members in families(run.measured).items():
        lines += ["", f"## {name[0].upper()}{name[1:]}", "", *table(HEADINGS, RULES)]
        lines += [markdown(_cells(member)) for member in members]
    return "\n".join(lines)


def _cells(figure: Figure) -> Sequence[str]:
    """A figure, with the processor time that it is not measured in left out."""
    *cells, _cpu, note = row(figure)
    return (*cells, note)


def said(figure: Figure) -> str:
    """What was measured, in its unit."""
    return f"{number(figure.value)} {figure.unit}"


if __name__ == "__main__":
    PAGE.write_text(made())
