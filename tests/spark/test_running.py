"""`sow pipeline run`: what a user sees of a run, and how it ends."""

import json
import os
import signal
import threading

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.topics import MESSAGE_TYPES, TOPICS

pytestmark = [pytest.mark.spark, pytest.mark.edge]

CONFIG = f"""<SOWConfig><Name>t</Name>{MESSAGE_TYPES}<SOW>{TOPICS}</SOW>
<Pipelines><Pipeline><Name>copy</Name>
<Source><Format>sow</Format><Topic>orders</Topic>
<Option><Name>startingBookmark</Name><Value>${{START}}</Value></Option></Source>
<Sink><Topic>loud</Topic></Sink></Pipeline></Pipelines></SOWConfig>"""


@pytest.fixture
def run(spark, server, tmp_path):
    file = tmp_path / "config.xml"
    file.write_text(CONFIG)
    start = server.get("/v1/log/extent").json["newest"]

    def invoke(*more, command="run"):
        words = ["pipeline", command, "copy", "--config", str(file), "--url", server.url]
        words += ["--data-dir", str(tmp_path / "data"), "--set", f"START={start}", *more]
        return CliRunner().invoke(main, words)

    return invoke


def test_a_run_that_ends_says_what_it_did(run, server):
    server.publish("orders", {"id": 1}, {"id": 2})
    result = run("--once", "--json")
    assert result.exit_code == 0, result.stderr
    said = json.loads(result.stdout.splitlines()[-1])
    assert (said["pipeline"], said["rows_in"], said["rows_out"]) == ("copy", 2, 2)
    assert (said["lag"], said["conflation_ratio"]) == (0, 1.0)
    assert len(server.records("loud")) == 2


def test_a_run_without_end_is_stopped_between_two_batches(run, server):
    handler = signal.getsignal(signal.SIGTERM)
    server.publish("orders", {"id": 1})
    with server.socket() as client:
        client.ask({"c": "sow_and_subscribe", "t": "loud"})

        def stop_when_it_has_written():
            client.until(c="p")
            os.kill(os.getpid(), signal.SIGTERM)

        waiting = threading.Thread(target=stop_when_it_has_written)
        waiting.start()
        result = run()
        waiting.join()
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "sow: pipeline copy: starting Spark"
    assert "1 rows in, 1 out (1x)" in result.stderr
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_run_that_fails_says_why_in_one_line(run, server):
    server.publish("orders", {"id": 1})
    result = run("--once", "--set", "START=0,00000000000000aa-5")
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if "is of the log" in line]
    assert line.startswith("sow: pipeline copy: ")


def test_a_range_is_counted_and_run(run, server):
    begin = int(server.get("/v1/log/extent").json["newest"])
    server.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    words = ("--from", str(begin + 1), "--to", "latest")
    counted = run("--dry-run", *words, command="backfill")
    assert counted.output == f"2 rows after bookmark {begin + 1} up to {begin + 3}\n"
    assert server.records("loud") == []
    result = run("--json", *words, command="backfill")
    assert result.exit_code == 0, result.stderr
    assert sum(json.loads(line)["rows_in"] for line in result.stdout.splitlines()) == 2
    assert [row["id"] for row in server.records("loud", order_by="/id")] == [2, 3]
