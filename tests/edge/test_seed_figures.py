"""The figures of docs/slow-clients.md, end to end over a real socket that does not read.

Large messages of a topic that is never conflated fill the socket, so that what follows has to
wait; topics that are conflated as they are queued then show what each setting leaves. The last one
is the worked example of a conflated delta.
"""

import itertools
import json

import pytest

from tests.edge.serving import Running, configuration
from tests.edge.test_slow_clients import handshake, masked

MERGE = "<Merge><Field>/v</Field><Operation>sum</Operation></Merge>"
ALWAYS = "<ConflationPolicy>always</ConflationPolicy>"
APPEND = "<Placement>append</Placement>"
FIGURES = {
    "none": ("<ConflationPolicy>off</ConflationPolicy>", ["A1", "B2", "C3", "A4", "C5"]),
    "replace": (ALWAYS, ["A4", "B2", "C5"]),
    "append": (ALWAYS + APPEND, ["B2", "A4", "C5"]),
    "merge-replace": (ALWAYS + MERGE, ["A5", "B2", "C8"]),
    "merge-append": (ALWAYS + APPEND + MERGE, ["B2", "A5", "C8"]),
}
MERGER = APPEND + "<Merger>tests.laws.mergers:both</Merger>"
NUMBERS = itertools.count(1)
BLOB = "x" * 100_000


def topic(name, more):
    return f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{more}</Topic>"


TOPICS = "".join(
    [topic(name, more) for name, (more, _) in FIGURES.items()]
    + [
        topic("merger", ALWAYS + MERGER),
        topic("strings", ALWAYS),
        topic("loud", "<ConflationPolicy>off</ConflationPolicy>"),
    ]
)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Running(configuration(TOPICS), tmp_path_factory.mktemp("data"))
    yield server
    server.close()


class Stalled:
    """A client that has subscribed and does not read until the end."""

    def __init__(self, server, raw, *commands):
        self.server = server
        self.raw = raw
        self.name = f"stalled {next(NUMBERS)}"
        handshake(raw, server)
        for command in ({"c": "logon", "client": self.name}, *commands):
            raw.sendall(masked(json.dumps(command)))
        raw.sendall(masked(json.dumps({"c": "subscribe", "t": "loud"})))
        waiting = [0]
        # Stalled is a queue that takes all of what is published and gives none of it away.
        while len(waiting) < 6 or waiting[-1] - waiting[-6] < 5:
            server.publish("loud", {"id": 1, "blob": BLOB})
            waiting.append(self._waiting())

    def _waiting(self):
        sessions = self.server.get("/v1/sessions").json
        return max(s["queue_messages"] for s in sessions if s["client"] == self.name)

    def rest(self, topic):
        """Every line of a topic, read now."""
        self.server.publish("loud", {"id": "end"})
        data = b""
        while b'"end"' not in data[-200:]:
            data += self.raw.recv(1 << 20)
        return [line for line in lines(data) if line.get("t") == topic]


def lines(data):
    """The lines of unmasked WebSocket frames."""
    while data:
        size, head = data[1], 2
        if size == 126:
            size, head = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, head = int.from_bytes(data[2:10], "big"), 10
        yield from map(json.loads, data[head : head + size].split(b"\n"))
        data = data[head + size :]


def left_of(server, name):
    with server.connection(receive_bytes=65_536) as raw:
        client = Stalled(server, raw, {"c": "subscribe", "t": name})
        for record, value in (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5)):
            server.publish(name, {"id": record, "v": value})
        return [f"{line['d']['id']}{line['d']['v']}" for line in client.rest(name)]


@pytest.mark.parametrize("name", ["none", "replace", "merge-append"])
def test_the_figures_of_simple_and_structural_conflation(server, name):
    assert left_of(server, name) == FIGURES[name][1]


def test_a_merger_of_ones_own_is_asked(server):
    """tests/laws/test_placement.py shows every answer in both placements."""
    assert left_of(server, "merger") == ["B2", "A5", "C8"]


@pytest.mark.parametrize(("rest", "is_delta"), [({"rest": BLOB[:100]}, True), ({}, False)])
def test_three_deltas_become_one_or_the_value_if_that_is_shorter(server, rest, is_delta):
    server.publish("strings", {"id": 1, "v": "a", **rest})
    with server.connection(receive_bytes=65_536) as raw:
        client = Stalled(server, raw, {"c": "sow_and_delta_subscribe", "t": "strings"})
        for value in ("ab", "ac", "acd"):
            server.publish("strings", {"id": 1, "v": value, **rest})
        *_, line = client.rest("strings")
    assert (line["d"], line.get("delta", False)) == ({"id": 1, "v": "acd"}, is_delta)


def test_a_conflated_delta_is_the_merge_of_the_deltas_of_its_window(server):
    server.publish("none", {"id": 99, "status": "open", "notes": "none", "qty": 10})
    with server.socket() as ws:
        ws.ask({"c": "sow_and_delta_subscribe", "t": "none", "opts": "conflation=300ms"})
        for changed in (
            {"status": "pending"},
            {"notes": "call back"},
            {"status": "open"},
            {"notes": "none"},
        ):
            ws.send({"c": "delta_publish", "t": "none", "d": {"id": 99, **changed}})
        line = ws.until(c="p")[-1]
    assert line["d"] == {"id": 99, "status": "open", "notes": "none"}
    assert line["delta"] is True
