"""docs/results/sowbench.md: what one run has measured, the rows that we lose first.

It is made of docs/results/sowbench.json and of nothing else.
"""

from collections.abc import Sequence

from tests.benchmarks.page import conditions, markdown, table
from tests.benchmarks.report import number
from tests.benchmarks.results import FOLDER, Run, load, put_in, save
from tests.benchmarks.sowbench.row import OURS, Row

RAW = FOLDER / "sowbench.json"
PAGE = FOLDER / "sowbench.md"
HEAD = """# SOWbench

What is measured, and how another server is: [performance](../performance.md#beside-others).
`make bench-peers` writes this page. Behind another's figure stands, in parentheses, how often it is
ours; in brackets what has to be known about it.
"""


def publish(run: Run[Row], is_part: bool) -> None:
    """Keep a run, or the part of one beside what is kept of the rest, and write the page."""
    save(RAW, put_in(load(RAW, Row), run) if is_part and RAW.exists() else run)
    PAGE.write_text(made())


def made() -> str:
    """The page."""
    text = text_of(load(RAW, Row)) if RAW.exists() else "Not measured yet on this version."
    return f"{HEAD}\n{text}\n"


def text_of(run: Run[Row]) -> str:
    """Each case with our figure and those of the others."""
    cases: dict[str, list[Row]] = {}
    for one in run.measured:
        if one.values:
            cases.setdefault(one.case, []).append(one)
    lines = conditions(run)
    lines += table(("case", "SOW", "others", "floor"), ("---", "---:", "---", "---"))
    for case in sorted(cases, key=lambda case: not is_lost(cases[case])):
        lines.append(_line(case, cases[case]))
    lines += ["", *_missing(run.measured), ""]
    promises = dict.fromkeys(f"{one.name}: {one.promise}" for one in run.measured)
    lines.append(f"What an acknowledgement promises: {'; '.join(promises)}.")
    return "\n".join(lines)


def _line(case: str, rows: Sequence[Row]) -> str:
    ours = ours_of(rows)
    others = [one for one in sorted(rows, key=Row.rank) if one is not ours]
    words = "; ".join(f"{one.name} {_beside(one, ours)}" for one in others) or "-"
    of_ours = f"{_figure(ours)} {ours.unit}{_limit(ours)}" if ours else "-"
    floor = rows[0]
    beneath = f"{number(floor.floor)} ({floor.floor_name})" if floor.floor_name else "-"
    return markdown((case, of_ours, words, beneath))


def _beside(one: Row, ours: Row | None) -> str:
    """A figure beside ours."""
    is_comparable = ours is not None and ours.counts and one.counts and ours.value
    times = f" ({number(one.value / ours.value)})" if ours and is_comparable else ""
    return f"{_figure(one)}{times}{_limit(one)}"


def _figure(one: Row) -> str:
    return f"**wrong**: {one.fault}" if one.fault else number(one.value)


def _limit(one: Row) -> str:
    return f" [{one.limit}]" if one.limit else ""


def _missing(rows: Sequence[Row]) -> list[str]:
    """Who has no figure where, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in rows:
        if one.reason:
            reasons.setdefault((one.name, one.reason), []).append(one.case)
    lines = [
        f"| {name} | {', '.join(dict.fromkeys(map(_short, cases)))} | {reason} |"
        for (name, reason), cases in reasons.items()
    ]
    return [*table(("no figure of", "in", "because"), ("---", "---", "---")), *lines] * bool(lines)


def _short(case: str) -> str:
    """W9 q19 of `W9 q19, …`, else the workload."""
    words = case.replace(",", "").split()
    return " ".join(words[: 1 + (words[1:] and words[1][:1] == "q")])


def ours_of(rows: Sequence[Row]) -> Row | None:
    """Our own row of a case."""
    return next((one for one in rows if one.name == OURS), None)


def is_lost(rows: Sequence[Row]) -> bool:
    """Whether somebody else is better than we are, or ours is wrong."""
    ours = ours_of(rows)
    if ours is None or not ours.counts:
        return True
    others = [one for one in rows if not one.name.startswith(OURS)]
    return any(one.counts and one.rank() < ours.rank() for one in others)


if __name__ == "__main__":
    PAGE.write_text(made())
