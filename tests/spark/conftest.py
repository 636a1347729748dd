"""One Spark session for the whole run, and one server for each module; skipped without Spark."""

import sys
import warnings

import pytest

from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.spark.home import fast_home, forking_python
from tests.spark.proxy import Proxy

FEWER_PROCESSES = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""Without Hadoop's native library Java starts a process for each look at a file's links and rights:
forty for each batch of a stream, a third of its time. These ask less often, and write no checksum
beside each file. What is shown of checkpoints by `make crash-spark` and `make cluster` is shown
with Spark's own settings."""


def pythons(directory, patch):
    """Have Spark start its Pythons by daemons of ours; the settings for that.

    Where lines are counted (`make coverage`) they end with their tasks and say what they ran; those
    that are used again are killed with the session, and take it along."""
    coverage = sys.modules.get("coverage")
    if coverage is not None and coverage.Coverage.current() is not None:
        return {"spark.python.worker.reuse": "false"}
    python = str(forking_python(directory))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # Java plans by that of the driver
        patch.setenv(name, python)
    return {}


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark")
    from sow.spark import session

    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.shuffle.partitions": "1",
        # Rows are few here, and compiling code for each query takes longer than running it.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        **FEWER_PROCESSES,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(fast_home(tmp_path_factory.mktemp("spark"))))
        settings |= pythons(tmp_path_factory.mktemp("python"), patch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A task that fails is tried a second time.
            found = session("tests", "local[2,2]", settings)
        yield found
        found.stop()
        _end_java()


def _end_java():
    """Wait for Java to end, so that its time is part of what the run has taken (`time`)."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path_factory.mktemp("data"))
    yield server
    server.close()


@pytest.fixture
def server(running):
    yield running
    running.errors.clear()
    running.clear()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.url)
    yield proxy
    proxy.close()


@pytest.fixture
def run(spark, server, tmp_path):
    """Runs a pipeline to its end; the rows it took up."""

    def whole(pipeline):
        from sow.spark.pipelines import Running

        running = Running(pipeline, server.url, tmp_path, once=True, master=None)
        running.start()
        try:
            running.query.awaitTermination()
            return sum(progress["numInputRows"] for progress in running.query.recentProgress)
        finally:
            running.stop()

    return whole
