"""Sampling: which functions of this project a process spends its processor time in.

As its processor time passes, the system interrupts the process again and again (ITIMER_PROF, some
250 times a second), and what runs then is noted: the functions of ours that are being called, so
that what a library does counts for whoever has called it. It costs what it watches next to nothing,
which a profiler that hears of every call does not. A sample counts for the processor time that the
main thread has taken since the last one; what the process has taken beside it, other threads have.

    python -m tests.benchmarks.sampling FILE serve ...

is `sow serve ...` that writes its samples to FILE when it gets SIGUSR1, and begins anew.
"""

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import orjson

from tests.benchmarks.processes import ROOT, ServerProcess

INTERVAL_S = 0.001
"""Asked for; the system rounds it up to its own ticks."""
STARTING = f"{ROOT}{os.sep}sow{os.sep}cli{os.sep}"
"""Runs the loop, and is below whatever that does by itself."""
OURS = tuple(f"{ROOT}{os.sep}{room}{os.sep}" for room in ("sow", "conflated_topics"))
ELSEWHERE = "the event loop and aiohttp"
THREADS = "other threads: the journal"
CALLS = " > "
"""Stands between a function and the one that it has called."""
IMPORTING = "importing modules"
WRITTEN_S_MAX = 10.0


class Samples(NamedTuple):
    """For how much of the processor's time each row of calls was found, and all that passed."""

    found: dict[str, float]
    cpu_s: float

    def innermost(self) -> dict[str, float]:
        """The same by the function that was called last."""
        return self.by(lambda calls: calls.rpartition(CALLS)[2])

    def by(self, name: Callable[[str], str]) -> dict[str, float]:
        """The same by what a row of calls is called."""
        parts: defaultdict[str, float] = defaultdict(float)
        for calls, cpu_s in self.found.items():
            parts[name(calls)] += cpu_s
        return dict(parts)


class Sampler:
    """Samples this process, main thread, from `begin` on."""

    def __init__(self) -> None:
        self._found: dict[str, float] = {}
        self._begun_s = self._main_s = self._all_s = 0.0

    def begin(self) -> None:
        """Begin anew."""
        self._found.clear()
        self._main_s, self._all_s = time.thread_time(), time.process_time()
        self._begun_s = self._all_s
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)

    def end(self) -> Samples:
        """Stop, and say what was found."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        return Samples(dict(self._found), time.process_time() - self._begun_s)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        main_s, all_s = time.thread_time(), time.process_time()
        taken_s = main_s - self._main_s
        self._add(_calls(frame), taken_s)
        self._add(THREADS, max(0.0, all_s - self._all_s - taken_s))
        self._main_s, self._all_s = main_s, all_s

    def _add(self, calls: str, cpu_s: float) -> None:
        self._found[calls] = self._found.get(calls, 0.0) + cpu_s


def _calls(frame: FrameType | None) -> str:
    """The functions of ours that are being called, the innermost last."""
    names: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            names.append(_name(frame))
        frame = frame.f_back
    if not names or names[0] in (IMPORTING, ELSEWHERE):
        return names[0] if names else ELSEWHERE
    return CALLS.join(name for name in reversed(names) if name not in (IMPORTING, ELSEWHERE))


def _name(frame: FrameType) -> str:
    if frame.f_code.co_name == "<module>":
        return IMPORTING
    if frame.f_code.co_filename.startswith(STARTING):
        return ELSEWHERE
    file = os.path.relpath(frame.f_code.co_filename, ROOT)
    return f"{file} {frame.f_code.co_name}"


def sampled(work: Callable[[], object]) -> Samples:
    """What `work` spends its time in, in this process."""
    sampler = Sampler()
    sampler.begin()
    try:
        work()
    finally:
        samples = sampler.end()
    return samples


class SampledServer(ServerProcess):
    """A server that samples itself, from its start on."""

    def __init__(self, xml: str, data: Path | None = None) -> None:
        super().__init__(xml, data)
        self._samples = Path(self._own.name) / "samples.json"
        self._program = ("tests.benchmarks.sampling", str(self._samples))

    def samples(self) -> Samples:
        """Those since the last time this was asked, or since the start."""
        os.kill(self.pid, signal.SIGUSR1)
        until_s = time.monotonic() + WRITTEN_S_MAX
        while not self._samples.exists():
            assert time.monotonic() < until_s, "the server wrote no samples"
            time.sleep(0.01)
        written = orjson.loads(self._samples.read_bytes())
        self._samples.unlink()
        return Samples(**written)


def main(file: str, *arguments: str) -> None:
    from sow.cli.main import main as sow

    sampler = Sampler()

    def write(_number: int, _frame: FrameType | None) -> None:
        # Whole or not there: it is looked for all the time.
        beside = Path(f"{file}.part")
        beside.write_bytes(orjson.dumps(sampler.end()._asdict()))
        beside.rename(file)
        sampler.begin()

    signal.signal(signal.SIGUSR1, write)
    sampler.begin()
    sys.argv = ["sow", *arguments]
    sow()


if __name__ == "__main__":
    main(*sys.argv[1:])
