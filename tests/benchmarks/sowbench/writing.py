"""W1 and W10: what is acknowledged, how fast, what of it a kill leaves, and how soon it goes on."""

import time
from collections.abc import Iterator
from contextlib import closing

from tests.benchmarks.processes import cpu_s
from tests.benchmarks.sowbench.adapter import Adapter, Cannot, How, Pace, Setup
from tests.benchmarks.sowbench.bench import (
    Bench,
    Plan,
    Played,
    compared,
    filled,
    published,
    running,
)
from tests.benchmarks.sowbench.listening import Found, Listeners, Task
from tests.benchmarks.sowbench.load import Load, lost
from tests.benchmarks.sowbench.row import Row

SIZES = (1, 100)
FILL_SIZE = 1000


def w1(bench: Bench) -> Iterator[Row]:
    """Updates as fast as they are taken, in frames of 1 and of 100, acknowledged."""
    plan = bench.plan
    floor = (1e6 / bench.floors.loads_us, "orjson.loads of each")
    for size in SIZES:
        # Of frames of one there are fewer: nobody takes as many in the time there is.
        count = plan.updates if size > 1 else plan.updates // 5
        load = Load(plan.keys, count, size)

        def play(spec: str, number: int, load: Load = load) -> Played:
            found = _taken(spec, load, plan.seconds)
            if number:
                return found
            gone = _lost_by_kill(spec, load, plan.seconds)
            limit = f"{gone:,} acknowledged lost by SIGKILL" if gone else ""
            return found._replace(limit=limit)

        case = f"W1 ingest, frames of {size}"
        yield from compared(bench, case, play, {"taken": floor}, plan.rounds)


def _taken(spec: str, load: Load, seconds: float) -> Played:
    with running(spec, Setup()) as (adapter, _):
        # Who imports or makes something at the first record has done so then.
        published(adapter, load._replace(count=1, size=1))
        with closing(adapter.publish(load, Pace())) as progress:
            next(progress)
            used_s, begin = cpu_s(adapter.pid), time.perf_counter()
            acknowledged = _spent(progress, load.count, seconds)
            took_s = time.perf_counter() - begin
            used_s = cpu_s(adapter.pid) - used_s
        count = min(load.count, acknowledged * load.size)
        gone = lost(load, acknowledged, adapter.state())
    return Played(
        {("taken", "updates/s"): count / took_s},
        {"CPU s a million": used_s / max(1, count) * 1e6},
        f"{gone} records wrong" if gone else "",
    )


def _until(adapter: Adapter, load: Load, batches: int, seconds: float) -> int:
    """Publish until so many are acknowledged, or time is up; how many are."""
    with closing(adapter.publish(load, Pace())) as progress:
        return _spent(progress, batches, seconds)


def _spent(progress: Iterator[int], batches: int, seconds: float) -> int:
    begin, acknowledged = time.perf_counter(), 0
    while acknowledged < batches and time.perf_counter() - begin < seconds:
        if (more := next(progress, None)) is None:
            break
        acknowledged = more
    return acknowledged


def _lost_by_kill(spec: str, load: Load, seconds: float) -> int:
    """How many acknowledged records a kill has lost."""
    with running(spec, Setup()) as (adapter, folder):
        acknowledged = _until(adapter, load, load.count // load.size // 2, seconds)
        adapter.stop(kill=True)
        adapter.start(folder, Setup())
        return lost(load, acknowledged, adapter.state())


def w10(bench: Bench) -> Iterator[Row]:
    """Killed while it is written to and followed, and started again."""
    plan = bench.plan
    load = Load(plan.records, plan.updates // 2, min(100, plan.updates // 8), first=plan.records)
    floor = (plan.records * bench.floors.loads_us / 1e6, "orjson.loads of each record")
    case = f"W10 killed with {plan.records:,} records"

    def play(spec: str, _number: int) -> Played:
        try:
            return _killed(spec, load, plan, followed=True)
        except Cannot as cannot:
            found = _killed(spec, load, plan, followed=False)
            return found._replace(limit=", ".join(filter(None, (found.limit, str(cannot)))))

    yield from compared(bench, case, play, {"without writes": floor})


def _killed(spec: str, load: Load, plan: Plan, followed: bool) -> Played:
    setup = Setup(followed=followed)
    with running(spec, setup) as (adapter, folder):
        fill = Load(load.keys, load.keys, FILL_SIZE)
        filled(adapter, fill, plan.fill_s)
        listeners = Listeners(spec, adapter.address, Task(load, How(), patience_s=plan.patience_s))
        with listeners:
            listeners.prepared()
            if followed:
                listeners.ready()
            batches = load.count // load.size
            # One is left to publish afterwards, even if it was acknowledged.
            acknowledged = min(_until(adapter, load, batches // 2, plan.seconds), batches - 1)
            adapter.stop(kill=True)
            begin = time.perf_counter()
            adapter.start(folder, setup)
            _until(adapter, _batches(load, acknowledged, 1), 1, plan.patience_s)
            silent_s = time.perf_counter() - begin
            gone = lost(load, acknowledged + 1, adapter.state(), fill.final())
            published(adapter, _batches(load, acknowledged + 1, batches - acknowledged - 1))
            found = listeners.found(0.0, 0.0, lambda: None) if followed else None
    return _played(silent_s, gone, found)


def _batches(load: Load, first: int, count: int) -> Load:
    """Some batches of a load."""
    return load._replace(first=load.first + first * load.size, count=count * load.size)


def _played(silent_s: float, gone: int, found: Found | None) -> Played:
    limits = [f"{gone:,} acknowledged lost"] if gone else []
    fault = found.fault(every=False) if found else ""
    if found and (seam := found.seam()):
        limits.append(f"the follower had {seam}")
    return Played({("without writes", "s"): silent_s}, {}, fault, "; ".join(limits))
