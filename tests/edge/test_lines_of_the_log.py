"""What an operator reads of a server: one line for each thing worth knowing, as `<ServerLog>` asks.

Lines are written by the server's own log, from its start to its end; each test reads what it said.
"""

import json
import logging
import re

import pytest

from sow.core.definitions import LogSettings
from sow.server.http import server_log
from tests.edge.serving import Running, configuration

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
MORE = "<ServerLog><Format>json</Format><Access>{}</Access></ServerLog>"
COPY = """<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic>"""


class Read:
    """A server and its log. `files` are the configurations that it reads, one with each reload."""

    def __init__(self, directory, *files):
        self.lines, self._running = [], None
        self._files = list(files)
        self._handler = server_log.begin(self.lines.append, self._settings)
        first = self._files.pop(0)
        self._running = Running(first, directory, reread=lambda: self._files.pop(0))

    def _settings(self):
        # The same until there is a server as `sow serve` has it: the first file's.
        if self._running is None:
            return LogSettings(format="json", access=True)
        return self._running.server.configuration.server_log

    def __getattr__(self, name):
        return getattr(self._running, name)

    def said(self, part):
        """The lines in JSON with this in their message."""
        lines = [json.loads(line) for line in self.lines if line.startswith("{")]
        return [line for line in lines if part in line["message"]]

    def end(self):
        self._running.close()
        server_log.end(self._handler)


@pytest.fixture
def reading(tmp_path):
    """Makes a server that reads these files; what has been made is ended after the test."""
    root, own = logging.getLogger(), logging.getLogger("sow")
    levels = root.level, own.level
    made = []

    def read(*files):
        made.append(Read(tmp_path / "data", *files))
        return made[-1]

    yield read
    for one in made:
        one.end()
    root.setLevel(levels[0])
    own.setLevel(levels[1])


def test_start_logon_close_with_its_reason_and_stop_are_one_line_each(reading):
    server = reading(configuration(ORDERS, MORE.format("false")))
    (line,) = server.said("started at http://127.0.0.1:")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert (line["level"], line["component"]) == ("info", "app")
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "desk"})
        (line,) = server.said("client 'desk' has logged on")
        assert line["level"] == "info"
        (session,) = server.get("/v1/sessions").json
        server.request("DELETE", f"/v1/sessions/{session['id']}")
        ws.until(c="close")
        (line,) = server.said("client 'desk' is closed: closed by an operator")
        assert line["level"] == "warning"
    assert server.said("GET /v1/sessions") == [], "nobody asked for the access log"
    server.stop()
    assert len(server.said("stopping")) == len(server.said("stopped: everything is stored")) == 1
    server.start()


def test_a_reload_is_one_line_whether_it_changes_something_or_not(reading):
    first = configuration(ORDERS, MORE.format("false"))
    server = reading(first, configuration(ORDERS + COPY, MORE.format("false")))
    assert server.request("POST", "/v1/config/reload").status == 200
    (line,) = server.said("reloaded: conflated topic orders-C added")
    assert (line["level"], line["component"]) == ("info", "app")


def test_a_step_that_keeps_everybody_waiting_is_a_line(reading, monkeypatch):
    server = reading(configuration(ORDERS, MORE.format("false")))
    monkeypatch.setattr("sow.server.loop.scheduler.LONG_S", 0.0)
    server.publish("orders", {"id": 1})
    lines = server.said(" kept everybody waiting for ")
    assert lines
    assert {line["level"] for line in lines} == {"warning"}


def test_the_access_log_is_a_line_for_each_request_until_a_reload_ends_it(reading):
    server = reading(
        configuration(ORDERS, MORE.format("true")), configuration(ORDERS, MORE.format("false"))
    )
    server.get("/v1/topics/orders/records?filter=/secret%20=%201")
    while not server.said("GET /v1/topics/orders/records 200"):
        server.get("/healthz")
    (line,) = server.said("GET /v1/topics/orders/records 200")
    assert "secret" not in json.dumps(line)
    assert server.request("POST", "/v1/config/reload").status == 200
    before = len(server.said("GET /v1/topics"))
    server.get("/v1/topics")
    assert len(server.said("GET /v1/topics")) == before


def test_what_clients_do_again_and_again_does_not_flood_it(reading):
    server = reading(configuration(ORDERS, MORE.format("false")))
    times = 5 * server_log.LINES_PER_SECOND_MAX
    with server.socket() as ws:
        for _ in range(times):
            ws.ask({"c": "logon", "client": "again"})
    seconds = {line["time"].split(".")[0] for line in map(json.loads, server.lines)}
    said = server.said("has logged on")
    assert 0 < len(said) <= server_log.LINES_PER_SECOND_MAX * len(seconds)
