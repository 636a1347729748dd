"""Figures: ours and the floor, measured in turn, so that both have met the same weather.

A machine that is shared reads one unchanged loop at half or twice its speed within a minute.
What survives is the ratio of two medians whose repetitions alternated; so nothing is measured
here without its floor beside it.
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

Measure = Callable[[], float]
MORE_IS_BETTER = ("/s", "followers")
"""How the units of such figures end."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: repeated measurements of ours and of its floor, in `unit`.

    Of a rate, whose unit ends in "/s", and of followers more is better; of all others less is.
    `server_cpu_us` is what the server process spent on each message, where that was measured.
    """

    benchmark: str
    case: str
    unit: str
    ours: Sequence[float]
    floor: Sequence[float]
    floor_name: str
    server_cpu_us: float | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """What budgets call it."""
        return f"{self.benchmark}: {self.case}"

    @property
    def subject(self) -> str:
        """What is measured again as a whole."""
        return self.name

    @property
    def value(self) -> float:
        """Our median."""
        return median(self.ours)

    @property
    def ratio(self) -> float:
        """Our speed (or thrift) as a part of the floor's: 1.0 is the floor itself."""
        ours, floor = self.value, median(self.floor)
        return part(ours, floor) if self.unit.endswith(MORE_IS_BETTER) else part(floor, ours)


def part(amount: float, whole: float) -> float:
    """What part of `whole` an amount is; of nothing, which may be measured, nothing is all."""
    return amount / whole if whole else 1.0 if not amount else inf


def in_turn(repetitions: int, *measures: Measure) -> list[list[float]]:
    """What each measure gave, repetition by repetition, after one turn that does not count."""
    for measure in measures:
        measure()
    gc.collect()
    taken: list[list[float]] = [[] for _ in measures]
    for _ in range(repetitions):
        for samples, measure in zip(taken, measures, strict=True):
            samples.append(measure())
    return taken


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes by the wall clock."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds(work: Callable[[], object]) -> float:
    """How much of the processor's time `work` takes in this process."""
    start = time.process_time()
    work()
    return time.process_time() - start


def seconds_each(work: Callable[[], object], at_least_s: float = 0.02) -> float:
    """How long one call of something short takes: the mean of as many as fill `at_least_s`."""
    calls, taken_s = 1, seconds(work)
    while taken_s < at_least_s:
        calls *= 2
        start = time.perf_counter()
        for _ in range(calls):
            work()
        taken_s = time.perf_counter() - start
    return taken_s / calls
