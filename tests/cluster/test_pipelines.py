"""Pipelines of the guide and of the shipped configuration on the cluster, killed and run again.

The driver is `sow pipeline run` with SOW from a wheel. An executor is killed after the first batch,
and the driver once it has read what came since; the next driver has other cores and partitions, and
goes on from what the first has left behind. Then the result is exactly that of a naive model over
the log. Rows come in thirds, and the first driver does not end by itself: whatever is slow here,
each kill meets what it is to kill.
"""

import json
import os
import re
import signal
import subprocess
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet
import pytest

from conflated_topics.recorded import Spec, conflate_table
from sow.config import load
from sow.spark.java import ensure_java
from tests.docs.blocks import ROOT, fenced
from tests.edge.serving import Running

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS, A_PUBLISH, A_BATCH = 6_000, 100, 1_000
A_THIRD = ROWS // 3
SYMBOLS = 40
INTERVAL = timedelta(milliseconds=20)
LIVES = (
    {"spark.cores.max": "1", "spark.sql.shuffle.partitions": "3"},
    {"spark.cores.max": "2", "spark.sql.shuffle.partitions": "5"},
)


def configured(directory, settings):
    """The shipped configuration with the first pipeline of the guide, small batches and these
    settings."""
    given = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        **settings,
    }
    pairs = "".join(
        f"<Setting><Name>{name}</Name><Value>{value}</Value></Setting>"
        for name, value in given.items()
    )
    of_guide = next(
        re.search(r"<Pipeline>.*</Pipeline>", block.text, re.DOTALL)[0]
        for block in fenced("xml", [ROOT / "docs/guide/spark.md"])
        if "<Name>mid-prices</Name>" in block.text
    ).replace("<Interval>1s<", f"<Interval>{INTERVAL // timedelta(milliseconds=1)}ms<")
    mids = "<Topic><Name>mids</Name><MessageType>json</MessageType><Key>/symbol</Key></Topic>"
    text = (ROOT / "config.xml").read_text().replace("  </SOW>\n", f"{mids}</SOW>\n", 1)
    text = text.replace("</Pipelines>", f"{of_guide}</Pipelines>")
    bound = f"<Option><Name>maxRowsPerTrigger</Name><Value>{A_BATCH}</Value></Option>"
    text = re.sub(r"<Option><Name>maxRowsPerTrigger.*?</Option>", "", text)
    text = re.sub(r"<Trigger>\d+[sm]<", "<Trigger>1s<", text)
    text = re.sub(r"(<Source>\s*<Format>sow</Format>)", rf"\1{bound}", text)
    path = directory / "cluster.xml"
    path.write_text(text.replace("</Pipeline>", f"{pairs}</Pipeline>"))
    return path


@pytest.fixture
def served(tmp_path):
    found = load(str(configured(tmp_path, {})))
    server = Running(replace(found.configuration, port=0, pipelines=()), tmp_path / "served")
    yield server
    server.close()


class Driver:
    """`sow pipeline run` by a Python that has the wheel, in a group of processes of its own."""

    def __init__(self, python, cluster, server, directory, name, settings, *words):
        config = configured(directory, settings)
        log = directory / "driver.log"
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [
                *(python, "-m", "sow.cli", "pipeline", "run", name, *words, "--json"),
                *("--config", config, "--data-dir", directory / "data"),
                *("--url", server.url, "--master", cluster.url),
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=directory,
            env={
                **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
                "JAVA_HOME": str(ensure_java()),
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            start_new_session=True,
        )

    def reads(self, rows):
        """Wait until its batches have read so many rows."""
        for line in self._process.stdout:
            rows -= json.loads(line)["rows_in"] if line.startswith("{") else 0
            if rows <= 0:
                return
        raise AssertionError(f"it ended: {Path(self._log.name).read_text()}")

    def kill(self):
        """End it and all that it has started, as a machine does that loses its power."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()
        self._process.wait()
        self._log.close()

    def end(self):
        self._process.stdout.read()
        self._process.stdout.close()
        code = self._process.wait()
        self._log.close()
        return code


def written(server, topic):
    """What a pipeline has published, in order."""
    return [line["d"] for line in server.get(f"/v1/log?topics={topic}&from=0").rows]


def publish_a_third(server, topic, row, third):
    """In pieces, so that rows have times of their own."""
    for first in range(third * A_THIRD, (third + 1) * A_THIRD, A_PUBLISH):
        server.publish(topic, *map(row, range(first, first + A_PUBLISH)))


def killed_and_run_again(name, python, cluster, server, directory, topic, row):
    """The rows that the pipeline has read, made of their numbers, as the log has them."""
    publish_a_third(server, topic, row, 0)
    first = Driver(python, cluster, server, directory, name, LIVES[0])
    try:
        first.reads(1)
        (executor,) = cluster.executors()
        os.kill(executor, signal.SIGKILL)
        publish_a_third(server, topic, row, 1)
        first.reads(A_THIRD)  # some of them by another executor
    finally:
        first.kill()
    publish_a_third(server, topic, row, 2)
    second = Driver(python, cluster, server, directory, name, LIVES[1], "--once")
    assert second.end() == 0, (directory / "driver.log").read_text()
    lines = server.get(f"/v1/log?topics={topic}&from=0").rows
    assert len(lines) == ROWS
    return [
        {**line["d"], "at": datetime.fromisoformat(line["ts"]), "seq": int(line["seq"])}
        for line in lines
    ]


def test_conflated_mid_prices_of_the_guide(served, cluster, python, tmp_path):
    log = killed_and_run_again(
        *("mid-prices", python, cluster, served, tmp_path, "quotes"),
        lambda n: {"symbol": f"S{n * 7 % SYMBOLS}", "bid": n + 1, "ask": n + 2},
    )
    rows = [
        {"symbol": row["symbol"], "mid": row["bid"] + 0.5, "at": row["at"], "seq": row["seq"]}
        for row in log
    ]
    times = pa.field("at", pa.timestamp("us", "UTC"))
    schema = pa.schema([("symbol", pa.string()), ("mid", pa.float64()), times, ("seq", pa.int64())])
    spec = Spec(("symbol",), "at", INTERVAL // timedelta(microseconds=1), order=("seq",))
    windows = conflate_table(pa.Table.from_pylist(rows, schema), spec).to_pylist()
    # A window that nothing has ended yet waits for the next run.
    closed = [row for row in windows if row["window_end"] <= log[-1]["at"]]
    assert SYMBOLS < len(closed) < ROWS
    assert by_symbol(written(served, "mids")) == by_symbol(
        sorted(closed, key=lambda row: row["window_start"])
    )


def by_symbol(rows):
    """The prices of each symbol in their order."""
    found = defaultdict(list)
    for row in rows:
        found[row["symbol"]].append(row["mid"])
    return found


def test_bars_that_are_written_whenever_they_change(served, cluster, python, tmp_path):
    log = killed_and_run_again(
        *("bars", python, cluster, served, tmp_path, "orders"),
        lambda n: {
            "order_id": f"o-{n % 500}",
            "symbol": f"S{n * 7 % SYMBOLS}",
            "price": float(n * 13 % 101),
            "last_qty": n % 5,
        },
    )
    groups = defaultdict(list)
    for row in log:
        if row["last_qty"]:
            minute = row["at"].astimezone(UTC).replace(second=0, microsecond=0)
            groups[row["symbol"], minute.strftime("%Y-%m-%dT%H:%M:%SZ")].append(row)
    expected = [
        {
            "symbol": symbol,
            "minute": minute,
            "open": rows[0]["price"],
            "high": max(row["price"] for row in rows),
            "low": min(row["price"] for row in rows),
            "close": rows[-1]["price"],
            "volume": sum(row["last_qty"] for row in rows),
            "trades": len(rows),
        }
        for (symbol, minute), rows in groups.items()
    ]

    def place(row):
        return row["symbol"], row["minute"]

    assert sorted(served.records("bars"), key=place) == sorted(expected, key=place)


def test_an_export_has_each_change_once(served, cluster, python, tmp_path):
    log = killed_and_run_again(
        *("export-orders", python, cluster, served, tmp_path, "orders"),
        lambda n: {"order_id": f"o-{n % 500}", "n": n},
    )
    place = tmp_path / "data/export/orders"
    # Files that Spark has not noted are of attempts that were killed.
    notes = [
        json.loads(line)["path"]
        for file in (place / "_spark_metadata").glob("[0-9]*")
        for line in file.read_text().splitlines()[1:]
    ]
    files = {unquote(urlsplit(path).path) for path in notes}
    found = [
        bookmark
        for path in files
        for bookmark in pa.parquet.read_table(path, columns=["bookmark"])["bookmark"].to_pylist()
    ]
    assert sorted(found) == [row["seq"] for row in log]
