"""Scale: the same work of a cluster with 1, 2 and 4 executors, over recorded days ten times over.

A master and four workers are processes of this machine, as `make cluster` has them; each executor
has one core by Spark's count. The days are those of docs/recorded-data.md, one after the other, or
made where they are absent. What has to come of each step is counted, and is the same with any
number of executors. docs/results/spark-scale.md shows it, and how it is run.

It does not say how a cluster of several machines scales: all share the cores of this one.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.benchmarks.machine import LIBRARIES, facts
from tests.benchmarks.measure import seconds
from tests.benchmarks.page import conditions, markdown, table
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.report import number
from tests.benchmarks.results import FOLDER, Run, load, save
from tests.cluster.daemons import Cluster, executors_of
from tests.recordings import BUSES, recordings
from tests.spark.home import fast_home

RAW = FOLDER / "spark-scale.json"
PAGE = FOLDER / "spark-scale.md"
TEXT = """# Spark on more executors

`make bench-scale` writes recorded days ten times over into a topic, \
reads its log back and conflates them to
five minutes, with 1, 2 and 4 executors of a standalone cluster of real processes. Executors, \
driver and server share the cores of one machine: with
two cores there is nothing to gain beyond the second executor, and what four take longer is the \
price of more processes. It is shown that the results are
the same; how the work scales over machines of their own was not measured.

"""
EXECUTORS = (1, 2, 4)
TIMES = 10
FILES = 8
"""Twice as many tasks as executors at most, so that all have work."""
REPETITIONS = 3
INTERVAL = "5m"
COLUMNS = ("ts", "vehicle_id", "route_id", "latitude", "longitude", "speed")
XML = """<SOWConfig><Name>scale</Name><SOW>
<Topic><Name>vehicles</Name><MessageType>json</MessageType><Key>/vehicle_id</Key></Topic>
</SOW></SOWConfig>"""


class Scaled(msgspec.Struct, frozen=True):
    """What so many executors took in the median, and the server's processor time while writing."""

    executors: int
    rows: int
    windows: int
    write_s: float
    read_s: float
    conflate_s: float
    server_s: float

    @property
    def subject(self) -> str:
        """What is measured again as a whole."""
        return f"{self.executors}"


def recorded(directory: Path) -> int:
    """Write the days so many times, each copy after the one before; the number of rows."""
    found = recordings(directory / "made") / BUSES / "positions.parquet"
    days = pq.read_table(found, columns=list(COLUMNS))
    days = days.set_column(0, "ts", days["ts"].cast(pa.timestamp("us", "UTC")))
    for name in ("vehicle_id", "route_id"):
        place = days.schema.get_field_index(name)
        days = days.set_column(place, name, days[name].cast(pa.string()))
    ends = pc.min_max(days["ts"]).as_py()
    span = pa.scalar(ends["max"] - ends["min"], pa.duration("us"))
    copies = []
    for _ in range(TIMES):
        copies.append(days)
        days = days.set_column(0, "ts", pc.add(days["ts"], span))
    whole = pa.concat_tables(copies)
    (directory / "days").mkdir()
    step = -(-len(whole) // FILES)
    for at in range(FILES):
        pq.write_table(whole.slice(at * step, step), directory / "days" / f"{at}.parquet")
    return len(whole)


@contextmanager
def on_cluster(cluster: Cluster, executors: int) -> Iterator[Any]:
    """A session with so many executors, all of them there."""
    from sow.spark import session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = session(
            "scale",
            cluster.url,
            {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.cores.max": str(executors),
                "spark.executor.cores": "1",
                "spark.executor.memory": "768m",
                "spark.sql.shuffle.partitions": str(FILES),
            },
        )
    try:
        yield spark
    finally:
        spark.stop()


def scaled(spark: Any, days: Path, executors: int, rows: int, repetitions: int) -> Scaled:
    """Each step some times; raises AssertionError if a row is missing, or there twice."""
    from conflated_topics.spark import conflate
    from tests.benchmarks.spark import transfers

    frame = spark.read.parquet(str(days))
    with ServerProcess(XML) as server:
        url = f"http://{server.host}:{server.port}"

        def log() -> Any:
            options = {"url": url, "topic": "vehicles", "startingBookmark": "earliest"}
            return spark.read.format("sow").options(**options).load()

        def conflated() -> Any:
            return conflate(frame, "vehicle_id", "ts", INTERVAL, order=["route_id", "speed"])

        there = executors_of(spark, executors)
        assert there == executors, there
        transfers.consume(frame)  # the executors' Pythons, and the first query, count for nobody
        before_s = server.cpu_s
        write_s = middle(
            repetitions, lambda: transfers.save(frame, "sow", url=url, topic="vehicles")
        )
        server_s = (server.cpu_s - before_s) / repetitions
        assert log().select("bookmark").distinct().count() == repetitions * rows
        read_s = middle(repetitions, lambda: transfers.consume(log())) / repetitions
        conflate_s = middle(repetitions, lambda: transfers.consume(conflated()))
        windows = conflated().count()
    return Scaled(executors, rows, windows, write_s, read_s, conflate_s, server_s)


def middle(repetitions: int, work: Callable[[], object]) -> float:
    """How long the work takes in the median."""
    return median(seconds(work) for _ in range(repetitions))


# The page.


def made() -> str:
    """The page."""
    if not RAW.exists():
        return f"{TEXT}Not measured yet on this version.\n"
    return f"{TEXT}{text_of(load(RAW, Scaled))}\n"


def text_of(run: Run[Scaled]) -> str:
    """The conditions, and a line for each number of executors."""
    headings = ("executors", "write", "read the log", f"conflate to {INTERVAL}", "server's CPU")
    lines = [*conditions(run), *table(headings, ("---:",) * len(headings))]
    for one in run.measured:
        rates = (one.rows / s for s in (one.write_s, one.read_s, one.conflate_s))
        cells = [f"{number(rate)} rows/s" for rate in rates]
        cpu = f"{one.server_s / one.rows * 1e6:.1f} µs a row written"
        lines.append(markdown((f"{one.executors}", *cells, cpu)))
    windows = {one.windows for one in run.measured}
    lines.append(
        f"\n{run.measured[0].rows:,} rows; {max(windows):,} windows come of them each time."
    )
    return "\n".join(lines)


def main() -> None:
    """Measure, show it, and keep it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark.scale")
    parser.add_argument("executors", nargs="*", type=int, default=EXECUTORS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--write", action="store_true", help="keep the results in docs/results")
    requested = parser.parse_args()
    before, start, found = facts((*LIBRARIES, "pyarrow", "pyspark")), time.perf_counter(), []
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with TemporaryDirectory(prefix="sow-bench-") as name:
        directory = Path(name)
        (directory / "spark").mkdir()
        os.environ["SPARK_HOME"] = str(fast_home(directory / "spark"))
        rows = recorded(directory)
        with Cluster(directory, Path(sys.executable), max(requested.executors)) as cluster:
            for executors in requested.executors:
                with on_cluster(cluster, executors) as spark:
                    found.append(
                        scaled(spark, directory / "days", executors, rows, requested.repetitions)
                    )
                print(found[-1], file=sys.stderr, flush=True)
    assert len({one.windows for one in found}) == 1, found
    size = f"{TIMES} times the recorded days, {requested.repetitions} repetitions"
    run = Run(size, before, {"scale": time.perf_counter() - start}, found)
    print(text_of(run))
    if requested.write:
        save(RAW, run)
        PAGE.write_text(made())


if __name__ == "__main__":
    main()
