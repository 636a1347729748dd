"""Whether an adapter does what it has to, in seconds and with a few hundred records.

Each check ends in a sentence that says what is wrong; `Cannot` with a reason is no fault.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.benchmarks.sowbench import nexmark
from tests.benchmarks.sowbench.adapter import METHODS, Cannot, How, Missing, Pace, Setup, made
from tests.benchmarks.sowbench.adapter import specs as every_variant
from tests.benchmarks.sowbench.bench import TINY, fault_of_state, published, running
from tests.benchmarks.sowbench.following import Heard, snapshot
from tests.benchmarks.sowbench.listening import Task
from tests.benchmarks.sowbench.load import Load
from tests.benchmarks.sowbench.questions import QUESTIONS, Question, fault_of

LOAD = Load(keys=20, count=200, size=50, symbols=4)
RATE = 1000


def installed(specs: Sequence[str]) -> list[str]:
    """Those whose server can be started; of each of the others a line says that it is not there."""
    found = []
    for spec in specs:
        try:
            with running(spec, Setup()):
                found.append(spec)
        except Missing as missing:
            print(f"{made(spec).name} is left out, not installed: {missing}", file=sys.stderr)
    return found


def check(asked: str) -> list[str]:
    """What is wrong with an adapter, variant by variant."""
    found = []
    for spec in every_variant([asked]):
        adapter = made(spec)
        lacking = [name for name in (*METHODS, "name", "promise") if not hasattr(adapter, name)]
        if lacking:
            found.append(f"{spec}: the class Adapter has no {', '.join(lacking)}")
            continue
        found += [f"{spec}: {what}" for what in _faults(spec)]
    return found


def _faults(spec: str) -> Iterator[str]:
    checks: dict[str, Callable[[str], str]] = {
        "publish and state": _state,
        "state after stop(kill=True) and start": _killed,
        "follow": partial(_follow, how=How()),
        "follow with symbols": partial(_follow, how=How(symbols=["S1", "S3"])),
        "follow with a snapshot": _snapshot,
        "follow conflated": partial(_follow, how=How(conflated_ms=100)),
        **{f"query {one.case}": partial(_query, one) for one in QUESTIONS},
        **{f"view {one.name}": partial(_view, one) for one in nexmark.QUERIES},
    }
    for name, run in checks.items():
        try:
            fault = run(spec)
        except Missing as missing:
            yield f"the server is not installed: {missing}"
            return
        except Cannot as cannot:
            fault = "" if str(cannot) else "Cannot needs a reason: it stands in the table"
        except Exception as error:
            fault = f"raised {error!r}"
        if fault:
            yield f"{name}: {fault}"


def _state(spec: str) -> str:
    with running(spec, Setup()) as (adapter, _):
        said = list(adapter.publish(LOAD, Pace()))
        if said[:1] != [0] or said[-1] != LOAD.count // LOAD.size or said != sorted(said):
            return f"publish yields 0, then up to {LOAD.count // LOAD.size}, and not {said[:9]}"
        return fault_of_state(LOAD, adapter.state())


def _killed(spec: str) -> str:
    """What is lost is counted, and no fault; to start again, it must."""
    with running(spec, Setup()) as (adapter, folder):
        published(adapter, LOAD)
        before = adapter.address
        adapter.stop(kill=True)
        adapter.stop()
        adapter.start(folder, Setup())
        adapter.state()
        moved = adapter.address != before and ":" in before + adapter.address
        return "start again at the same address" if moved else ""


def _follow(spec: str, how: How) -> str:
    load = LOAD._replace(symbols=4)
    run = Heard(TINY, load, RATE, Setup(followed=True, conflated_ms=how.conflated_ms))
    (found,) = run.play(spec, Task(load, how))
    return found.fault(every=not how.conflated_ms)


def _snapshot(spec: str) -> str:
    fill = Load(100, 100, 10)
    return snapshot(TINY, fill, 200, RATE, spec, 0).fault


def _query(question: Question, spec: str) -> str:
    with running(spec, Setup()) as (adapter, _):
        published(adapter, Load(LOAD.keys, LOAD.count, LOAD.size))
        return fault_of(question, adapter.query(question).rows, adapter.state())


def _view(query: nexmark.Query, spec: str) -> str:
    with running(spec, Setup(view=query.name)) as (adapter, _):
        events = [each for part in nexmark.parts(500, 2, 10) for each in part]
        for each in events:
            published(adapter, each)
        return nexmark.fault_of(query, adapter.query(query).rows, events)
