"""The report: figures and verdicts in words and on the terminal; `page` has them as Markdown."""

from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from tests.benchmarks.budgets import BUDGETS, REASONS, Budget, Verdict, verdicts
from tests.benchmarks.measure import Figure

HEADINGS = ("case", "unit", "min", "median", "max", "floor", "ratio", "server CPU/message", "note")
LEFT = 2
"""So many columns from the left, and the last, are text; the others are numbers."""


def number(amount: float) -> str:
    """Three digits that count."""
    if amount >= 1000:
        return f"{amount:,.0f}"
    return f"{amount:.0f}" if amount >= 100 else f"{amount:.3g}"


def row(figure: Figure) -> tuple[str, ...]:
    """A figure in the order of `HEADINGS`."""
    cpu_us = figure.server_cpu_us
    return (
        figure.case,
        figure.unit,
        *(number(amount) for amount in (min(figure.ours), figure.value, max(figure.ours))),
        number(median(figure.floor)),
        f"{figure.ratio:.3g}",
        "" if cpu_us is None else f"{cpu_us:.2f} µs",
        figure.note,
    )


def families(figures: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Figures that are compared with one floor, under the name of both."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(f"{figure.benchmark} (floor: {figure.floor_name})", []).append(figure)
    return found


def show(figures: Sequence[Figure], budgets: Sequence[Budget] = BUDGETS) -> None:
    """Print figures and verdicts."""
    console = Console(width=None if Console().is_terminal else 160)
    for name, members in families(figures).items():
        table = Table(title=name, title_justify="left")
        for at, heading in enumerate(HEADINGS):
            text = at < LEFT or heading == "note"
            table.add_column(heading, justify="left" if text else "right")
        for member in members:
            table.add_row(*row(member))
        console.print(table)
    for path, words in judged(figures, budgets).items():
        console.print(f"{path}: {words}", highlight=False)


def judged(figures: Sequence[Figure], budgets: Sequence[Budget] = BUDGETS) -> dict[str, str]:
    """What became of every budget, by its path."""
    found = {verdict.budget.path: said(verdict) for verdict in verdicts(list(figures), budgets)}
    return {budget.path: found.get(budget.path, "not measured in this run") for budget in budgets}


def said(verdict: Verdict) -> str:
    """A verdict in words."""
    budget = verdict.budget
    bound = "at least" if budget.at_least else "at most"
    text = f"{number(verdict.measured)} {budget.unit}, aim {bound} {number(budget.aim)}"
    if verdict.met:
        return f"met: {text}"
    reason = REASONS.get(budget.path, "")
    missed = f"missed: {text} ({verdict.times:.2f} times the aim)"
    return f"{missed}. {reason}" if reason else missed
