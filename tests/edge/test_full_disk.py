"""The moment the disk refuses: nothing taken around it is acknowledged, nothing is lost."""

import json
import resource
import signal

import pytest

from sow.client.sync import Client
from sow.errors import DiskFull, StoreError
from sow.protocol.commands import Command
from sow.protocol.replies import LINES
from tests.edge.serving import Running, configuration
from tests.edge.test_lifecycle import Process


@pytest.fixture
def said():
    """What the disk says when it refuses."""
    return DiskFull("no room")


@pytest.fixture
def refusing(server, monkeypatch, said):
    """The journal refuses once, just as another session publishes; gives that session."""
    runtime, executor = server.server.runtime, server.server.executor
    session = server.call(executor.sessions.open, LINES, 0)
    # What is under way, such as the account of the start, would be refused in its place.
    server.wait(runtime.durable())
    append, refused = runtime.journal.append, []
    late = Command(
        "publish", "late", "orders", [b'{"id":2}'], framed=True, acks=frozenset({"persisted"})
    )

    def publish():
        executor.execute(session, late, runtime.now_us())
        runtime.wake()

    def refuse_once(entries):
        if refused:
            return append(entries)
        refused.append(entries)
        # The loop is given the refusal behind this, and so gets it just after that.
        server.loop.call_soon_threadsafe(publish)
        raise said

    monkeypatch.setattr(runtime.journal, "append", refuse_once)
    yield session
    server.call(executor.sessions.close, session)
    assert server.errors == [said.detail]
    server.errors.clear()


def recovered(server):
    while server.get("/readyz").status != 200:
        server.call(lambda: None)


def test_what_is_taken_while_the_refusal_is_on_its_way_is_not_acknowledged(server, refusing):
    assert server.publish("orders", {"id": 1}).status == 507
    said = refusing.outbox.pull(10**9).frame
    assert b'"persisted"' not in said
    assert b"disk full" in said
    recovered(server)


def test_what_readers_may_have_seen_is_stored_when_room_returns(server, refusing):
    assert server.publish("orders", {"id": 1}).status == 507
    recovered(server)
    logged = server.get("/v1/log?topics=orders&limit=1000000").rows
    assert [row["d"] for row in logged[-2:]] == [{"id": 1}, {"id": 2}]
    assert server.records("orders") == [{"id": 1}, {"id": 2}]


FAILING = pytest.mark.parametrize("said", [StoreError("journal: Read-only file system")])


@FAILING
def test_a_disk_that_fails_for_another_reason_is_not_called_full(server, refusing, said):
    answer = server.publish("orders", {"id": 1})
    assert (answer.status, answer.json["reason"]) == (503, "store failing")
    assert said.detail in answer.json["detail"]
    assert b'"reason":"store failing"' in refusing.outbox.pull(10**9).frame
    for answer in (
        server.publish("orders", {"id": 2}),
        server.request("DELETE", "/v1/topics/orders/records?filter=/id%20=%201"),
    ):
        assert (answer.status, answer.json["reason"]) == (503, "store failing")
        assert said.detail in answer.json["detail"]
    ready = server.get("/readyz")
    assert (ready.status, ready.body.split(b";")[0]) == (503, b"store failing")
    assert server.records("orders")[0] == {"id": 1}
    recovered(server)
    assert server.publish("orders", {"id": 3}).status == 200


def test_a_data_directory_that_has_gone_is_not_called_a_full_disk(tmp_path):
    topic = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    running = Running(configuration(topic), data)
    try:
        running.publish("orders", {"id": 1})
        data.rename(elsewhere)
        refused = running.publish("orders", {"id": 2})
        assert (refused.status, refused.json["reason"]) == (503, "store failing")
        assert "the data directory has changed under the server" in refused.json["detail"]
        ready = running.get("/readyz")
        assert (ready.status, ready.body.decode()) == (
            503, "store failing: the data directory has changed under the server\n",
        )  # fmt: skip
        assert running.records("orders") == [{"id": 1}], "reads go on"
        elsewhere.rename(data)
        assert running.publish("orders", {"id": 3}).status == 200
        assert running.get("/readyz").status == 200
    finally:
        running.close()


def test_a_load_that_the_disk_has_no_room_for_is_refused_whole_and_taken_later(
    tmp_path, monkeypatch
):
    """The files may not grow: rows that are written ahead of the log are refused in the middle."""
    monkeypatch.setattr("sow.client.publisher.CHUNK_BYTES", 500_000)
    quotes = [{"symbol": str(number), "pad": "x" * 60_000} for number in range(140)]
    limited, free = Process(tmp_path, limit_bytes=3_000_000), (resource.RLIM_INFINITY,) * 2
    with Client(limited.url) as client:
        client.publish("quotes", {"symbol": "kept"})
        with pytest.raises(DiskFull, match="nothing of the request is acknowledged; free some"):
            client.publish_once("quotes", quotes, writer="w", epoch=1)
        assert client.query("quotes").records == [{"symbol": "kept"}]
        resource.prlimit(limited.pid, resource.RLIMIT_FSIZE, free)
        client.publish_once("quotes", quotes, writer="w", epoch=1)
        assert len(client.query("quotes").records) == 141
    limited.signal(signal.SIGKILL)
    limited.end()
    again = Process(tmp_path)
    with Client(again.url) as client:
        found = client.query("quotes").records
        assert sorted(found, key=json.dumps) == sorted(
            [{"symbol": "kept"}, *quotes], key=json.dumps
        )
    assert again.stop()[0] == 0
