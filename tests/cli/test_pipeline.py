"""`sow pipeline`: listed from a file, and run as a user does, in a process of its own."""

import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS

CONFIG = f"""<SOWConfig><Name>t</Name>{MESSAGE_TYPES}<SOW>{TOPICS}
<ConflatedTopic><Name>orders-S</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>2s</Interval><Engine>spark</Engine>
</ConflatedTopic></SOW>
<Pipelines><Pipeline><Name>copy</Name>
<Source><Format>sow</Format><Topic>orders</Topic></Source>
<Sink><Topic>loud</Topic></Sink></Pipeline></Pipelines></SOWConfig>"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config.xml"
    file.write_text(CONFIG)
    return str(file)


def test_pipelines_are_listed_and_what_spark_conflates(config):
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config])
    assert result.output.splitlines() == [
        "copy: sow orders -> topic loud, every 1 s",
        "orders-S: sow orders -> conflated topic orders-S, every 1 s",
    ]
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config, "--json"])
    assert [one["name"] for one in json.loads(result.output)] == ["copy", "orders-S"]


def test_a_misspelt_pipeline_is_answered_with_the_nearest(config):
    result = CliRunner().invoke(main, ["pipeline", "run", "copi", "--config", config])
    assert (result.exit_code, result.stderr) == (
        1,
        "sow: no pipeline 'copi'; did you mean copy?\n",
    )


def test_a_file_with_a_mistake_runs_nothing(tmp_path):
    (tmp_path / "config.xml").write_text(
        CONFIG.replace("loud</Topic></Sink>", "lod</Topic></Sink>")
    )
    config = str(tmp_path / "config.xml")
    result = CliRunner().invoke(main, ["pipeline", "run", "copy", "--config", config])
    assert result.exit_code == 1
    assert "did you mean 'loud'?" in result.stderr


@pytest.mark.spark
@pytest.mark.edge
def test_a_run_in_a_process_of_its_own_is_stopped_cleanly(config, tmp_path):
    pytest.importorskip("pyspark")
    server = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path / "data")
    try:
        server.publish("orders", {"id": 1})
        command = [sys.executable, "-m", "sow.cli", "pipeline", "run", "copy", "--config", config]
        process = subprocess.Popen(
            [*command, "--url", server.url, "--data-dir", str(tmp_path / "state")],
            stderr=subprocess.PIPE,
            text=True,
        )
        with server.socket() as client:
            client.ask({"c": "sow_and_subscribe", "t": "loud"})
            while "rows in" not in (line := process.stderr.readline()):
                assert process.poll() is None, line
            assert "1 rows in, 1 out" in line
            assert client.until(c="p")[-1]["d"] == {"id": 1}
        os.kill(process.pid, signal.SIGTERM)
        assert "Traceback" not in process.communicate(timeout=60)[1]
        assert process.returncode == 0
    finally:
        server.close()
