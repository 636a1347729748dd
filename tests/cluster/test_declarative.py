"""The declarative pipeline of the guide, run by `spark-pipelines`, twice."""

import os
import subprocess

import pytest

from sow.spark.java import ensure_java
from tests.docs.blocks import ROOT, fenced
from tests.edge.serving import Running, configuration, records
from tests.edge.topics import MESSAGE_TYPES, TOPICS

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ROWS = 500
RUN_S_MAX = 900
"""A safety net: half a minute on a quiet machine, many times as long beside others."""
SPEC = """
name: copies
storage: {}
libraries:
  - glob:
      include: transformations/**
"""


@pytest.fixture
def server(tmp_path):
    """One of its own: a stream begins with the whole log."""
    running = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path / "data")
    yield running
    running.close()


def test_the_pipeline_of_the_guide_copies_what_came_since_its_last_run(
    server, python, home, tmp_path
):
    (text,) = (
        block.text
        for block in fenced("python", [ROOT / "docs/guide/spark.md"])
        if "pyspark import pipelines" in block.text
    )
    text = text.replace("http://127.0.0.1:8080", server.url).replace("orders-copy", "loud")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(text)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format((tmp_path / "storage").as_uri()))
    server.publish("orders", *({"id": n} for n in range(ROWS)))
    run(python, home, tmp_path)
    assert len(server.records("loud")) == ROWS
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", *({"id": n} for n in range(ROWS, 2 * ROWS)))
    server.request("DELETE", records("orders", filter="/id < 10"))
    run(python, home, tmp_path)
    assert server.get(f"/v1/log/extent?topics=loud&from={start}").json["rows"] == ROWS + 10
    assert server.records("loud", order_by="/id") == server.records("orders", order_by="/id")


def run(python, home, directory):
    """Run it as a user does, by the Python that has SOW from a wheel."""
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", "run"],
        cwd=directory,
        env={
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "JAVA_HOME": str(ensure_java()),
            "PYSPARK_PYTHON": str(python),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
