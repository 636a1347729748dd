"""Jobs of spark-submit: from a wheel, with its own settings, killed and begun again with others.

The driver to be killed goes on until it is, however late that comes.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from sow.spark.java import ensure_java

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS = 4_000
A_BATCH = 500
JOB = f"""
import json, sys
import sow
from sow.spark import session

url, start, checkpoint, trigger = sys.argv[1:]
spark = session("ours", "local[7]", {{"spark.sql.shuffle.partitions": "9"}})
conf = spark.sparkContext.getConf()
print(json.dumps({{
    "sow": sow.__file__,
    "master": conf.get("spark.master"),
    "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
}}), flush=True)
log = spark.readStream.format("sow").options(
    url=url, topic="orders", startingBookmark=start, maxRowsPerTrigger="{A_BATCH}"
).load()
sink = log.select("value", "op").writeStream.format("sow").options(url=url, topic="loud")
sink = sink.option("checkpointLocation", checkpoint).trigger(**json.loads(trigger))
query = sink.start()
told = False
while not query.awaitTermination(0.1):
    if query.recentProgress and not told:
        told = True
        print(json.dumps({{"rows": query.recentProgress[0]["numInputRows"]}}), flush=True)
"""


class Driver:
    """A driver that spark-submit has started, with settings of its own."""

    def __init__(self, python: Path, directory: Path, master: str, settings, *arguments):
        import pyspark

        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        job = directory / "job.py"
        job.write_text(JOB)
        given = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            **settings,
        }
        conf = [part for name, value in given.items() for part in ("--conf", f"{name}={value}")]
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        } | {
            "JAVA_HOME": str(ensure_java()),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._process = subprocess.Popen(
            [submit, "--master", master, *conf, job, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=directory,
            env=environment,
            start_new_session=True,
        )

    def said(self):
        """The next that it says, once it says it."""
        return json.loads(next(line for line in self._process.stdout if line.startswith("{")))

    def kill(self):
        """End it and all that it has started, as a machine does that loses its power."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()
        self._process.wait()

    def end(self):
        self._process.stdout.read()
        self._process.stdout.close()
        return self._process.wait()


def publish(server, first, until):
    for start in range(first, until, 1_000):
        server.publish("orders", *({"id": n} for n in range(start, start + 1_000)))


def test_a_driver_that_is_killed_goes_on_with_other_cores(server, cluster, python, tmp_path):
    server.clear()
    start = server.get("/v1/log/extent").json["newest"]
    arguments = (server.url, start, str(tmp_path / "shared"))
    publish(server, 0, ROWS // 2)
    one = {"spark.cores.max": "1", "spark.sql.shuffle.partitions": "3"}
    driver = Driver(python, tmp_path, cluster.url, one, *arguments, '{"processingTime": "0 s"}')
    said = driver.said()
    assert driver.said()["rows"] == A_BATCH
    driver.kill()
    assert said["master"] == cluster.url
    assert said["partitions"] == "3"
    assert Path(said["sow"]).is_relative_to(python.parents[1])
    publish(server, ROWS // 2, ROWS)
    two = {"spark.cores.max": "2", "spark.sql.shuffle.partitions": "5"}
    driver = Driver(python, tmp_path, cluster.url, two, *arguments, '{"availableNow": true}')
    assert driver.said()["partitions"] == "5"
    assert driver.end() == 0
    assert {row["id"] for row in server.records("loud")} == set(range(ROWS))
    assert server.get(f"/v1/log/extent?topics=loud&from={start}").json["rows"] == ROWS
