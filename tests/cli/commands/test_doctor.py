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
from sow.cli.measuring import Percentiles
from sow.core.inner_loops import INNER_LOOPS
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


def test_an_address_alone_is_not_passed_over(tmp_path, monkeypatch):
    result = CliRunner().invoke(main, ["doctor", "--url", "http://127.0.0.1:1"])
    assert (result.exit_code, "add --server" in result.stderr) == (2, True)
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
        node = {"url": self.url, "bookmark": "7", "state_hash": "0" * 16}
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
