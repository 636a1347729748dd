"""Two attempts at one task at the same time: Spark runs a second one of a task that is slow.

Spark does that on another host only, so this is a cluster of its own with two loopback addresses.
Not collected by default, since that takes half a minute to start: ``make crash-spark``.
"""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.spark.stopping import Gate, Stopping
from tests.spark.test_faults import BATCH, end_of_log, ids

ROOT = Path(__file__).parents[3]
ROWS = 80
HOSTS = ("127.0.0.1", "127.0.0.2")
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def process(ready, *command):
    """A process of the cluster, from the line of its log that says it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), *map(str, command)]
    environment = {**os.environ, "SPARK_HOME": str(home)}
    with (
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as found,
        ThreadPoolExecutor(1) as pool,
    ):
        assert any(ready in line for line in found.stderr), "it ended"
        rest = pool.submit(found.stderr.read)  # or it would stand still when the pipe is full
        try:
            yield
        finally:
            found.terminate()
            rest.result()


@pytest.fixture
def spark(tmp_path):
    from sow.spark import session
    from sow.spark.java import ensure_java

    ensure_java()
    master = f"spark://127.0.0.1:{(port := free_port())}"
    with ExitStack() as cluster:
        start = [f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", port]
        cluster.enter_context(process("New state: ALIVE", *start, "--webui-port", 0))
        for host in HOSTS:
            work = [
                "--webui-port",
                0,
                "--cores",
                1,
                "--memory",
                "1g",
                "--work-dir",
                tmp_path / host,
            ]
            start = [f"{DEPLOY}.worker.Worker", "--host", host, *work, master]
            cluster.enter_context(process("Successfully registered with master", *start))
        conf = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
        }
        found = session("speculation", master, conf)
        found.dataSource.register(Stopping)
        yield found
        found.stop()


def test_of_two_attempts_at_the_same_time_one_is_applied(spark, server, proxy):
    """The first one waits at the gate until the other one's rows have been committed."""
    start = end_of_log(server)
    gate = Gate()
    options = {"url": proxy.url, "topic": "loud", "gate": gate.port, "batchRows": BATCH}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gate.arrived)
        spark.range(0, ROWS, 1, 2).write.format("stopping").options(**options).mode("append").save()
        first.result()[1].close()
    gate.close()
    assert ids(server, "loud", start) == list(range(ROWS))
    attempts = {
        requested.parameters["attempt"]
        for requested in proxy.steps("stage")
        if requested.parameters["part"] == "0"
    }
    assert len(attempts) == 2
    assert len(proxy.steps("commit")) == 1
