"""Processes: a real server of its own, and what the operating system says it used."""

import compileall
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import urlsplit

import orjson

ROOT = Path(__file__).parents[2]
STOP_S_MAX = 30


class Child:
    """A Python process that speaks lines on its standard input and output; it ends when left."""

    begin: ClassVar[Callable[..., "subprocess.Popen[str]"]] = subprocess.Popen
    """What begins it; tests of the benchmarks, which measure nothing, have it forked."""

    def __init__(self, *arguments: str, tree: Path = ROOT) -> None:
        self._process = type(self).begin(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=tree,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """It ended by itself."""
        return self._process.poll() is not None

    def hear(self) -> str:
        """The next line that it writes; raises EOFError if it ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EOFError(f"{self._process.args!r} ended with {self._process.wait()}")
        return line.rstrip("\n")

    def say(self, line: str) -> None:
        """Give it a line to read."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        finally:
            self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.end()


@cache
def compiled() -> None:
    """Have our modules compiled, as an installation has them: where `PYTHONDONTWRITEBYTECODE` is
    set, as in many containers, each start of a checkout would compile all of them once more."""
    for package in ("sow", "conflated_topics"):
        compileall.compile_dir(ROOT / package, quiet=1)


def cpu_s(pid: int) -> float:
    """Processor time a process has used so far, all threads.

    By its own clock, which counts nanoseconds: `/proc` counts ticks of 10 ms, in which a short
    run is nothing. The number of that clock is made of the process's (clock_getcpuclockid(3)).
    """
    return time.clock_gettime(~pid << 3 | 2)


class ServerProcess:
    """`sow serve` in a process of its own, ready once entered.

    Without `data` it keeps its data in a directory that goes with it. `loop` is its event loop,
    whichever happens to be installed, and `program` what serves. Of another `tree` it is the
    server as that one starts it. `port` 0 is any free one, and `options` are more of the command
    line's.
    """

    def __init__(
        self,
        xml: str,
        data: Path | None = None,
        loop: str = "asyncio",
        program: Sequence[str] = ("sow.cli",),
        tree: Path = ROOT,
        port: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        # An older one has nothing to choose from.
        self._loop = ("--loop", loop) if tree == ROOT else ()
        self._tree = tree
        self._program = program
        self._options = options
        self._own = TemporaryDirectory(prefix="sow-bench-")
        self._config = Path(self._own.name) / "config.xml"
        self._config.write_text(xml)
        self.data = data or Path(self._own.name) / "data"
        self._process: Child
        self.host = ""
        self.port = port

    def configure(self, xml: str) -> None:
        """Write another configuration, for the server to read when it is told to."""
        self._config.write_text(xml)

    def __enter__(self) -> Self:
        compiled()
        self._process = Child(
            *("-m", *self._program, "serve", str(self._config)),
            *("--port", str(self.port), "--data-dir", str(self.data), *self._loop, "--json"),
            *self._options,
            tree=self._tree,
        )
        url = urlsplit(orjson.loads(self._process.hear())["url"])
        self.host, self.port = str(url.hostname), int(url.port or 0)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            self._process.end()
        finally:
            self._own.cleanup()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def cpu_s(self) -> float:
        """Processor time used so far, all threads."""
        return cpu_s(self._process.pid)

    @property
    def memory_bytes(self) -> int:
        """Memory of its own: pages of mapped files, which the system takes back, do not count."""
        return self._status("RssAnon")

    @property
    def memory_peak_bytes(self) -> int:
        """The most it had in memory since `forget_peak`, mapped files included."""
        return self._status("VmHWM")

    @property
    def resident_bytes(self) -> int:
        """What it has in memory now, mapped files included."""
        return self._status("VmRSS")

    def forget_peak(self) -> None:
        """Start the peak anew from what is in memory now."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def _status(self, field: str) -> int:
        line = next(line for line in self._proc("status").splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()
