"""`sow backup` of a busy server, `sow restore` to what its log says, and damaged files.

`sow log`: what it writes, asks and refuses. What a node does: tests/server/api.
"""

import json
import shutil
import threading

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands import backup as module
from tests.cli.terminal import Terminal
from tests.edge.arrow import committed, staged
from tests.edge.lives import NOW_US, ORDERS, backed_up, lives_on
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


def restore(*words):
    return CliRunner().invoke(main, ["restore", *map(str, words)])


@pytest.fixture
def backup(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.publish("orders", {"id": 2}, now_us=NOW_US + 10**6)
        backed_up(life, tmp_path / "b")
    return tmp_path / "b"


def ids(path):
    with lives_on(path)(ORDERS) as life:
        return [one["id"] for one in life.records("orders")]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ((), [1, 2]),
        (("--as-of", "1"), [1]),
        (("--as-of", "0"), []),
        (("--as-of", "2023-11-14T22:13:20Z"), [1]),
        (("--as-of", "20300101T000000"), [1, 2]),
    ],
)
def test_it_is_as_it_was_at_that_moment(backup, tmp_path, words, wanted):
    result = restore(backup, tmp_path / "new", *words)
    assert result.exit_code == 0, result.stderr
    assert ids(tmp_path / "new") == wanted


def test_of_a_log_that_has_gone_no_earlier_time_is_restored(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1})
        life.checkpoint()
        while life.journal.trim(NOW_US, life.journal.last_seq + 1, beyond=True):
            pass
        backed_up(life, tmp_path / "b")
    result = restore(tmp_path / "b", tmp_path / "new", "--as-of", "2010-01-01T00:00:00Z")
    assert (result.exit_code, "has given way" in result.stderr) == (1, True)
    assert not (tmp_path / "new").exists()
    assert restore(tmp_path / "b", tmp_path / "new", "--as-of", "20300101T000000").exit_code == 0
    assert ids(tmp_path / "new") == [1]


def test_the_bookmarks_of_the_moment_are_said(backup, tmp_path):
    said = json.loads(restore(backup, tmp_path / "new", "--json").stdout)
    assert said["was"] == "2"
    with lives_on(tmp_path / "new")(ORDERS) as life:
        assert said["bookmark"] == str(life.journal.last_seq)


def test_an_empty_directory_is_taken_and_a_full_one_refused(backup, tmp_path):
    (tmp_path / "new").mkdir()
    assert restore(backup, tmp_path / "new").exit_code == 0
    result = restore(backup, tmp_path / "new")
    assert (result.exit_code, "is not empty" in result.stderr) == (1, True)
    assert ids(tmp_path / "new") == [1, 2]


def test_a_damaged_backup_is_not_restored(backup, tmp_path):
    file = backup / "log.blocks"
    file.write_bytes(file.read_bytes()[:-1])
    result = restore(backup, tmp_path / "new")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"sow: {file}: it has ")
    assert "nothing was restored" in result.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("moment", ["yesterday", "9" * 30, ""])
def test_what_is_no_moment_is_wrong_usage(backup, tmp_path, moment):
    result = restore(backup, tmp_path / "new", "--as-of", moment)
    assert (result.exit_code, "is neither a bookmark nor a time" in result.stderr) == (2, True)


def test_what_is_no_backup_is_a_sentence(tmp_path):
    result = restore(tmp_path, tmp_path / "new")
    assert (result.exit_code, "holds no backup" in result.stderr) == (1, True)


TOPIC = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


def verify(*words):
    return CliRunner().invoke(main, ["verify", *map(str, words)])


def test_a_server_looks_at_its_own_files(sow, server, orders):
    orders({"id": 1})
    said = json.loads(sow.ok("verify", "--json"))
    assert said["whole"] is True
    assert any(one["file"].endswith("journal") for one in said["files"])
    assert all(": whole, " in line for line in sow.ok("verify").splitlines())


def test_damage_is_named_and_is_exit_code_1(tmp_path):
    with lives_on(tmp_path / "data")(ORDERS) as life:
        life.publish("orders", {"id": 1, "pad": "needle"})
        backed_up(life, tmp_path / "b")
    assert verify(tmp_path / "data").exit_code == verify(tmp_path / "b").exit_code == 0
    for file in (tmp_path / "data" / "journal" / "data.mdb", tmp_path / "b" / "log.blocks"):
        file.write_bytes(file.read_bytes().replace(b"needle", b"needlE"))
    result = verify(tmp_path / "data")
    assert result.exit_code == 1
    assert f"{tmp_path / 'data' / 'journal'}: " in result.stdout
    assert "sow.store.repair" in result.stdout
    result = verify(tmp_path / "b", "--json")
    damaged = [one for one in json.loads(result.stdout)["files"] if one["problem"]]
    assert (result.exit_code, len(damaged)) == (1, 1)
    assert damaged[0]["problem"].endswith("take another backup")


def test_damage_that_a_server_finds_in_its_own_files_is_named_and_is_exit_code_1(tmp_path):
    running = Running(configuration(TOPIC), tmp_path / "data")
    try:
        running.publish("orders", {"id": 1, "pad": "needle"})
        assert verify("--url", running.url).exit_code == 0
        # In place: the server has the file open.
        with (tmp_path / "data" / "journal" / "data.mdb").open("r+b") as file:
            file.seek(file.read().index(b"needle"))
            file.write(b"needlE")
        result = verify("--url", running.url)
        assert result.exit_code == 1
        assert "sow.store.repair" in result.stdout
        assert running.records("orders") == [{"id": 1, "pad": "needle"}], "memory is whole"
    finally:
        running.close()


def test_what_is_neither_is_a_sentence(tmp_path):
    result = verify(tmp_path)
    assert (result.exit_code, "is no data directory, nor a backup" in result.stderr) == (1, True)


@pytest.fixture
def requested(monkeypatch):
    """The arguments of the repair, which then fails."""
    found = []

    def repair_file(arguments):
        found.append(arguments)
        return 1

    monkeypatch.setattr(module, "repair_file", repair_file)
    return found


def test_what_is_requested_is_handed_on_and_so_is_how_it_went(requested, tmp_path):
    result = CliRunner().invoke(main, ["repair", str(tmp_path), "orders.sow", "--after", "17"])
    assert requested == [[str(tmp_path), "orders.sow", "--after", "17"]]
    assert result.exit_code == 1


@pytest.mark.parametrize("arguments", [("nowhere", "x"), (".",), (".", "x", "--after", "-1")])
def test_what_makes_no_sense_is_wrong_usage_and_touches_nothing(requested, arguments):
    assert CliRunner().invoke(main, ["repair", *arguments]).exit_code == 2
    assert requested == []


def test_a_directory_without_data_is_a_sentence(tmp_path):
    result = CliRunner().invoke(main, ["repair", str(tmp_path), "orders.sow"])
    assert result.exit_code == 1
    assert "Traceback" not in result.output


STATUS = {
    "engine": "nats", "role": "primary", "node": "a", "address": "http://a:1", "leader": "a",
    "leader_address": "http://a:1", "term": 3, "position": 17, "lease_ms": 1000, "silent_ms": 2500,
    "stale": True, "void": 0, "checkpoint": None,
    "nodes": [
        {"url": "http://a:1", "role": "primary", "bookmark": "12", "state_hash": "ab", "lag_ms": 0,
         "checkpoint": {"bookmark": "10", "position": 15}},
        {"url": "http://b:1", "role": "follower", "bookmark": None, "state_hash": None,
         "lag_ms": None, "checkpoint": None},
    ],
}  # fmt: skip


class Answers:
    """A client whose server answers so, and notes what it is sent."""

    url = "http://a:1"

    def __init__(self, found):
        self.http, self._found, self.sent = self, found, []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def json(self, method, path, given=None, **_):
        self.sent.append((method, path, given))
        return self._found


@pytest.fixture
def answers(monkeypatch):
    def answer(found):
        client = Answers(found)
        monkeypatch.setattr(module, "connected", lambda: client)
        monkeypatch.setattr("sow.cli.connecting.connected", lambda: client)
        return client

    return answer


def test_a_server_with_a_log_of_its_own_says_so(sow, server):
    assert "log of its own" in sow.ok("log", "status")
    assert json.loads(sow.ok("log", "status", "--json"))["engine"] == "local"
    for words in (("step-down",), ("verify",), ("trim", "--before", "4")):
        assert "has a log of its own" in sow("log", *words).stderr


def test_a_node_is_a_line_and_the_leader_is_named(sow, answers):
    answers(STATUS)
    head, first, second = sow.ok("log", "status").splitlines()[:3]
    assert head.split() == ["node", "role", "bookmark", "checkpoint", "lag", "state", "hash"]
    assert first.split()[:4] == ["http://a:1", "primary", "12", "10"]
    assert second.split() == ["http://b:1", "follower"]
    assert json.loads(sow.ok("log", "status", "--json")) == STATUS


def test_verifying_says_who_differs_and_fails_then(sow, answers):
    found = {"first": 1, "last": 17, "hash": "ab", "groups": 12, "void": 1, "equal": True}
    nodes = [{"url": f"http://{one}", "bookmark": "1", "state_hash": "x"} for one in "ab"]
    client = answers({**found, "nodes": [{**one, "same": True} for one in nodes]})
    assert "http://b: the same records" in sow.ok("log", "verify")
    assert client.sent == [("POST", "/v1/log/verify", None)]
    answers({**found, "equal": False, "nodes": [{**nodes[0], "same": False}]})
    assert sow("log", "verify").exit_code == 1


def test_a_terminal_asks_before_the_log_is_trimmed(server):
    words = ("log", "trim", "--before", "4", "--url", server.url)
    with Terminal(*words) as terminal:
        terminal.wait_for("trim the shared log before bookmark 4 at")
        terminal.type("n\n")
        code, text = terminal.end()
    assert code == 1
    assert "nothing was changed" in text
    with Terminal(*words, "--yes") as terminal:
        code, text = terminal.end()
    assert "has a log of its own" in text
