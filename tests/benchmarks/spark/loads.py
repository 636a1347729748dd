"""Loads: many rows in one write, killed once and begun again.

The driver of the first write is killed when half of its tasks have staged their rows; another one
writes all of them under the same writer and epoch. Beside that a pinger sees how long the server
keeps anybody waiting, and a client asks for ten records of the topic again and again. Then every
row has to be in the log once, and every key to have its last row. docs/results/loads.md shows it,
and how it is run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import msgspec

from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.page import conditions, markdown, table
from tests.benchmarks.pinger import Pinger
from tests.benchmarks.processes import ROOT, ServerProcess
from tests.benchmarks.report import number
from tests.benchmarks.results import FOLDER, Run, load, put_in, save

RAW = FOLDER / "loads.json"
PAGE = FOLDER / "loads.md"
TEXT = """# Large loads by Spark

`make bench-loads` writes so many rows in one write, whose driver is \
killed when half of its tasks are done; another one
writes all of them, which counts here, and each is there once. The longest wait is that of any \
other client (idle: with no load), a query is one
for ten rows of this topic; CPU and memory are those of the server. Times of a loaded machine say \
little, its CPU time more.

"""
ROWS = (1_000_000, 5_000_000, 50_000_000)
A_TASK = 250_000
KEYS_MAX = 1_000_000
SAMPLE_S = 0.2
XML = """<SOWConfig><Name>loads</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
</SOW></SOWConfig>"""


class Loaded(msgspec.Struct, frozen=True):
    """One load: how long the write took that was not killed, also of the server's processor time,
    and what was seen beside it."""

    rows: int
    keys: int
    s: float
    server_s: float
    killed_after: int
    wait_ms: float
    idle_ms: float
    query_ms: float
    before_bytes: int
    peak_bytes: int

    @property
    def subject(self) -> str:
        """What is measured again as a whole."""
        return f"{self.rows}"


class Shape:
    """How rows of a load are divided into tasks and keys; each key is of one task."""

    def __init__(self, rows: int, keys: int = KEYS_MAX) -> None:
        self.rows = rows
        self.tasks = max(4, rows // A_TASK)
        self.keys = min(keys, rows)
        self.of_task = rows // self.tasks
        self.keys_of_task = self.keys // self.tasks
        assert self.of_task * self.tasks == rows, f"{rows} rows in {self.tasks} tasks"
        assert self.of_task % self.keys_of_task == 0, f"{self.keys} keys in {self.tasks} tasks"

    def frame(self, spark: Any) -> Any:
        """The rows: `n` counts them."""
        key = f"(id div {self.of_task}) * {self.keys_of_task} + id % {self.keys_of_task}"
        rows = spark.range(0, self.rows, 1, self.tasks)
        return rows.selectExpr(
            f"to_json(named_struct('id', {key}, 'n', id, 'kind', 'load', 'px', id * 0.25D)) value"
        )

    def last(self) -> int:
        """The sum of the numbers of the last rows of all keys."""
        keys = self.keys_of_task
        ends = (self.of_task * (task + 1) - keys for task in range(self.tasks))
        return sum(keys * end + keys * (keys - 1) // 2 for end in ends)


def driver(url: str, rows: str) -> None:
    """The driver of a load: says how many tasks are done, and at the end that it is over."""
    from sow.spark import session

    spark = session("load", "local[2]")
    tracker = spark.sparkContext.statusTracker()
    sink = Shape(int(rows)).frame(spark).write.format("sow").options(url=url, topic="orders")
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(SAMPLE_S):
            for stage in tracker.getActiveStageIds():
                if (info := tracker.getStageInfo(stage)) is not None:
                    print(info.numCompletedTasks, flush=True)

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    start = time.perf_counter()
    sink.options(writer="load", epoch="1").mode("append").save()
    took_s = time.perf_counter() - start
    is_over.set()
    telling.join()
    print(f"took {took_s}", flush=True)
    spark.stop()


@contextmanager
def begun(url: str, rows: int) -> Iterator["subprocess.Popen[str]"]:
    """A driver with all that it starts, which is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.spark.loads", "--driver", url, str(rows)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        process.wait()


def killed(url: str, shape: Shape) -> int:
    """How many tasks had staged their rows when the driver was killed."""
    with begun(url, shape.rows) as process:
        assert process.stdout is not None
        for line in process.stdout:
            assert not line.startswith("took"), "the load was over before it could be killed"
            if int(line) >= shape.tasks // 2:
                return int(line)
    raise AssertionError("the driver ended by itself")


def written_s(url: str, rows: int) -> float:
    """How long the write took of a driver that was left alone."""
    with begun(url, rows) as process:
        assert process.stdout is not None
        *_, last = process.stdout
        assert process.wait() == 0
        return float(last.removeprefix("took "))


class Beside:
    """Beside a load: ten records again and again, and the memory that the server has."""

    def __init__(self, server: ServerProcess, url: str) -> None:
        self.query_ms, self.before_bytes = 0.0, server.memory_bytes
        self.peak_bytes = self.before_bytes
        self._server, self._url, self._is_over = server, url, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            start = time.perf_counter()
            asked(f"{self._url}/v1/topics/orders/records", filter="/px > 10", top_n="10")
            self.query_ms = max(self.query_ms, (time.perf_counter() - start) * 1000)
            self.peak_bytes = max(self.peak_bytes, self._server.memory_bytes)

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_about: object) -> None:
        self._is_over.set()
        self._thread.join()


def asked(url: str, **parameters: str) -> Any:
    """The answer to a request."""
    with urlopen(f"{url}?{urlencode(parameters)}") as answer:
        return json.load(answer)


def loaded(rows: int) -> Loaded:
    """One load, killed once; raises AssertionError if a row is missing, or there twice."""
    shape = Shape(rows)
    with ServerProcess(XML) as server, Pinger(server.host, server.port) as pinger:
        url = f"http://{server.host}:{server.port}"
        pinger.longest_ms()
        time.sleep(10 * SAMPLE_S)
        idle_ms, _ = pinger.longest_ms()
        with Beside(server, url) as beside:
            tasks = killed(url, shape)
            assert asked(f"{url}/v1/log/extent", topics="orders", **{"from": "0"})["rows"] == 0
            before_s = server.cpu_s
            took_s = written_s(url, rows)
            server_s = server.cpu_s - before_s
        wait_ms, _ = pinger.longest_ms()
        check(url, shape)
    return Loaded(
        rows,
        shape.keys,
        took_s,
        server_s,
        tasks,
        wait_ms,
        idle_ms,
        beside.query_ms,
        beside.before_bytes,
        beside.peak_bytes,
    )


def check(url: str, shape: Shape) -> None:
    """Raise AssertionError if a row is missing, or there twice."""
    extent = asked(f"{url}/v1/log/extent", topics="orders", **{"from": "0"})
    assert extent["rows"] == shape.rows, extent
    projection = "/kind,COUNT(1) AS /keys,SUM(/n) AS /n"
    (row,) = asked(f"{url}/v1/topics/orders/records", projection=projection, grouping="/kind")
    assert (row["keys"], row["n"]) == (shape.keys, shape.last()), row


# The page.


def made() -> str:
    """The page."""
    if not RAW.exists():
        return f"{TEXT}Not measured yet on this version.\n"
    run = load(RAW, Loaded)
    return f"{TEXT}{text_of(run)}\n"


def text_of(run: Run[Loaded]) -> str:
    """The conditions, and a line for each load."""
    headings = ("rows of keys", "rows/s", "CPU a row", "longest wait", "idle", "query", "memory")
    lines = [*conditions(run), *table(headings, ("---:",) * len(headings))]
    for one in run.measured:
        memory = f"{one.before_bytes / 2**20:.0f} to {one.peak_bytes / 2**20:,.0f} MiB"
        lines.append(
            markdown(
                (
                    f"{one.rows:,} of {one.keys:,}",
                    number(one.rows / one.s),
                    f"{one.server_s / one.rows * 1e6:.1f} µs",
                    f"{number(one.wait_ms)} ms",
                    f"{number(one.idle_ms)} ms",
                    f"{number(one.query_ms)} ms",
                    memory,
                )
            )
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what was asked for, show it, and keep it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark.loads")
    parser.add_argument("rows", nargs="*", type=int, default=ROWS, help="rows of each load")
    parser.add_argument("--driver", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="keep the results in docs/results")
    requested = parser.parse_args()
    if requested.driver:
        driver(*requested.driver)
        return
    before, took_s, found = facts((*LIBRARIES, "pyarrow", "pyspark")), {}, []
    for rows in requested.rows:
        start = time.perf_counter()
        found.append(loaded(rows))
        took_s[f"{rows:,} rows"] = time.perf_counter() - start
        print(found[-1], file=sys.stderr, flush=True)
    run = Run("one driver of two cores", before, took_s, found)
    print(text_of(run))
    if requested.write:
        save(RAW, put_in(load(RAW, Loaded), run) if RAW.exists() else run)
        PAGE.write_text(made())


if __name__ == "__main__":
    main()
