"""The bench: how much is measured, of whom, and how a case is played by everybody in turn."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.benchmarks.sowbench.adapter import Adapter, Cannot, Missing, Pace, Setup, made
from tests.benchmarks.sowbench.floors import Floors
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.row import Row


class Plan(NamedTuple):
    """How much is measured."""

    name: str
    rounds: int
    seconds: float
    """Of one run; what is published as fast as it is taken ends then, too."""
    updates: int
    keys: int
    records: int
    rates: Sequence[int]
    followers: Sequence[int]
    crowds: Sequence[int]
    filters: Sequence[int]
    times: int
    """That each question is asked."""
    events: int
    patience_s: float
    fill_s: float
    """For the records that have to be there before something is measured."""


FULL = Plan(
    "full", 3, 5.0, 200_000, 10_000, 1_000_000, (1000, 5000, 20_000), (1, 10, 100),
    (100, 200, 300, 400, 500, 700, 1000), (1000, 10_000), 100, 100_000, 20.0, 60.0,
)  # fmt: skip
QUICK = Plan(
    "quick", 1, 1.5, 40_000, 10_000, 100_000, (1000, 20_000), (10,),
    (100, 300), (1000,), 30, 10_000, 10.0, 15.0,
)  # fmt: skip
TINY = Plan(
    "tiny", 1, 0.2, 200, 3, 200, (500,), (2,), (2,), (4,), 2, 100, 5.0, 60.0,
)  # fmt: skip


class Bench(NamedTuple):
    """One run: the plan, specs of adapters, and the floors of the machine at this moment."""

    plan: Plan
    specs: Sequence[str]
    floors: Floors


class Played(NamedTuple):
    """What one run of a case gave: figures by (name, unit); see `Row` for the rest."""

    figures: Mapping[tuple[str, str], float]
    also: Mapping[str, float] = {}
    fault: str = ""
    limit: str = ""
    reasons: Mapping[str, str] = {}
    """Why there is no figure of some names."""


Play = Callable[[str, int], Played]
"""Of a spec, in a round."""
FloorOf = Mapping[str, tuple[float, str]]
"""The floor of each figure, and what it is."""


def compared(
    bench: Bench, case: str, play: Play, floors: FloorOf, rounds: int = 1
) -> Iterator[Row]:
    """A case by everybody, round by round; a row for each figure of each."""
    taken: dict[str, list[Played]] = {}
    reasons: dict[str, str] = {}
    for number in range(rounds):
        for spec in bench.specs:
            if spec in reasons:
                continue
            try:
                taken.setdefault(spec, []).append(play(spec, number))
            except (Cannot, Missing) as cannot:
                reasons[spec] = str(cannot)
            except (OSError, EOFError, AssertionError) as error:
                reasons[spec] = f"failed: {type(error).__name__}"
                print(f"{case}: {spec} failed: {error!r}", file=sys.stderr, flush=True)
    for spec in bench.specs:
        yield from _rows(case, spec, taken.get(spec, []), reasons.get(spec, ""), floors)


def _rows(
    case: str, spec: str, runs: Sequence[Played], reason: str, floors: FloorOf
) -> Iterator[Row]:
    adapter = made(spec)
    if not runs or reason:
        yield Row(case, adapter.name, (), "", adapter.promise, reason=reason)
        return
    limit = "; ".join(dict.fromkeys(run.limit for run in runs if run.limit))
    fault = "; ".join(dict.fromkeys(run.fault for run in runs if run.fault))
    for name, why in runs[0].reasons.items():
        yield Row(f"{case}, {name}", adapter.name, (), "", adapter.promise, reason=why)
    also = {name: [run.also[name] for run in runs if name in run.also] for name in runs[0].also}
    for name, unit in runs[0].figures:
        values = [run.figures[name, unit] for run in runs if (name, unit) in run.figures]
        floor, floor_name = floors.get(name, (0.0, ""))
        yield Row(
            f"{case}, {name}", adapter.name, values, unit, adapter.promise,
            floor, floor_name, limit, fault, also=also,
        )  # fmt: skip


@contextmanager
def running(spec: str, setup: Setup) -> Iterator[tuple[Adapter, Path]]:
    """A server on a folder of its own, which ends with it."""
    adapter = made(spec)
    with TemporaryDirectory(prefix="sowbench-") as folder:
        try:
            adapter.start(Path(folder), setup)
            yield adapter, Path(folder)
        finally:
            adapter.stop()


def published(adapter: Adapter, load: Any, pace: Pace | None = None) -> Pace:
    """Publish all of a load, as fast as it is taken or at a pace, which is given back. Raises
    Cannot if the pace is far too much."""
    pace = pace or Pace()
    with closing(adapter.publish(load, pace)) as progress:
        next(progress)
        pace.start()
        give_up_s = pace.begin_s + load.count / load.size * pace.step_s + BEHIND_S
        for acknowledged in progress:
            if pace.step_s and (now_s := time.monotonic()) > give_up_s:
                rate = acknowledged * load.size / (now_s - pace.begin_s)
                raise Cannot(f"it took {rate:,.0f} updates/s and no more")
    return pace


BEHIND_S = 6.0
"""Who is so late at the end of a pace is not going to keep it."""
FIRST_S = 3.0
"""After so long it is seen how long a load will take."""


def filled(adapter: Adapter, fill: Load, within_s: float) -> None:
    """Publish the records that have to be there. Raises Cannot if that would take too long."""
    begin, count = time.monotonic(), fill.count // fill.size
    with closing(adapter.publish(fill, Pace())) as progress:
        for acknowledged in progress:
            took_s = time.monotonic() - begin
            if took_s > FIRST_S and took_s * count > within_s * max(1, acknowledged):
                rate = acknowledged * fill.size / took_s
                raise Cannot(f"{fill.count:,} records take too long, at {rate:,.0f}/s")


def fault_of_state(load: Load, held: Mapping[int, bytes]) -> str:
    """What is wrong with the records after a load; nothing if they are right."""
    wanted = load.final()
    wrong = sum(held.get(key) != body for key, body in wanted.items())
    wrong += len(held.keys() - wanted.keys())
    return f"{wrong} records wrong" if wrong else ""
