"""Supervises pipelines beside a server: each in its own process, restarted when it fails.

A pipeline runs at a lower priority so that it does not slow the server down. If Spark or Java is
missing, or the pipeline fails again and again, the server goes on without it.

A killed server stops no children. So it holds one end of a pipe, the standard input of each child
process, and writes nothing: when the server is gone, that input ends. The child then stops itself
as the server would stop it (`end_with_input`), and after a while is killed with its process group.
A restarted server finds no old child at work for long.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, TypeVar

import orjson

NICE = 10
"""Half of the way to the lowest priority: a pipeline gets what the server leaves, and does not
starve."""
PAUSE_S = 2.0
"""Pause before the first retry of a failed pipeline; it doubles with each further one."""
PAUSE_S_MAX = 60.0
"""The longest pause, so that a pipeline notices a server that is back for a minute."""
FIGURES = {
    "rows_in": "rows_in",
    "rows_out": "rows_out",
    "rows_per_s": "rows_per_s",
    "behind": "lag",
    "behind_s": "lag_seconds",
}
"""Figures of a pipeline to record, and its names for them."""
HEALTHY_S = 60.0
"""A run that lasted this long ends a series of failures."""
STOP_S_MAX = 3.0
"""Time for a pipeline to stop, within that of `sow serve`. Killing one loses nothing: an incomplete
batch runs again."""

GATEWAY = "Java ended before Spark began"
OF_JAVA = re.compile(r"Exception in thread \S+ (.+)")
"""What Java says when it ends; Python does not get it."""

Result = TypeVar("Result")
OnFigures = Callable[[Mapping[str, Any]], None]
Report = Callable[[str], None]
Note = Callable[..., None]
"""Called with a pipeline's name and its figures by name: `Board` in `sow.server.api.admin`."""


Offer = Callable[[str, Callable[[int | None], int]], None]
"""Called with a pipeline's name and what restarts it; `Board` as well."""


def _unnoted(_name: str, **_known: object) -> None:
    """Record nothing."""


def _unoffered(_name: str, _restart: Callable[[int | None], int]) -> None:
    """Nobody restarts it."""


class Beside(NamedTuple):
    """A command line to run beside a server, and the token that makes it the server itself, or None
    for a pipeline that logs on like any client.

    With `is_server` it is no pipeline but a server too: it has the same priority, its log is that
    of this process, and it is started again however it has ended, `pause_s` later at first.
    """

    words: Sequence[str]
    token: str | None = None
    is_server: bool = False
    pause_s: float | None = None


def pipeline_words(
    name: str, config: str, url: str, data_directory: Path, variables: Mapping[str, str]
) -> list[str]:
    """The command line that runs a pipeline beside a server at `url`."""
    found = [sys.executable, "-m", "sow.cli", "pipeline", "run", name]
    found += ["--config", config, "--url", url, "--data-dir", str(data_directory)]
    found.append("--until-input-ends")
    for variable, value in variables.items():
        found += ["--set", f"{variable}={value}"]
    return found


@asynccontextmanager
async def supervised(
    commands: Mapping[str, Beside], report: Report, note: Note = _unnoted, offer: Offer = _unoffered
) -> AsyncIterator["list[KeptRunning]"]:
    """Keep these commands running, by name, while this context is open."""
    of_spark = [name for name, one in commands.items() if not one.is_server]
    if of_spark and importlib.util.find_spec("pyspark") is None:
        report(f"Spark is not installed, so these do not run: {', '.join(of_spark)}")
        for name in of_spark:
            note(name, state="failed", error="Spark is not installed")
        commands = {name: one for name, one in commands.items() if one.is_server}
    kept = [KeptRunning(name, one, report, note) for name, one in commands.items()]
    for one in kept:
        offer(one.name, one.restart)
    tasks = [asyncio.create_task(one.keep()) for one in kept]
    try:
        yield kept
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class KeptRunning:
    """A command that is kept running. Its runs are numbered from 1."""

    def __init__(self, name: str, one: Beside, report: Report, note: Note) -> None:
        self.name = name
        self._one = one
        self._report = report
        self._note = partial(note, name)
        self._run = 0
        self._again = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._dead_letters = 0
        """Of all runs: one that fails takes none of them back."""

    def restart(self, run: int | None = None) -> int:
        """End the run with this number, or the present one, and begin another at once; returns the
        number of that. A run that is over is not ended again, so a request may be repeated."""
        if run in (None, self._run) and not self._again.is_set():
            self._again.set()
            self._note(state="restarting")
        return self._run + self._again.is_set()

    def signal(self, number: int) -> None:
        """Send a signal to the process of the present run, if there is one."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _began(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    async def keep(self) -> None:
        """Run the command again and again, until this is cancelled."""
        first_s = PAUSE_S if self._one.pause_s is None else self._one.pause_s
        pause_s = first_s
        while True:
            started_s = time.monotonic()
            self._again.clear()
            self._run += 1
            self._note(state="running", run=self._run)
            ended = await self._unless_again(_run(self._one, self._take, self._began))
            if ended is None:
                pause_s = first_s
                continue
            code, last = ended
            if code == 0 and not self._one.is_server:
                self._note(state="done")
                await self._again.wait()
                continue
            self._note(state="failed", error=last or f"ended with code {code}")
            if time.monotonic() - started_s > HEALTHY_S:
                pause_s = first_s
            kind = "" if self._one.is_server else "pipeline "
            wrong = last or f"{kind}{self.name} ended with code {code}"
            self._report(f"{wrong}; trying again in {pause_s:g} s")
            await self._unless_again(asyncio.sleep(pause_s))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _unless_again(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """The result of some work; None if a restart is requested before its end."""
        doing = asyncio.ensure_future(work)
        asking = asyncio.ensure_future(self._again.wait())
        try:
            await asyncio.wait((doing, asking), return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            doing.cancel()
            asking.cancel()
            await asyncio.gather(doing, asking, return_exceptions=True)

    def _take(self, figures: Mapping[str, Any]) -> None:
        """Note the figures of a batch."""
        self._dead_letters += figures.get("dead_letters", 0)
        known = {mine: figures[its] for mine, its in FIGURES.items() if its in figures}
        self._note(**known, dead_letters=self._dead_letters)


async def _run(
    one: Beside, on_figures: OnFigures, began: Callable[["subprocess.Popen[bytes]"], None]
) -> tuple[int, str]:
    """Run a command to its end; returns its exit code and the last line of its error output."""
    # By the environment, which other users cannot read, unlike a command line.
    token = {} if one.token is None else {"SOW_TOKEN": one.token}
    process = subprocess.Popen(
        one.words,
        env={**os.environ, **token},
        stdin=subprocess.PIPE,  # which ends with this process
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to the server, which then stops it
    )
    began(process)
    if not one.is_server:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    loop = asyncio.get_running_loop()

    def on_line(figures: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(on_figures, figures)

    Thread(target=_read_figures, args=(process, on_line), name="figures", daemon=True).start()
    passes_on = sys.stderr.write if one.is_server else None
    followed = loop.run_in_executor(None, _follow, process, passes_on)
    try:
        return await asyncio.shield(followed)
    finally:
        if not followed.done():
            await _stop(process, followed)
        assert process.stdin is not None
        process.stdin.close()


def _read_figures(process: "subprocess.Popen[bytes]", on_figures: OnFigures) -> None:
    """Hand on the figures that a process writes, one JSON object per line; runs in a thread."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            try:
                figures = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # output of Spark or of a library
            if isinstance(figures, dict) and "rows_in" in figures:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
                    on_figures(figures)


def _follow(
    process: "subprocess.Popen[bytes]", passes_on: Callable[[str], object] | None = None
) -> tuple[int, str]:
    """Read the error output of a process to its end; runs in a thread. Its last sentence is the
    reason, with that of Java where Java has ended first."""
    last = of_java = ""
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            text = line.decode(errors="replace").strip()
            if passes_on is not None:
                passes_on(f"{text}\n")
            last = text.removeprefix("sow: ") if text.startswith("sow: ") else last
            of_java = found[1] if (found := OF_JAVA.match(text)) else of_java
    return process.wait(), f"{last} ({of_java})" if of_java and GATEWAY in last else last


async def _stop(process: "subprocess.Popen[bytes]", followed: "asyncio.Future[Any]") -> None:
    process.terminate()
    await asyncio.wait([followed], timeout=STOP_S_MAX)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its Java too
    await followed


READ_BYTES = 4_096
"""Events that poll() waits for: none but the end."""
ORPHAN_S_MAX = 3.0
"""Time to stop: as long as a stopping server waits."""


def end_with_input(patience_s: float = ORPHAN_S_MAX, descriptor: int = 0) -> threading.Thread:
    """Stop this process when the input `descriptor` ends, and kill it `patience_s` later, with its
    group if it leads one; returns the thread that waits for that."""
    waiting = threading.Thread(target=_wait, args=(patience_s, descriptor), daemon=True)
    waiting.start()
    return waiting


def _wait(patience_s: float, descriptor: int) -> None:
    # Not a file object: its lock would be held when the process ends.
    with contextlib.suppress(OSError):
        while os.read(descriptor, READ_BYTES):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience_s)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
