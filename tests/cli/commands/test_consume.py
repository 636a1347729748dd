"""`sow consume`: lines of messages, each acknowledged once it is written."""

import json
import sys

import pytest

from sow.cli.commands import consume
from tests import forks
from tests.edge.serving import configuration, served

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Queue><Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
</Queue>
"""
pytestmark = pytest.mark.edge
running = served(configuration(TOPICS), checks=False)


@pytest.fixture
def run(running):
    def call(*words, code=0, wait_s=60):
        command = [sys.executable, "-m", "sow", "consume", *words, "--url", running.url]
        done = forks.run(command, capture_output=True, timeout=wait_s)
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()

    call("jobs")
    yield call
    assert running.errors == []


def left(server):
    return len(server.call(lambda: server.server.executor.queues.find("jobs").queue.messages))


def test_it_writes_and_acknowledges_until_the_queue_is_empty(run, running):
    bookmark = running.publish("orders", *({"id": number} for number in range(25))).json["bookmark"]
    lines, _ = run("jobs")
    assert [line["d"]["id"] for line in lines] == [*range(25)]
    assert lines[-1].keys() == {"bm", "k", "d", "deliveries"}
    assert (lines[-1]["bm"], lines[-1]["deliveries"]) == (bookmark, 1)
    assert left(running) == 0


def test_it_takes_no_more_than_it_is_to_write(run, running):
    running.publish("orders", *({"id": number} for number in range(12)))
    lines, _ = run("jobs", "--count", "11", "--follow")
    assert len(lines) == 11
    assert left(running) == 1
    assert len(run("jobs")[0]) == 1


def test_what_is_no_queue_is_refused_in_a_sentence(run):
    _, said = run("orders", code=1)
    assert said.startswith("sow: orders is no queue")


def test_a_request_leases_no_more_than_a_few():
    assert consume.LEASED_AT_ONCE <= 10
