"""Commands that were given the address of something else than SOW, or of another version of it:
each says so in a sentence, whatever it is answered, and does nothing to the terminal."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.client import http
from tests.cases import all_cases

HOSTILE = "evil\x1b]0;owned\x07\u202e\x9b31m"
FIELDS = (
    *("name", "kind", "records", "bytes", "message_type", "subscriptions", "updates", "keys"),
    *("client", "id", "reason", "connected", "lag_ms", "queue_messages", "queue_bytes", "why"),
    *("user", "address"),
    *("conflated", "conflated_messages", "dropped_messages", "connected_ms", "instead"),
)
ANSWERS = {
    "page": (200, "text/html", b"<!doctype html><title>hello</title>"),
    "object": (200, "application/json", b"{}"),
    "list": (200, "application/json", b"[]"),
    "objects": (200, "application/json", b"[{}]"),
    "texts": (200, "application/json", json.dumps([dict.fromkeys(FIELDS, "x")]).encode()),
    "numbers": (200, "application/json", json.dumps([dict.fromkeys(FIELDS, 1.5)]).encode()),
    "null": (200, "application/json", b"null"),
    "half": (200, "application/json", b'[{"name":'),
    "problem": (400, "application/problem+json", json.dumps({"detail": HOSTILE}).encode()),
    "empty": (204, "application/json", b""),
}
COMMANDS = [
    ("topics",),
    ("sessions",),
    ("sessions", "s1"),
    ("top", "--count", "1", "--interval", "0.1"),
    ("doctor", "--server"),
    ("why", "orders", "1"),
    ("why", "orders", "--query", "--filter", "/id = 1"),
    ("why", "--session", "s1"),
    ("ping", "--topic", "orders", "--count", "1"),
    ("bench", "--topic", "orders", "--seconds", "1"),
    ("query", "orders", "--explain"),
    ("query", "orders"),
    ("delete", "orders", "--keys", "1"),
    ("reload",),
    ("verify",),
]


class Elsewhere(BaseHTTPRequestHandler):
    """Answers every request with a given body."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answer
        status, kind, body = answer(self.path) if callable(answer) else answer
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) + self.server.missing_bytes))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.server.missing_bytes > 0

    do_POST = do_DELETE = do_PATCH = do_GET  # noqa: N815 (names that the library asks for)

    def log_message(self, *_given):
        """Nobody reads it."""


@pytest.fixture(scope="module")
def elsewhere():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    server.daemon_threads = True
    server.missing_bytes = 0
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@all_cases("answer", ANSWERS)
def test_what_is_no_server_of_ours_is_said_to_be_none(elsewhere, command, answer):
    elsewhere.answer = ANSWERS[answer]
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, [*command, "--url", url])
    # A command that finds an empty list has done its work.
    assert result.exit_code in (0, 1)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    said = (result.stdout + result.stderr).replace("\n", "")
    assert said.isprintable()
    if answer == "texts" and command[0] in ("topics", "sessions", "top"):
        assert "a value of a wrong type" in said or "does not speak SOW" in said
    if answer == "page":
        assert result.exit_code == 1
        assert "does not speak SOW" in said or "no SOW" in said


@pytest.mark.parametrize("command", [*COMMANDS, ("ping", "--count", "1")], ids=" ".join)
def test_an_answer_that_is_cut_short_is_said_to_be(elsewhere, monkeypatch, command):
    monkeypatch.setattr(elsewhere, "missing_bytes", 9)
    elsewhere.answer = ANSWERS["list"]
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, [*command, "--url", url])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "Traceback" not in result.stderr


def test_a_page_that_answers_is_no_server_to_be_measured(elsewhere):
    elsewhere.answer = ANSWERS["page"]
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, ["ping", "--count", "1", "--url", url])
    assert result.exit_code == 1
    assert f"{url} does not speak SOW: it answered something else to /healthz" in result.stderr


@pytest.mark.parametrize("command", [("topics",), ("ping",), ("top", "--count", "1"), ("verify",)])
def test_an_answer_without_an_end_has_one(elsewhere, monkeypatch, command):
    monkeypatch.setattr(http, "TAKEN_BYTES_MAX", 1 << 20)
    elsewhere.answer = (200, "application/json", b" " * (1 << 21))
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, [*command, "--url", url])
    assert result.exit_code == 1
    assert f"{url} does not speak SOW: it answered over 1 MiB" in result.stderr


@pytest.mark.parametrize("command", ["topics", "sessions"])
def test_json_for_programs_has_the_names_of_others_escaped(elsewhere, command):
    found = [{**dict.fromkeys(FIELDS, 1), "name": HOSTILE, "client": HOSTILE, "id": HOSTILE}]
    elsewhere.answer = (200, "application/json", json.dumps(found).encode())
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, [command, "--json", "--url", url])
    assert result.exit_code == 0
    assert result.stdout.rstrip("\n").isprintable()
    assert json.loads(result.stdout) == found


def older(path):
    """What a server answers that knows no parameters yet."""
    address, _, requested = path.partition("?")
    if requested:
        detail = f"no parameter {requested.partition('=')[0]!r}; this address takes none"
        return (400, "application/problem+json", json.dumps({"detail": detail}).encode())
    if address == "/metrics":
        return (200, "text/plain", b"")
    if address == "/v1/status":
        return (404, "application/problem+json", json.dumps({"detail": "nothing here"}).encode())
    found = [{**dict.fromkeys(FIELDS, 1), "name": "old", "kind": "topic", "message_type": "json"}]
    return (200, "application/json", json.dumps(found if address == "/v1/topics" else []).encode())


@pytest.mark.parametrize("command", [["topics"], ["topics", "--all"], ["top", "--count", "1"]])
def test_an_older_server_is_listed_without_what_it_does_not_know(elsewhere, command):
    elsewhere.answer = older
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, [*command, "--json", "--url", url])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "old" in result.stdout


def test_of_an_older_server_it_is_said_what_it_does_not_know_and_what_to_do(elsewhere):
    elsewhere.answer = older
    url = f"http://127.0.0.1:{elsewhere.server_port}"
    result = CliRunner().invoke(main, ["query", "old", "--filter", "/a = 1", "--url", url])
    assert result.exit_code == 1
    assert result.stderr == (
        "sow: no parameter 'filter'; this address takes none; if it is spelt correctly, the server "
        f"at {url} is of an older version than this client: update the server, or use a client of "
        "its version\n"
    )
