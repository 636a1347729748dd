"""`sow log`: what it writes, asks and refuses. What a node does: tests/server/api."""

import json

import pytest

from sow.cli.commands import shared_log
from tests.cli.terminal import Terminal

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
        monkeypatch.setattr(shared_log, "connected", lambda: client)
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
