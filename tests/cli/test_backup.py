"""`sow backup` of a server that is busy: what is restored of it is what its log says."""

import json
import shutil
import threading

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.arrow import committed, staged
from tests.edge.serving import Running, configuration

TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>trades</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"""


def run(*words):
    return CliRunner().invoke(main, list(map(str, words)))


def ok(*words):
    result = run(*words)
    assert result.exit_code == 0, (result.stderr, result.exception)
    return json.loads(result.stdout)


@pytest.fixture
def busy(tmp_path):
    running = Running(configuration(TOPICS), tmp_path / "data")
    yield running
    running.close()
    assert running.errors == []


def restored(backup, target, *words):
    ok("restore", backup, target, *words, "--json")
    return Running(configuration(TOPICS), target)


def state(server):
    return {topic: server.records(topic) for topic in ("orders", "trades")}


def sent_by_the_log(server, bookmark):
    """What a naive reader of the log makes of it."""
    found = {"orders": {}, "trades": {}}
    answer = server.get(f"/v1/log?topics=orders,trades&from=0&to={bookmark}&limit=1000000")
    for row in map(json.loads, answer.body.splitlines()):
        if row["op"] == "publish":
            found[row["topic"]][row["k"]] = row["d"]
        else:
            found[row["topic"]].pop(row["k"], None)
    return found


def test_a_backup_of_a_busy_server_is_what_its_log_says_at_the_bookmark(busy, tmp_path):
    enough, stop = threading.Event(), threading.Event()

    def publish():
        number = 0
        while not stop.is_set():
            rows = [{"id": (number + n) % 400, "n": number, "pad": "x" * 200} for n in range(50)]
            busy.publish(("orders", "trades")[number % 2], *rows)
            if number % 7 == 0:
                busy.request("DELETE", f"/v1/topics/orders/records?filter=/id%20=%20{number % 400}")
            number += 1
            if number == 40:
                enough.set()

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        assert enough.wait(60)
        for name in ("orders", "trades"):
            busy.wait(busy.server.checkpointer.write(name))
        report = ok("backup", tmp_path / "b", "--url", busy.url, "--json")
    finally:
        stop.set()
        publisher.join()
    assert int(busy.get("/v1/log/extent").json["newest"]) >= int(report["bookmark"])
    wanted = sent_by_the_log(busy, report["bookmark"])
    assert all(wanted.values())
    copy = restored(tmp_path / "b", tmp_path / "copy")
    try:
        for topic, records in wanted.items():
            key = lambda record: record["id"]  # noqa: E731
            assert sorted(copy.records(topic), key=key) == sorted(records.values(), key=key)
        assert copy.get("/v1/log/extent").json["log"] != busy.get("/v1/log/extent").json["log"]
        answer = copy.get(f"/v1/log?from={report['bookmark']}")
        assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
        assert copy.publish("orders", {"id": 1}).status == 200
        assert copy.errors == []
    finally:
        copy.close()


def test_a_batch_that_was_applied_is_a_duplicate_and_a_reader_begins_again(busy, tmp_path):
    staged(busy, "orders", [{"id": 1}], writer="w", epoch=7)
    committed(busy, "orders", (0, "a", 1, 1), writer="w", epoch=7)
    newest = busy.get("/v1/log/extent").json["newest"]
    position = json.dumps({"bookmark": newest}).encode()
    assert busy.request("PUT", "/v1/log/consumers/reader", data=position).status == 200
    for name in busy.server.checkpointer._checkpoints:
        busy.wait(busy.server.checkpointer.write(name))
    ok("backup", tmp_path / "b", "--url", busy.url, "--json")
    copy = restored(tmp_path / "b", tmp_path / "copy")
    try:
        staged(copy, "orders", [{"id": 1}], writer="w", epoch=7)
        answer = committed(copy, "orders", (0, "a", 1, 1), writer="w", epoch=7)
        assert answer.json["duplicate"] is True
        assert copy.get("/v1/log/consumers").json == []
        answer = copy.request("PUT", "/v1/log/consumers/reader", data=position)
        assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
    finally:
        copy.close()


def test_a_moment_to_restore_may_name_the_log_of_the_backup(busy, tmp_path):
    seen = busy.publish("orders", {"id": 1}).json["bookmark"]
    busy.publish("orders", {"id": 2})
    ok("backup", tmp_path / "b", "--url", busy.url, "--json")
    log = busy.get("/v1/status").json["log"]
    copy = restored(tmp_path / "b", tmp_path / "copy", "--as-of", f"{log}-{seen}")
    try:
        assert copy.records("orders") == [{"id": 1}]
        other = copy.get("/v1/status").json["log"]
        assert other != log
        refused = copy.get(f"/v1/log?from={log}-{seen}")
        assert (refused.status, refused.json["reason"]) == (409, "another log")
    finally:
        copy.close()
    refused = run("restore", tmp_path / "b", tmp_path / "again", "--as-of", f"{other}-{seen}")
    assert (refused.exit_code, f"is of the log {other}" in refused.stderr) == (1, True)
    assert not (tmp_path / "again").exists()


def test_what_ends_half_leaves_nothing(busy, tmp_path, monkeypatch):
    busy.publish("orders", {"id": 1})
    monkeypatch.setattr(
        "sow.server.api.admin.frames", lambda *_: (one for one in [b"\0\0\0\x03m{}"])
    )
    result = run("backup", tmp_path / "b", "--url", busy.url)
    assert (result.exit_code, "nothing is kept of it" in result.stderr) == (1, True)
    monkeypatch.setattr("sow.server.api.admin.frames", lambda *_: (one for one in [b"\0" * 8]))
    assert "what came is no backup" in run("backup", tmp_path / "b", "--url", busy.url).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_directory_that_is_there_is_refused(busy, tmp_path):
    result = run("backup", tmp_path / "data", "--url", busy.url)
    assert (result.exit_code, "is there already" in result.stderr) == (1, True)


def test_what_is_said_names_the_moment(busy, tmp_path):
    busy.publish("orders", {"id": 1})
    result = run("backup", tmp_path / "b", "--url", busy.url)
    newest = busy.get("/v1/log/extent").json["newest"]
    assert result.stdout.startswith(f"{tmp_path / 'b'}: ")
    assert f" as of bookmark {newest}, 2" in result.stdout


def test_a_copy_of_a_directory_that_is_stopped_is_whole_and_can_be_served(busy, tmp_path):
    busy.publish("orders", {"id": 1}, {"id": 2})
    wanted = state(busy)
    busy.stop()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    busy.start()
    assert run("verify", tmp_path / "copy").exit_code == 0
    copy = Running(configuration(TOPICS), tmp_path / "copy")
    try:
        assert state(copy) == wanted
        ok("backup", tmp_path / "b", "--url", copy.url, "--json")
    finally:
        copy.close()
    assert run("verify", tmp_path / "b").exit_code == 0
