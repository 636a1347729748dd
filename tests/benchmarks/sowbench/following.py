"""W2 to W7: what followers are sent, and how late.

A publisher sends each batch at its moment, whatever was acknowledged (an open loop), and lateness
counts from that moment, so that a publisher who has to wait makes nothing look quicker.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.benchmarks.sowbench.adapter import Adapter, Cannot, How, Pace, Setup, used_s
from tests.benchmarks.sowbench.bench import (
    Bench,
    FloorOf,
    Plan,
    Play,
    Played,
    compared,
    filled,
    published,
    running,
)
from tests.benchmarks.sowbench.listening import Found, Listeners, Task
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.row import Row

TICK_S = 0.001
BATCH = 100
FILL_SIZE = 1000
CROWD_RATE = 10_000
CROWD_P99_MS = 10.0
CROWD_KEYS = 1000
CONFLATED_MS = (100, 1000)
CONFLATED_FOLLOWERS = 10
CONNECTIONS = 10
"""That share the filters of W5."""
MODES = {"slow": "reads a tenth", "stopped": "reads nothing", "returns": "breaks and comes back"}


def paced(plan: Plan, rate: int, size: int, keys: int) -> Load:
    """What is published at a rate for as long as the plan says."""
    return Load(keys, max(1, int(rate * plan.seconds) // size) * size, size)


class Heard:
    """One run: a server, its followers, and what they found."""

    def __init__(self, plan: Plan, load: Load, rate: int, setup: Setup) -> None:
        self.plan, self.load, self.setup = plan, load, setup
        self.step_s = load.size / rate
        self.cores = 0.0

    def play(self, spec: str, *tasks: Task) -> list[Found]:
        """Publish the load while everybody listens."""
        with running(spec, self.setup) as (adapter, _):
            crowds: list[Listeners] = []
            try:
                for task in tasks:
                    task = task._replace(patience_s=self.plan.patience_s)
                    crowds.append(Listeners(spec, adapter.address, task))
                for crowd in crowds:
                    crowd.prepared()
                    crowd.ready()
                begin_s = self._publish(adapter)
                close = partial(published, adapter, self.load.closing())
                return [crowd.found(begin_s, self.step_s, close) for crowd in crowds]
            finally:
                for crowd in crowds:
                    crowd.end()

    def _publish(self, adapter: Adapter) -> float:
        before_s, began_s = used_s(adapter), time.monotonic()
        pace = published(adapter, self.load, Pace(self.step_s))
        self.cores = (used_s(adapter) - before_s) / (time.monotonic() - began_s)
        return pace.begin_s


def late(found: Found, *names: str) -> dict[tuple[str, str], float]:
    """Quantiles as figures."""
    return {(name, "ms"): found.late[name] for name in names if name in found.late}


def lateness(plan: Plan, rate: int, task: Task, *names: str) -> Play:
    """A run whose figures are these quantiles of what one crowd hears of the task's load."""

    def play(spec: str, _number: int) -> Played:
        run = Heard(plan, task.load, rate, Setup(followed=True))
        (found,) = run.play(spec, task)
        return Played(late(found, *names), {"cores": run.cores}, found.fault())

    return play


def tick_floors(bench: Bench) -> FloorOf:
    """Of a record on its way."""
    floor = (bench.floors.tick_ms(), "fdatasync and a send")
    return dict.fromkeys(("p50", "p99", "p99.99"), floor)


def w2(bench: Bench) -> Iterator[Row]:
    """From the moment meant for an update until a follower has it."""
    for rate in bench.plan.rates:
        load = paced(bench.plan, rate, max(1, int(rate * TICK_S)), bench.plan.keys)
        for count in bench.plan.followers:
            task = Task(load, How(), count)
            play = lateness(bench.plan, rate, task, "p50", "p99", "p99.99")
            case = f"W2 {rate:,}/s to {count} followers"
            yield from compared(bench, case, play, tick_floors(bench))


def w3(bench: Bench) -> Iterator[Row]:
    """The most followers whose p99 is under 10 ms, as Diffusion publishes it."""
    plan = bench.plan
    load = paced(plan, CROWD_RATE, max(1, int(CROWD_RATE * TICK_S)), min(CROWD_KEYS, plan.keys))
    bytes_s = CROWD_RATE * len(load.records()[0][1])
    floor = (bench.floors.send_mb_s * 1e6 / bytes_s, "the bytes through a socket")

    def play(spec: str, _number: int) -> Played:
        most, cores, why = 0, 0.0, ""
        for count in plan.crowds:
            run = Heard(plan, load, CROWD_RATE, Setup(followed=True))
            try:
                (found,) = run.play(spec, Task(load, How(), count))
            except EOFError:
                why = f"{count}: some were cut off"
                break
            late_ms, fault = found.late.get("p99", 0.0), found.fault()
            if fault or late_ms >= CROWD_P99_MS:
                why = f"{count}: {fault or f'p99 {late_ms:.0f} ms'}"
                break
            most, cores = count, run.cores
        limit = f"at {most} {cores:.2f} cores" + f"; {why}" * bool(why)
        return Played({("p99 under 10 ms", "followers"): most}, {"cores": cores}, "", limit)

    case = f"W3 {CROWD_RATE:,}/s to as many as possible"
    yield from compared(bench, case, play, {"p99 under 10 ms": floor})


def w4(bench: Bench) -> Iterator[Row]:
    """Followers who want at most one update of a record in an interval."""
    plan, rate = bench.plan, bench.plan.rates[-1]
    load = paced(plan, rate, min(BATCH, rate), plan.keys)
    seconds = load.count / rate
    for each_ms in CONFLATED_MS:
        least = plan.keys * seconds / each_ms * 1000 * len(load.records()[0][1]) / 1e6
        floors = {
            "staleness p99": (float(each_ms), "the interval"),
            "cores": (rate * bench.floors.loads_us / 1e6, "orjson.loads of each"),
            "sent to each": (min(least, load.count * 2e-4), "each record once an interval"),
        }
        case = f"W4 {rate:,}/s conflated at {each_ms} ms, {CONFLATED_FOLLOWERS} followers"
        yield from compared(bench, case, partial(_conflated, plan, load, rate, each_ms), floors)


def _conflated(plan: Plan, load: Load, rate: int, each_ms: int, spec: str, _number: int) -> Played:
    setup, limit = Setup(followed=True, conflated_ms=each_ms), ""
    try:
        run = Heard(plan, load, rate, setup)
        (found,) = run.play(spec, Task(load, How(conflated_ms=each_ms), CONFLATED_FOLLOWERS))
    except Cannot as cannot:
        # What is done instead, which says what the feature is worth.
        limit = str(cannot)
        run = Heard(plan, load, rate, Setup(followed=True))
        (found,) = run.play(spec, Task(load, How(), CONFLATED_FOLLOWERS))
    figures = {
        ("staleness p99", "ms"): found.late.get("p99", 0.0),
        ("cores", "cores"): run.cores,
        ("sent to each", "MB"): found.bytes_each / 1e6,
    }
    return Played(figures, {}, found.fault(every=bool(limit)), limit)


def w5(bench: Bench) -> Iterator[Row]:
    """Many filters, all different, each of which takes one symbol."""
    plan, rate = bench.plan, CROWD_RATE
    for count in plan.filters:
        load = paced(plan, rate, max(1, int(rate * TICK_S)), max(count, plan.keys))
        load = load._replace(symbols=count)
        how = How(symbols=[f"S{number}" for number in range(count)])
        play = lateness(plan, rate, Task(load, how, min(CONNECTIONS, count)), "p50", "p99")
        case = f"W5 {count:,} filters, {rate:,}/s"
        yield from compared(bench, case, play, tick_floors(bench))


def w6(bench: Bench) -> Iterator[Row]:
    """What others notice of one that does not read, and whether that one gets there."""
    plan, rate = bench.plan, bench.plan.rates[-1]
    load = paced(plan, rate, max(1, int(rate * TICK_S)), plan.keys)
    for mode, about in MODES.items():

        def play(spec: str, _number: int, mode: str = mode) -> Played:
            run = Heard(plan, load, rate, Setup(followed=True))
            tasks = (Task(load, How()), Task(load, How(), mode=mode))
            good, bad = run.play(spec, *tasks)
            figures = {
                ("the others' p99", "ms"): good.late.get("p99", 0.0),
                ("current again after", "ms"): bad.current_ms,
            }
            faults = (good.fault(), bad.fault(every=False))
            return Played(figures, {}, ", ".join(filter(None, faults)), _told(bad, mode))

        floors = {"the others' p99": (bench.floors.tick_ms(), "fdatasync and a send")}
        yield from compared(bench, f"W6 one {about}, {rate:,}/s", play, floors)


def _told(bad: Found, mode: str) -> str:
    """What the one that did not read has to know."""
    cut_off = bad.returns - (mode == "returns")
    parts = (f"cut off {cut_off} times" * (cut_off > 0), bad.seam())
    return ", ".join(filter(None, parts))


def w7(bench: Bench) -> Iterator[Row]:
    """All records and then each update, asked for while updates come."""
    plan, rate = bench.plan, bench.plan.rates[-1]
    seconds = plan.seconds + plan.records / 100_000
    fill = Load(plan.records, plan.records, min(FILL_SIZE, plan.records))
    count = int(rate * seconds) // BATCH * BATCH or BATCH
    size = plan.records * len(fill.records()[0][1])
    floor = (size / 1e6 / bench.floors.send_mb_s, "the bytes through a socket")
    case = f"W7 snapshot of {plan.records:,}, then {rate:,}/s"
    play = partial(snapshot, plan, fill, count, rate)
    yield from compared(bench, case, play, {"all records": floor})


def snapshot(plan: Plan, fill: Load, count: int, rate: int, spec: str, _number: int) -> Played:
    """One run of W7: `count` updates beside it."""
    updates = Load(fill.keys, count, BATCH, first=fill.count)
    whole = fill._replace(count=fill.count + count, size=BATCH)
    step_s = BATCH / rate
    with running(spec, Setup(followed=True)) as (adapter, _):
        filled(adapter, fill, plan.fill_s)
        task = Task(whole, How(snapshot=True), since=fill.count, patience_s=4 * plan.patience_s)
        with Listeners(spec, adapter.address, task) as listeners:
            listeners.prepared()
            with ThreadPoolExecutor(1) as beside:
                sent = beside.submit(published, adapter, updates, Pace(step_s))
                listeners.ready()
                begin_s = sent.result().begin_s - fill.count / BATCH * step_s
            found = listeners.found(begin_s, step_s, lambda: None)
    fault = found.verdict._replace(missing=0, repeated=0, disordered=0).words()
    return Played({("all records", "s"): found.complete_ms / 1000}, {}, fault, found.seam())
