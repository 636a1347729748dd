"""What is known of every run, kept beside the other results, and its part of the page."""

import datetime
import fcntl
import json
import os
import statistics
from pathlib import Path

from tests.crash.faults.engines import KINDS
from tests.crash.faults.judge import COUNTS

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"
RESULTS = PAGE.parent / "results" / "faults-log.json"
ADDED = ("runs", "acknowledged", "unknown", "terms", "void", "moves", "told_gaps", *COUNTS)
LONGEST = ("date", "load", "cores", "longest_step_ms", "longest_read_ms")
BESIDE = ", faults of nodes during those of the engine"
BUSY = ", on a busy machine"
PART = 0.99
LONG_MS = 50
"""A step that users notice."""


def title(engine, only=None, beside=False, is_busy=False):
    """What was played. Times of a busy machine, as of several runs at once, are kept apart: they
    say that nothing is lost there, and not how long a fault takes."""
    played = f"{engine}, {only} alone, the one that leads" if only else engine
    return played + BESIDE * beside + BUSY * is_busy


def is_busy():
    """Whether more runs here than the machine has cores for, over the minutes of a run."""
    return os.getloadavg()[1] > os.cpu_count()


def entry(title, run):
    """What a run has shown."""
    return {
        "title": title,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "seeds": [run.seed],
        "runs": 1,
        "kinds": {
            kind: {
                "faults": times,
                "waits_s": list(run.waits_s[kind]),
                "long_steps": run.long_steps[kind],
                "longest_step_ms": list(run.longest_step[kind]),
            }
            for kind, times in run.faults.items()
        },
        **run.facts,
        **{name: getattr(run.verdict, name) for name in COUNTS},
    }


def added(one, more):
    """Two entries as one."""
    kinds = dict(one["kinds"])
    for kind, of in more["kinds"].items():
        kinds[kind] = _added_kind(kinds[kind], of) if kind in kinds else of
    return {
        "title": one["title"],
        "seeds": one["seeds"] + more["seeds"],
        "kinds": kinds,
        **{name: one[name] + more[name] for name in ADDED},
        **{name: max(one[name], more[name]) for name in LONGEST},
    }


def _added_kind(one, more):
    found = {name: one[name] + more[name] for name in ("faults", "waits_s")}
    # The first runs knew steps only in total.
    if known := [of for of in (one, more) if "long_steps" in of]:
        found["long_steps"] = sum(of["long_steps"] for of in known)
        found["longest_step_ms"] = max(of["longest_step_ms"] for of in known)
        found["stalls_of"] = sum(of.get("stalls_of", of["faults"]) for of in known)
    return found


def write(one, adds):
    """Keep results in place of the earlier ones of their title, or added to them; several drivers
    may do so at once."""
    with RESULTS.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = {other["title"]: other for other in json.loads(file.read() or "[]")}
        if adds and one["title"] in kept:
            one = added(kept[one["title"]], one)
        kept[one["title"]] = one
        file.truncate(0)
        file.write(json.dumps(list(kept.values()), separators=(",", ":")) + "\n")


def table():
    """The part of the page."""
    return "\n\n".join(map(_engine, _kept()))


def _kept():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def _engine(one):
    longest_ms, step = one["longest_step_ms"]
    total = sum(of["faults"] for of in one["kinds"].values())
    return "\n".join(
        [
            f"**{one['title']}** ({one['date']}, seed {one['seeds'][0]}): {total:,} faults in "
            f"{one['runs']} runs, {one['terms']:,} terms, {one['void']:,} void entries. Of "
            f"{one['acknowledged']:,} acknowledged messages {one['lost']} lost and "
            f"{one['doubled']} doubled; {one['refused']} that were refused are in the log; "
            f"{one['different']} nodes differ; {one['gaps']} gaps or repeats with subscribers, "
            f"which went on {one['moves']:,} times; {one['errors']} tracebacks. The longest read "
            f"on a node that was not hit took {one['longest_read_ms']:,} ms, the longest step, "
            f"{step}, {longest_ms:,} ms, on {one['cores']} cores with a load of up to "
            f"{one['load']:g}.",
            "",
            "| fault | how often | median s | p99 s | longest s | stall |",
            "| --- | --- | --- | --- | --- | --- |",
            *(_row(kind, one["kinds"][kind], longest_ms) for kind in KINDS if kind in one["kinds"]),
        ]
    )


def _row(kind, of, longest_ms):
    ordered = sorted(of["waits_s"])
    times = "– | – | –"
    if ordered:
        part = ordered[min(len(ordered) - 1, int(len(ordered) * PART))]
        times = f"{statistics.median(ordered):.2f} | {part:.2f} | {ordered[-1]:.2f}"
    return f"| {kind} | {of['faults']:,} | {times} | {_stall(of, longest_ms)} |"


def _stall(of, longest_of_all_ms):
    if "long_steps" not in of:
        return "0" if longest_of_all_ms <= LONG_MS else "–"
    longest_ms, step = of["longest_step_ms"]
    said = f"{of['long_steps']}; {longest_ms} ms, {step}" if step else "0"
    known = of.get("stalls_of", of["faults"])
    return said if known == of["faults"] else f"{said} (of {known})"
