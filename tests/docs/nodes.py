"""The part `nodes` of docs/scaling.md: what edges and followers take, and 16 cores by calculation.

Every number is of docs/results/nodes.json, or computed here from one that is. Without results the
part says so, so that it never shows what was not measured.
"""

from collections.abc import Callable, Mapping

from tests.benchmarks.measure import Figure
from tests.benchmarks.nodes.budgets import MORE
from tests.benchmarks.nodes.page import NOT_YET, figures, said
from tests.benchmarks.nodes.sizes import FULL
from tests.benchmarks.report import number

CORES = 16
FOLLOWERS = 2
RATE = 10_000
"""Messages a second that the primary takes in the calculation."""
SCREEN_KB_S = 30
"""What a screen is sent: a hundred rows of 300 bytes a second."""
ROOM = 0.5
"""Of each edge's core: the other half takes over the screens of an edge that dies."""

Words = Callable[[Mapping[str, Figure]], str]

PASSED = f"an edge: {FULL.screens[-2]} screens, frames of 100"
PRIMARY = f"primary's CPU: {MORE[-1]:,} screens behind 2 edges, 10 distinct"
ALONE = f"primary's CPU: {MORE[-1]:,} screens on the primary, 10 distinct"
MEMORY = f"connections: {FULL.crowd:,} over 2 edges, memory of each"
APPLIED = "catch-up: while it runs, by processor time"
CAUGHT_UP = "catch-up: while it runs, by the wall clock"
COPIED = f"first copy: of {FULL.records:,} records, until it serves"
WAITED = f"first copy: of {FULL.records:,} records, longest wait for the primary"
LATE = f"staleness: {FULL.rates[-1]:,}/s, 10 follow over an edge, p99"


def table() -> str:
    """What was measured, what follows from it for a core, and for `CORES` of them."""
    found = figures()
    if not found:
        return NOT_YET
    rows = [(what, _row(names, words, found)) for what, names, words in ROWS]
    lines = ["| what | measured | so |", "| --- | ---: | --- |"]
    return "\n".join([*lines, *(f"| {what} | {rest} |" for what, rest in rows)])


def _row(names: tuple[str, ...], words: Words, found: Mapping[str, Figure]) -> str:
    if any(name not in found for name in names):
        return "not measured | -"
    return f"{said(found[names[0]])} | {words(found)}"


def mb_a_core(found: Mapping[str, Figure]) -> float:
    """Megabytes that one core of an edge passes on in a second."""
    return 1000 / found[PASSED].value


def primary_cores(found: Mapping[str, Figure]) -> float:
    """What the primary takes of a core at `RATE`."""
    return found[PRIMARY].value * RATE / 1e6


def on_many_cores(found: Mapping[str, Figure]) -> str:
    """One primary, some followers, and the rest edges."""
    edges = CORES - 1 - FOLLOWERS
    mb_s = ROOM * edges * mb_a_core(found)
    screens = mb_s * 1000 / SCREEN_KB_S
    return (
        f"1 primary at {primary_cores(found):.0%} of its core, {FOLLOWERS} followers and "
        f"{edges} edges, each half used: {number(mb_s)} MB/s, which is {number(screens)} screens "
        f"of {SCREEN_KB_S} KB/s"
    )


ROWS: tuple[tuple[str, tuple[str, ...], Words], ...] = (
    (
        "CPU of the primary for a message, with "
        f"{MORE[-1]:,} screens behind two edges, of ten kinds",
        (PRIMARY, ALONE),
        lambda found: (
            f"{number(1 / found[PRIMARY].ratio)} times that of {found[PRIMARY].floor_name}; "
            f"without edges {said(found[ALONE])}"
        ),
    ),
    (
        "CPU of an edge for what it passes on",
        (PASSED,),
        lambda found: f"{number(mb_a_core(found))} MB/s a core",
    ),
    (
        "memory of a connection, at its edge",
        (MEMORY,),
        lambda found: f"{number(found[MEMORY].value * 10_000 / 1024)} MiB for 10,000",
    ),
    (
        "how late an edge is",
        (LATE,),
        lambda found: f"directly {number(found[LATE].floor[0])} ms: p99 at {FULL.rates[-1]:,}/s",
    ),
    (
        "what a follower applies of the log, by its CPU",
        (APPLIED, CAUGHT_UP),
        lambda found: (
            f"{RATE / found[APPLIED].value:.1%} of a core for {RATE:,} messages/s; "
            f"{said(found[CAUGHT_UP])} when it catches up"
        ),
    ),
    (
        f"a first copy of {FULL.records:,} records",
        (COPIED, WAITED),
        lambda found: f"others wait for the primary for up to {number(found[WAITED].value)} ms",
    ),
    (
        f"**{CORES} cores**, by calculation, at {RATE:,} messages/s",
        (PRIMARY, PASSED),
        on_many_cores,
    ),
)
