"""Executors of a small cluster are killed, each a Java process with its Python workers.

Not collected by default, since a cluster takes half a minute to start: ``make crash-spark``.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.spark.pipeline import ROWS_A_BATCH, copy
from tests.spark.stopping import Gate, Stopping, executor_of
from tests.spark.test_faults import BATCH, end_of_log, ids, publish

ROOT = Path(__file__).parents[3]
ROWS = 2 * ROWS_A_BATCH


@pytest.fixture(scope="module")
def spark():
    from sow.spark import session

    conf = {
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
    }
    found = session("cluster", "local-cluster[2,1,1024]", conf)
    found.dataSource.register(Stopping)
    yield found
    found.stop()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.close()


def killed(gate, work):
    """What a job returns when the executor of its first task is killed at the gate."""
    with ThreadPoolExecutor(1) as pool:
        kill = pool.submit(gate.kill, executor_of)
        try:
            done = work()
        except BaseException:
            gate.close()  # nobody will come
            raise
        kill.result()
        return done


def test_an_executor_killed_while_it_writes(spark, server, proxy, gate):
    start = end_of_log(server)
    options = {"url": proxy.url, "topic": "loud", "gate": gate.port, "batchRows": BATCH}
    frame = spark.range(0, 2 * ROWS, 1, 2).write.format("stopping").options(**options)
    killed(gate, frame.mode("append").save)
    assert ids(server, "loud", start) == list(range(2 * ROWS))
    first = [requested for requested in proxy.steps("stage") if requested.parameters["part"] == "0"]
    assert len({requested.parameters["attempt"] for requested in first}) == 2


def test_an_executor_killed_while_it_reads(spark, server, gate):
    publish(server, 0, ROWS)
    options = {"url": server.url, "topic": "orders", "gate": gate.port, "partitions": 2}
    frame = spark.read.format("stopping").options(**options).load()
    rows = killed(gate, frame.collect)
    assert sorted(json.loads(row.value)["id"] for row in rows) == list(range(ROWS))


def test_an_executor_killed_under_a_stream(spark, server, proxy, gate, tmp_path):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    options = {"gate": gate.port, "batchRows": BATCH}
    query = copy(spark, proxy.url, tmp_path / "checkpoint", "stopping", **options)
    killed(gate, query.awaitTermination)
    assert ids(server, "loud", start) == list(range(ROWS))
    assert len(proxy.steps("commit")) == 2
