"""When a running server writes checkpoints, and what a restart then has to replay."""

import asyncio

import pytest

from tests.edge.serving import Running, configuration

TOPICS = """<Topic><Name>busy</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>quiet</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"""
PAD = "x" * 1000


@pytest.fixture
def server(tmp_path):
    running = Running(configuration(TOPICS), tmp_path)
    yield running
    running.close()


def by_hand(server):
    """Until the server starts again its checkpointer does what a test says, and nothing beside it
    every second."""

    async def end(task):
        task.cancel()
        await asyncio.wait((task,))

    server.wait(end(server.server.checkpointer._task))


def checkpoint_when_grown_by(server, growth_bytes):
    by_hand(server)
    server.server.checkpointer._growth_bytes_min = growth_bytes


def checkpoints(server):
    return server.server.checkpointer._checkpoints


def write_grown(server):
    """What the checkpointer does every second."""
    checkpointer = server.server.checkpointer
    for name in server.wait(checkpointer._grown()):
        server.wait(checkpointer.write(name))


def test_growth_of_one_topic_checkpoints_the_quiet_ones_too(server):
    server.publish("quiet", {"id": 1})
    server.publish("busy", *({"id": n, "pad": PAD} for n in range(50)))
    checkpoint_when_grown_by(server, 10_000)
    write_grown(server)
    assert {name: checkpoints(server)[name].seq for name in ("busy", "quiet")} == {
        "busy": 51,
        "quiet": 51,
    }


def test_what_a_start_replayed_counts_as_growth(server):
    server.publish("busy", *({"id": n, "pad": PAD} for n in range(100)))
    server.stop()
    server.start()
    checkpoint_when_grown_by(server, 50_000)
    assert {"busy", "quiet"} <= set(server.wait(server.server.checkpointer._grown()))
    write_grown(server)
    assert server.wait(server.server.checkpointer._grown()) == []


def test_a_restart_after_a_checkpoint_finds_everything(server):
    server.publish("busy", *({"id": n, "pad": PAD} for n in range(50)))
    checkpoint_when_grown_by(server, 10_000)
    write_grown(server)
    server.publish("busy", {"id": 7, "new": True})
    before = server.records("busy")
    server.stop()
    server.start()
    assert server.records("busy") == before
    assert before[7] == {"id": 7, "new": True}
