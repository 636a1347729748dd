"""Libraries that keep the records in the process of whoever uses them: SQLite, DuckDB, Perspective.

    python -m tests.benchmarks.peers.embedded LIBRARY FOLDER

is such a process. It makes the load by itself, so nothing is spent on handing it over, and writes a
line for each batch that the library has taken. No network, no other client: a library is quicker by
that, and nobody else can ask it anything.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.benchmarks.peers.load import Batch, Load
from tests.benchmarks.peers.questions import QUESTIONS, Question
from tests.benchmarks.processes import Child, cpu_s

PATIENCE_S = 30.0
"""For a question, which is then asked no further: a library that takes seconds for an answer is
known well enough by a few of them, and the whole comparison is to take half an hour."""
REQUESTED_MIN = 5
"""Answers that there are of each question at least."""


Groups = Mapping[str, Sequence[float]]
"""Of each region: count, sum, average, least and greatest price."""


class Library(Protocol):
    """What is asked of a library."""

    def put(self, batch: Batch) -> None:
        """Take a batch, as durably as it is set to."""
        ...

    def current(self) -> dict[int, bytes]:
        """All records."""
        ...

    def ask(self, question: Question) -> list[int]:
        """The keys of the records that a question asks for, in its order."""
        ...

    def groups(self) -> Groups:
        """The prices of each region, as they are now."""
        ...


class Embedded:
    """The parent's end: a peer like the others."""

    def __init__(self, library: str, name: str, durability: str) -> None:
        self.name = name
        self.durability = durability
        self._library = library
        self._process: Child

    def open(self, folder: Path) -> None:
        """Start the process on the folder."""
        self._process = Child("-m", __name__, self._library, str(folder))
        assert self._process.hear() == "ready"

    def _tell(self, **command: object) -> None:
        self._process.say(json.dumps(command))

    def publish(self, load: Load) -> Generator[int]:
        """Have the batches of a load taken, one after the other."""
        self._tell(do="load", load=load)
        assert self._process.hear() == "begin"
        yield 0
        for taken in range(1, -(-load.count // load.size) + 1):
            assert self._process.hear() == str(taken)
            yield taken

    def current(self) -> dict[int, bytes]:
        """All records."""
        self._tell(do="current")
        return {int(k): v.encode() for k, v in json.loads(self._process.hear()).items()}

    def requested(self, load: Load, rate: int, times: int) -> Any:
        """What questions take while updates come (`answered`)."""
        self._tell(do="ask", load=load, rate=rate, times=times)
        return json.loads(self._process.hear())

    def grouped(self, load: Load, rate: int) -> Any:
        """What it takes to keep the groups current while updates come (`kept_grouped`)."""
        self._tell(do="group", load=load, rate=rate)
        return json.loads(self._process.hear())

    def cpu_s(self) -> float:
        """Of the process, load and library."""
        return cpu_s(self._process.pid)

    def kill(self) -> None:
        """SIGKILL."""
        os.kill(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Stop it, if it still runs."""
        self._process.end()


def made(library: str, folder: Path) -> Library:
    """A library on a folder; raises ImportError where it is not installed."""
    from tests.benchmarks.peers import libraries

    found: Library = getattr(libraries, library)(folder)
    return found


def answered(library: Library, load: Load, rate: int, times: int) -> dict[str, Any]:
    """The time of each question in ms, asked `times` times at a steady pace while updates come, or
    until PATIENCE_S have passed.

    Both are done by the one thread there is: what an update takes, a question waits for.
    """
    batches = load.batches()
    number, begin = 0, time.perf_counter()
    found: dict[str, Any] = {"ms": {}, "rows": {}, "rate": {}}
    for question in QUESTIONS:
        taken: list[float] = []
        began, before = time.perf_counter(), number
        while len(taken) < times:
            if len(taken) >= REQUESTED_MIN and time.perf_counter() - began > PATIENCE_S:
                break
            due = begin + number * load.size / rate
            while time.perf_counter() < due:
                pass
            library.put(batches[number % len(batches)])
            number += 1
            start = time.perf_counter()
            rows = library.ask(question)
            taken.append((time.perf_counter() - start) * 1000)
        updates = (number - before) * load.size
        found["ms"][question.case] = taken
        found["rate"][question.case] = updates / (time.perf_counter() - began)
        found["rows"][question.case] = rows
    found["records"] = {key: body.decode() for key, body in library.current().items()}
    return found


def kept_grouped(library: Library, load: Load, rate: int) -> dict[str, Any]:
    """The groups after each batch, or after all that have become due meanwhile."""
    batches, step_s = load.batches(), load.size / rate
    library.groups()
    late_ms: list[float] = []
    before_s, begin = time.process_time(), time.perf_counter()
    while (first := len(late_ms)) < len(batches):
        time.sleep(max(0.0, begin + first * step_s - time.perf_counter()))
        due = min(len(batches), 1 + int((time.perf_counter() - begin) / step_s))
        library.put([update for batch in batches[first:due] for update in batch])
        found = library.groups()
        now = time.perf_counter()
        late_ms += [(now - begin - number * step_s) * 1000 for number in range(first, due)]
    took_s, used_s = time.perf_counter() - begin, time.process_time() - before_s
    return {"cpu_s": used_s, "late_ms": late_ms, "took_s": took_s, "groups": found}


def main(name: str, folder: str) -> None:
    """The child."""
    library = made(name, Path(folder))
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "load":
            batches = Load(*command["load"]).batches()
            print("begin", flush=True)
            for taken, batch in enumerate(batches, 1):
                library.put(batch)
                print(taken, flush=True)
        elif command["do"] == "current":
            print(json.dumps({k: v.decode() for k, v in library.current().items()}), flush=True)
        elif command["do"] == "ask":
            load = Load(*command["load"])
            print(
                json.dumps(answered(library, load, command["rate"], command["times"])), flush=True
            )
        else:
            load = Load(*command["load"])
            print(json.dumps(kept_grouped(library, load, command["rate"])), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
