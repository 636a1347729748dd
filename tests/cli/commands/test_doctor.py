"""`sow doctor`: a machine and a server, and what a person sees of both."""

import json
import logging
import os
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.doctor import (
    DAY_S,
    answers_check,
    certificates_check,
    clock_check,
    connections_check,
    disk_check,
    files_check,
    fsync_check,
    groups_check,
    inner_loops_check,
    memory_check,
    nodes_check,
    readiness_check,
    retention_check,
    sessions_check,
    steps_check,
    topics_check,
)
from sow.cli.measuring import Percentiles
from sow.core.inner_loops import INNER_LOOPS
from tests.cases import all_cases
from tests.cli.terminal import Terminal
from tests.edge.certificates import certificates

CONFIG = """<SOWConfig><Name>test</Name><SOW><Topic><Name>orders</Name>
<MessageType>json</MessageType><Key>/id</Key></Topic></SOW></SOWConfig>"""


def doctor(*words):
    result = CliRunner().invoke(main, ["doctor", *words, "--json"])
    found = {}
    for one in json.loads(result.stdout):
        found.setdefault(one["subject"], []).append((one["level"], one["found"]))
    return result.exit_code, found


def folder(tmp_path, text=CONFIG, mode=0o700):
    (tmp_path / "config.xml").write_text(text)
    (tmp_path / "data").mkdir(mode=mode)
    return str(tmp_path / "config.xml")


def test_a_machine_is_looked_at_and_left_as_it_is(tmp_path):
    code, found = doctor(folder(tmp_path))
    assert code == (1 if found["disk"][0][0] == "error" else 0)
    assert found.keys() == {"config", "disk", "retention", "clock", "fsync", "files", "loops"}
    assert found["config"] == [("ok", f"{tmp_path / 'config.xml'}: 1 topic")]
    assert found["clock"][0][0] == "ok"
    assert list((tmp_path / "data").iterdir()) == []


def test_the_findings_of_a_configuration_are_its_findings(tmp_path):
    config = folder(tmp_path, CONFIG.replace("Key>", "Kye>"))
    code, found = doctor(config)
    assert code == 1
    assert ("error", f"{config}:2: Kye: is not an element of Topic") in found["config"]
    assert "disk" in found, "the machine is looked at all the same"


def test_a_directory_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path):
    (tmp_path / "config.xml").write_text(CONFIG)
    _, found = doctor(str(tmp_path / "config.xml"), "--data-dir", str(tmp_path / "a" / "b"))
    assert f"for {tmp_path / 'a' / 'b'}" in found["disk"][0][1]
    assert [path.name for path in tmp_path.iterdir()] == ["config.xml"]


def test_who_may_look_into_the_directory_and_a_clock_set_back_are_said(tmp_path):
    config = folder(tmp_path)
    (tmp_path / "data").chmod(0o755)
    written = tmp_path / "data" / "x"
    written.write_text("")
    os.utime(written, (time.time() + 7300, time.time() + 7300))
    _, found = doctor(config)
    assert found["directory"] == [("warning", f"other users can look into {tmp_path / 'data'}")]
    assert found["clock"] == [("warning", "2 h behind earlier writes")]


def test_a_server_is_looked_at(server, orders):
    orders({"id": 1})
    _, found = doctor("--server", "--url", server.url)
    assert found.keys() == {
        "ready", "log", "answers", "topics", "sessions", "memory", "groups", "queues",
        "connections", "clock", "steps", "loops", "nodes",
    }  # fmt: skip
    assert found["loops"] == [("ok", f"inner loops in {INNER_LOOPS.language}")]
    assert (found["ready"], found["sessions"]) == ([("ok", "ok")], [("ok", "0, and all keep up")])


def test_a_server_that_takes_no_messages_is_an_error_with_its_reason(server, monkeypatch):
    status = server.server._status
    monkeypatch.setattr(status, "_refusal", lambda: "replaying: orders, 3 of 9 records")
    code, found = doctor("--server", "--url", server.url)
    assert (code, found["ready"]) == (1, [("error", "replaying: orders, 3 of 9 records")])
    assert found.keys() == {"ready", "log", "answers"}


def test_the_last_error_of_the_log_is_sent(server):
    logging.getLogger("sow.journal").error("no room for orders")
    try:
        code, found = doctor("--server", "--url", server.url)
        ((level, told),) = found["log"]
        assert (code, level, found["ready"]) == (0, "warning", [("ok", "ok")])
        assert told.endswith("Z: journal: no room for orders")
    finally:
        server.server._last_error._when = ""
        server.errors.clear()


def test_a_server_that_is_not_there_is_a_sentence():
    result = CliRunner().invoke(main, ["doctor", "--server", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: no server answers at http://127.0.0.1:1")


def test_an_address_alone_means_the_server_there(tmp_path, monkeypatch):
    result = CliRunner().invoke(main, ["doctor", "--url", "http://127.0.0.1:1"])
    assert result.stderr.startswith("sow: no server answers at http://127.0.0.1:1")
    # What the environment says is for other commands, too.
    monkeypatch.setenv("SOW_URL", "http://127.0.0.1:1")
    assert "clock" in doctor(folder(tmp_path))[1]


def test_what_a_person_sees(tmp_path):
    config = folder(tmp_path)
    (tmp_path / "data").chmod(0o755)
    for columns, colour in ((100, True), (44, False)):
        environment = {} if colour else {"NO_COLOR": "1"}
        with Terminal("doctor", config, columns=columns, **environment) as terminal:
            _, text = terminal.end()
        assert max(map(len, text.splitlines())) <= columns
        assert "directory warning other users can look" in text
        assert "chmod 700" in text
        assert "warning" in text.splitlines()[-1]
        assert terminal.has_colour is colour


# Each finding, provoked: what it is called, and what to do about it.

THERE = import_module("sow.cli.commands.doctor")
GIB = 1024**3


def complaints(*words):
    """What is not well, and what to do, by its subject."""
    result = CliRunner().invoke(main, ["doctor", *words, "--json"])
    bad = [one for one in json.loads(result.stdout) if one["level"] != "ok"]
    assert all(one["instead"] for one in bad), "of each it is said what to do"
    return {one["subject"]: one["instead"] for one in bad}


def spread(median_s):
    return Percentiles(20, median_s, median_s, median_s)


MACHINE = [
    ("disk", "space", lambda _: (GIB, 2 * GIB), "free some space: publishes are refused until"),
    ("fsync", "_flushed", lambda _: spread(0.1), "put the data directory on a faster disk"),
    ("fsync", "_flushed", lambda _: spread(1e-6), "use a directory on a disk"),
]


@pytest.mark.parametrize(("subject", "name", "made", "instead"), MACHINE)
def test_what_is_wrong_with_a_machine(tmp_path, monkeypatch, subject, name, made, instead):
    monkeypatch.setattr(THERE, name, made)
    assert complaints(folder(tmp_path))[subject].startswith(instead)


def test_a_directory_that_cannot_be_written(tmp_path, monkeypatch):
    def refused(_directory):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(THERE, "_flushed", refused)
    assert complaints(folder(tmp_path))["fsync"] == "run this as the user who runs the server"


@pytest.mark.parametrize(
    ("subject", "element", "instead"),
    [
        ("retention", "<TransactionLog><RetentionSize>900000GB</RetentionSize></TransactionLog>",
         "set a smaller RetentionSize, or free some space"),
        ("files", "<Limits><Connections>90000000</Connections></Limits>", "raise ulimit -Hn to"),
    ],
)  # fmt: skip
def test_what_a_configuration_asks_too_much_of(tmp_path, monkeypatch, subject, element, instead):
    monkeypatch.setattr(THERE.resource, "getrlimit", lambda _: (1024, 4096))
    config = folder(tmp_path, CONFIG.replace("<SOW>", f"{element}<SOW>"))
    assert complaints(config)[subject].startswith(instead)


def test_certificates_are_looked_at_before_a_server_has_them(tmp_path):
    soon = datetime.now(UTC) + timedelta(days=5, hours=1)
    files = certificates(tmp_path, not_after=soon)
    config = CONFIG.replace("<SOW>", f"<Security>{files.element}</Security><SOW>")
    assert complaints(folder(tmp_path, config))["certificate"] == "renew it, then: sow reload"


SESSION = {"id": "s1", "client": "grid", "lag_ms": 0.0, "queue_messages": 9}
FIGURES = {
    "sow_memory_bytes": {"": 1.0}, "sow_memory_limit_bytes": {"": 100.0},
    "sow_group_memory_bytes": {"": 1.0}, "sow_group_memory_limit_bytes": {"": 100.0},
    "sow_queue_memory_bytes": {"": 1.0}, "sow_queue_memory_limit_bytes": {"": 100.0},
    "sow_connections": {"": 1.0}, "sow_connections_max": {"": 100.0},
    "sow_clock_ahead_seconds": {"": 0.0}, "sow_step_longest_seconds": {"a query": 0.01},
}  # fmt: skip
FAILED = {
    "sow_action_runs_total": {"fine": 9.0, "bad": 0.0},
    "sow_action_failures_total": {"fine": 0.0, "bad": 1.0},
}


class Sent:
    """A server that says what a test wants."""

    def __init__(self, ready=200, sessions=(), stopped=None):
        self.http, self.url = self, "http://told"
        self._ready, self._sessions, self._stopped = ready, [*sessions], stopped

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    @asynccontextmanager
    async def request(self, *_requested, **_more):
        pieces = [b"the disk is full", b""]

        async def readany():
            return pieces.pop(0)

        yield SimpleNamespace(status=self._ready, content=SimpleNamespace(readany=readany))

    async def json(self, _method, path, **_more):
        node = {"url": self.url, "bookmark": "7", "state_hash": "0" * 16, "pid": 7}
        return {"nodes": [node]} if path == "/v1/status" else self._sessions

    async def topics(self):
        return [{"name": "orders", "stopped": self._stopped}]


@pytest.mark.parametrize(
    ("subject", "told", "figures", "instead"),
    [
        ("ready", {"ready": 503}, {}, "wait if it is replaying; else follow the message"),
        ("topics", {"stopped": "too many groups"}, {}, "fix the cause, then: sow reload"),
        ("sessions", {"sessions": [SESSION | {"lag_ms": 5000.0}]}, {}, "subscribe with conflation"),
        ("memory", {}, {"sow_memory_bytes": {"": 95.0}}, "raise Limits/Memory, or delete"),
        ("groups", {}, {"sow_group_memory_bytes": {"": 95.0}}, "raise Limits/GroupMemory"),
        ("queues", {}, {"sow_queue_memory_bytes": {"": 95.0}}, "raise Limits/QueueMemory, or find"),
        ("connections", {}, {"sow_connections": {"": 95.0}}, "raise Limits/Connections"),
        ("clock", {}, {"sow_clock_ahead_seconds": {"": 7.0}}, "synchronize it with a time server"),
        ("steps", {}, {"sow_step_longest_seconds": {"a query": 2.0}}, "see the log for how often"),
        ("actions", {}, FAILED, "see why: sow query /sow/audit --filter"),
        ("certificate", {}, {"sow_certificate_expiry_seconds": {"c.pem": 9.0}}, "renew it, then"),
        ("metrics", {}, None, "use an administrator's token: --token TOKEN"),
    ],
)
def test_what_is_wrong_with_a_server(monkeypatch, subject, told, figures, instead):
    async def scraped(_client):
        return None if figures is None else FIGURES | figures

    async def answered(_client, _count):
        return spread(0.001)

    monkeypatch.setattr(THERE, "connected", lambda *_: Sent(**told))
    monkeypatch.setattr(THERE, "scraped", scraped)
    monkeypatch.setattr(THERE, "answered", answered)
    found = complaints("--server")
    assert found.keys() == {subject}
    assert found[subject].startswith(instead)


GIB = 1024**3


def flushes(median_s):
    return Percentiles(20, median_s, median_s, 2 * median_s)


def node(url, bookmark, state_hash="same"):
    pid = None if state_hash is None else 9
    return {"url": url, "bookmark": bookmark, "state_hash": state_hash, "pid": pid}


def session(lag_ms):
    return {"lag_ms": lag_ms, "client": "grid", "id": "7", "queue_messages": 9000}


def certificate(days):
    now_s = 1_800_000_000.0
    (found,) = certificates_check({"c.pem": now_s + days * DAY_S}, now_s)
    return found


@all_cases(
    ("found", "level", "said"),
    [
        (
            disk_check(50 * GIB, 100 * GIB, GIB, "data"),
            "ok",
            "50 GiB of 100 GiB free for data",
        ),
        (disk_check(5 * GIB, 100 * GIB, GIB, "data"), "warning", "free some space"),
        (disk_check(GIB, 100 * GIB, GIB, "data"), "error", "publishes are refused"),
        (
            retention_check(4 * GIB, GIB, 9 * GIB),
            "ok",
            "keeps up to 4.0 GiB, and takes 1.0 GiB",
        ),
        (retention_check(4 * GIB, GIB, GIB), "warning", "set a smaller RetentionSize"),
        (fsync_check(flushes(0.002)), "ok", "median 2 ms"),
        (fsync_check(flushes(0.03)), "warning", "a faster disk"),
        (fsync_check(flushes(0.000001)), "warning", "this one is in memory"),
        (files_check(None, 20_000), "ok", "unlimited files"),
        (files_check(65536, 20_000), "ok", "65,536 files for 20,000 connections"),
        (files_check(1024, 20_000), "warning", "raise ulimit -Hn to 20,512"),
        (inner_loops_check("C"), "ok", "inner loops in C"),
        (inner_loops_check("Python"), "ok", "with a C compiler, install SOW again"),
        (clock_check(0.5), "ok", "not behind"),
        (clock_check(7200), "warning", "2 h behind earlier writes"),
        (memory_check(GIB, None), "ok", "set Limits/Memory"),
        (memory_check(GIB, float("inf")), "ok", "without a limit"),
        (memory_check(GIB, 4 * GIB), "ok", "1.0 GiB of 4.0 GiB"),
        (memory_check(3.9 * GIB, 4 * GIB), "warning", "raise Limits/Memory"),
        (memory_check(4 * GIB, 4 * GIB), "error", "raise Limits/Memory"),
        (groups_check(0, GIB), "ok", "take 0 B of 1.0 GiB"),
        (groups_check(0.95 * GIB, GIB), "warning", "raise Limits/GroupMemory"),
        (connections_check(10, 100), "ok", "10 of 100"),
        (connections_check(95, 100), "warning", "raise Limits/Connections"),
        (sessions_check([]), "ok", "0, and all keep up"),
        (sessions_check([session(5), session(2500)]), "warning", "grid is 2.5 s behind"),
        (nodes_check([node("a", "7")]), "ok", "1 of 1 heard, and the same state"),
        (nodes_check([node("a", "7"), node("b", "7")]), "ok", "2 of 2 heard"),
        (nodes_check([node("a", "7"), node("b", "8")]), "ok", "ask when fewer changes"),
        (
            nodes_check([node("a", "7"), node("b", None, None)]),
            "warning",
            "1 of 2 heard, not b; start them",
        ),
        (
            nodes_check([node("a", "7"), node("b", "7", "other")]),
            "error",
            "nodes differ at bookmark 7: a has same; b has other",
        ),
        (
            nodes_check([node("a", "7"), {**node("e", "7", None), "pid": 9}]),
            "ok",
            "2 of 2 heard, and the same state",
        ),
        (steps_check({}), "ok", "no long step"),
        (steps_check({"a query": 0.2}), "ok", "took 200 ms: a query"),
        (steps_check({"a query": 0.2, "a stream": 0.9}), "warning", "900 ms: a stream"),
        (certificate(31), "ok", "c.pem ends in 31 days"),
        (certificate(29.5), "warning", "c.pem ends in 29 days; renew it, then: sow reload"),
        (certificate(-2), "error", "c.pem has ended 2 d ago"),
        (topics_check([{"name": "a", "stopped": None}]), "ok", "none has stopped"),
        (topics_check([{"name": "a", "stopped": "it failed"}]), "error", "a: it failed"),
        (readiness_check(200, "ok")[0], "ok", "ok"),
        (readiness_check(200, "ok; 1 views")[1], "ok", "no error since the start"),
        (readiness_check(503, "replaying: 3 of 9")[0], "error", "replaying: 3 of 9"),
        (readiness_check(200, "ok; so; last error T: a; b")[0], "ok", "ok; so"),
        (
            readiness_check(503, "full; last error T: a; b")[1],
            "warning",
            "last error T: a; b",
        ),
        (answers_check(flushes(0.001)), "ok", "median 1 ms"),
    ],
)
def test_what_is_found_is_said_with_what_to_do(found, level, said):
    assert (found.level, said in f"{found.found}; {found.instead}") == (level, True), found
    assert bool(found.instead) or level == "ok", "what is not as it should be can be mended"
