"""What is known of every run, kept beside the other results, and its part of the page."""

import datetime
import json
import statistics
from collections import defaultdict
from pathlib import Path

from tests.crash.faults.judge import COUNTS

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
RESULTS = PAGE.parent / "results" / "faults-log.json"
KINDS = (
    "node killed",
    "silent partition",
    "engine's leader killed",
    "node paused",
    "disk of a node full",
    "all of the engine killed",
)


def summary(waits_s):
    """Median, 99th of a hundred and longest of some times."""
    ordered = sorted(waits_s)
    if not ordered:
        return {}
    return {
        "median_s": round(statistics.median(ordered), 2),
        "p99_s": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "longest_s": round(ordered[-1], 2),
    }


def entry(engine, seed, runs):
    """What some runs over an engine have shown."""
    waits_s, faults = defaultdict(list), defaultdict(int)
    for run in runs:
        for kind, times in run.faults.items():
            faults[kind] += times
            waits_s[kind] += run.waits_s[kind]
    facts = {name: sum(run.facts[name] for run in runs) for name in runs[0].facts}
    facts["longest_step_ms"] = max(run.facts["longest_step_ms"] for run in runs)
    return {
        "engine": engine,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": seed,
        "runs": len(runs),
        "kinds": {kind: {"faults": faults[kind], **summary(waits_s[kind])} for kind in faults},
        **facts,
        **{name: sum(getattr(run.verdict, name) for run in runs) for name in COUNTS},
    }


def write(one):
    """Keep an engine's results in place of its earlier ones."""
    kept = [other for other in _kept() if other["engine"] != one["engine"]]
    RESULTS.write_text(json.dumps([*kept, one], indent=1) + "\n")


def table():
    """The part of the page."""
    return "\n\n".join(map(_engine, _kept()))


def _kept():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def _engine(one):
    rows = [
        "| fault | how often | median s | p99 s | longest s |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {kind} | {of['faults']:,} | "
            + " | ".join(f"{of[name]:g}" if name in of else "–" for name in TIMES)
            + " |"
            for kind, of in one["kinds"].items()
        ),
    ]
    total = sum(of["faults"] for of in one["kinds"].values())
    return "\n".join(
        [
            f"**{one['engine']}** ({one['date']}, seed {one['seed']}): {total:,} faults in "
            f"{one['runs']} runs, {one['terms']:,} terms, {one['void']:,} void entries. Of "
            f"{one['acknowledged']:,} acknowledged messages {one['lost']} lost and "
            f"{one['doubled']} doubled; {one['refused']} that were refused are in the log; "
            f"{one['different']} nodes differ; {one['gaps']} gaps or repeats with subscribers, "
            f"which went on {one['moves']:,} times. Longest step of a loop: "
            f"{one['longest_step_ms']} ms.",
            "",
            *rows,
        ]
    )


TIMES = ("median_s", "p99_s", "longest_s")
