"""Spark's own processes, from the PySpark wheel: a master, workers, a Spark Connect server.

Each is started on loopback with ports that the system chooses, says on its log what came of it, and
is stopped by the id of its process. Nothing here sleeps: a wait is for a line of a log, or for the
end of the process that would have written it.
"""

import os
import re
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self

from sow.spark.java import ensure_java

ROOT = Path(__file__).parents[2]
READY_S_MAX = 600
"""A safety net for what never comes: on a busy machine a JVM takes minutes to say it is there."""
STOP_S_MAX = 120
LAST_LINES = 40
WORKERS = 2
DEPLOY = "org.apache.spark.deploy"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR = re.compile(rb"CoarseGrainedExecutorBackend\0.*--app-id\0([^\0]+)", re.DOTALL)
AT = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")


class Daemon:
    """One process of Spark's, from `with` to the end of it."""

    def __init__(self, directory: Path, python: Path, *command: str) -> None:
        self._command = command
        self._python = python
        self._directory = directory
        self._lines: list[str] = []
        self._has_ended = False
        self._news = Condition()
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [_spark_home() / "bin" / "spark-class", *self._command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "JAVA_HOME": str(ensure_java()),
                # Executors have the environment of their worker, and SOW from a wheel there.
                "PYSPARK_PYTHON": str(self._python),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(self._directory),
            },
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for line in log:
                with self._news:
                    self._lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    def executors(self) -> list[tuple[bytes, int]]:
        """The executors that it has started, as a worker does: application and process."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        children = [int(child) for thread in threads for child in _read(thread).split()]
        called = ((EXECUTOR.search(_read(Path(f"/proc/{one}/cmdline"))), one) for one in children)
        return [(found[1], child) for found, child in called if found is not None]

    def said(self, pattern: str) -> str:
        """The first group of `pattern` in the first line of the log that has it, once one has."""

        def is_known() -> bool:
            return self._has_ended or self._found(pattern) is not None

        with self._news:
            self._news.wait_for(is_known, READY_S_MAX)
            found = self._found(pattern)
            if found is None:
                log = "\n".join(self._lines[-LAST_LINES:])
                raise RuntimeError(f"{self._command[0]} never said {pattern!r}; its log:\n{log}")
        return found

    def _found(self, pattern: str) -> str | None:
        matches = (re.search(pattern, line) for line in self._lines)
        return next((match[1] for match in matches if match), None)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            # The log ends only with those that the process has started itself.
            self._reader.join()


def _read(file: Path) -> bytes:
    """What is in a file of a thread or process, which may end meanwhile."""
    with suppress(OSError):
        return file.read_bytes()
    return b""


def _spark_home() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


class Cluster:
    """A master and workers with one core each; `url` is what a session is given."""

    def __init__(self, directory: Path, python: Path, workers: int = WORKERS) -> None:
        self._directory = directory
        self._python = python
        self._count = workers
        self._workers: list[Daemon] = []
        self._running = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        # Whatever has been started is stopped, also if what should follow it does not start.
        with ExitStack() as running:
            master = running.enter_context(
                Daemon(self._directory, self._python, f"{DEPLOY}.master.Master", *AT)
            )
            self.url = master.said(r"Starting Spark master at (spark://\S+)")
            self._workers = [running.enter_context(self._worker(n)) for n in range(self._count)]
            for worker in self._workers:
                worker.said(r"(Successfully registered with master)")
            self._running = running.pop_all()
        return self

    def executors(self) -> list[int]:
        """The processes of the executors of the newest application: those of one before it may
        take a while to end."""
        found = [one for worker in self._workers for one in worker.executors()]
        newest = max((application for application, _ in found), default=b"")
        return [process for application, process in found if application == newest]

    def _worker(self, number: int) -> Daemon:
        directory = self._directory / f"worker-{number}"
        directory.mkdir()
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory))
        return Daemon(directory, self._python, f"{DEPLOY}.worker.Worker", *AT, *size, self.url)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._running.__exit__(kind, error, traceback)


def executors_of(spark: Any, count: int) -> int:
    """How many executors a session has, once so many tasks have run at the same time."""
    rows = spark.sparkContext.parallelize(range(count), count)
    rows.barrier().mapPartitions(lambda some: some).collect()
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # the driver


def connect_server(directory: Path, python: Path) -> Daemon:
    """A Spark Connect server of two local cores, not yet started."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
    }
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submit = (f"{DEPLOY}.SparkSubmit", "--master", "local[2]", "--class", CONNECT, *pairs)
    return Daemon(directory, python, *submit, "spark-internal")
