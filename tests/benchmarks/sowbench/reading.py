"""W8 and W9: what questions take while updates come, and what it takes to keep views current."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from statistics import quantiles
from typing import Any

from tests.benchmarks.processes import cpu_s
from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.adapter import Adapter, Cannot, Pace, Setup
from tests.benchmarks.sowbench.bench import (
    Bench,
    Plan,
    Played,
    compared,
    filled,
    published,
    running,
)
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.questions import QUESTIONS, Question, fault_of
from tests.benchmarks.sowbench.row import Row

BATCH = 100
FILL_SIZE = 1000
READS = 10
"""Of a view, evenly over the events."""
QUERY_PATIENCE_S = 10.0
"""For a question, which is then asked no further: a server that takes seconds for an answer is
known well enough by a few of them."""
ASKED_MIN = 3
SETTLED_S = 0.05


def w8(bench: Bench) -> Iterator[Row]:
    """Questions beside updates."""
    plan, rate = bench.plan, bench.plan.rates[-1]
    fill = Load(plan.records, plan.records, min(FILL_SIZE, plan.records))
    floor = (bench.floors.echo_ms, "a record to and fro")
    names = [f"{question.case}, {at}" for question in QUESTIONS for at in ("p50", "p99")]
    case = f"W8 {plan.records:,} records, {rate:,}/s"
    yield from compared(
        bench, case, partial(_questions, plan, fill, rate), dict.fromkeys(names, floor)
    )


def _questions(plan: Plan, fill: Load, rate: int, spec: str, _number: int) -> Played:
    figures: dict[tuple[str, str], float] = {}
    reasons: dict[str, str] = {}
    faults, rates = [], [0.0]
    with running(spec, Setup()) as (adapter, _):
        filled(adapter, fill, plan.fill_s)
        for number, question in enumerate(QUESTIONS, 1):
            updates = Updates(adapter, fill._replace(first=number * fill.count), rate)
            try:
                adapter.query(question)
            except Cannot as cannot:
                reasons[question.case] = str(cannot)
                continue
            with updates:
                taken = _asked(adapter, question, plan.times)
            cuts = quantiles(taken, n=100, method="inclusive")
            figures[f"{question.case}, p50", "ms"] = cuts[49]
            figures[f"{question.case}, p99", "ms"] = cuts[98]
            rates.append(updates.rate)
            fault = fault_of(question, _settled(adapter, question), adapter.state())
            faults += [f"{question.case}: {fault}"] if fault else []
    also = {"updates/s meanwhile": min(rates[1:], default=0.0)}
    return Played(figures, also, "; ".join(faults), "", reasons)


class Updates:
    """Updates of all records at a rate, in a thread of its own, until it is left."""

    def __init__(self, adapter: Adapter, fill: Load, rate: int) -> None:
        size = min(BATCH, fill.keys)
        # As many as there can be while a question is asked.
        count = int(rate * QUERY_PATIENCE_S) // size * size
        self._load = fill._replace(size=size, count=count)
        self._adapter, self._pace = adapter, Pace(self._load.size / rate)
        self._stopped, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.rate = 0.0

    def __enter__(self) -> "Updates":
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        acknowledged = 0
        with closing(self._adapter.publish(self._load, self._pace)) as progress:
            try:
                next(progress)
            finally:
                self._begun.set()
            self._pace.start()
            while not self._stopped.is_set() and (more := next(progress, None)) is not None:
                acknowledged = more
        took_s = time.monotonic() - self._pace.begin_s
        self.rate = acknowledged * self._load.size / took_s


def _asked(adapter: Adapter, question: Question, times: int) -> list[float]:
    """How long each answer took."""
    begin, taken = time.monotonic(), []
    while len(taken) < times:
        if len(taken) >= ASKED_MIN and time.monotonic() - begin > QUERY_PATIENCE_S:
            break
        taken.append(adapter.query(question).ms)
    return taken


def _settled(adapter: Adapter, question: Question) -> Any:
    """The answer once what was on its way has been taken."""
    before, found = None, adapter.query(question).rows
    while found != before:
        time.sleep(SETTLED_S)
        before, found = found, adapter.query(question).rows
    return found


def w9(bench: Bench) -> Iterator[Row]:
    """Events as fast as they are taken, with a view of Nexmark that is read again and again."""
    parts = nexmark.parts(bench.plan.events, READS, BATCH)
    floor = (1e6 / bench.floors.loads_us, "orjson.loads of each")
    for query in nexmark.QUERIES:

        def play(spec: str, _number: int, query: nexmark.Query = query) -> Played:
            read_ms = []
            with running(spec, Setup(view=query.name)) as (adapter, _):
                used_s, begin = cpu_s(adapter.pid), time.perf_counter()
                for part in parts:
                    for events in part:
                        published(adapter, events)
                    answer = adapter.query(query)
                    read_ms.append(answer.ms)
                took_s = time.perf_counter() - begin
                used_s = cpu_s(adapter.pid) - used_s
            events = [each for part in parts for each in part]
            count = sum(each.count for each in events)
            also: Mapping[str, float] = {
                "ms of a read": max(read_ms), "CPU s a million": used_s / count * 1e6,
            }  # fmt: skip
            fault = nexmark.fault_of(query, answer.rows, events)
            return Played({("with it", "events/s"): count / took_s}, also, fault)

        case = f"W9 {query.name}, {query.about}"
        yield from compared(bench, case, play, {"with it": floor})
