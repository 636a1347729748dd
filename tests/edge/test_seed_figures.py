"""The figures of docs/slow-clients.md, end to end over a real socket that does not read.

Large messages of a topic that is never conflated fill the socket, so that what follows has to
wait; topics that are conflated as they are queued then show what each setting leaves.
tests/laws/test_placement.py has every setting.
"""

import itertools
import json

import pytest

from tests.edge.serving import configuration, served
from tests.edge.test_slow_clients import handshake, masked

OFF = "<ConflationPolicy>off</ConflationPolicy>"
ALWAYS = "<ConflationPolicy>always</ConflationPolicy>"
SUM = "<Merge><Field>/v</Field><Operation>sum</Operation></Merge>"
FIGURES = {
    "none": (OFF, ["A1", "B2", "C3", "A4", "C5"]),
    "replace": (ALWAYS, ["A4", "B2", "C5"]),
    "merge-append": (f"{ALWAYS}<Placement>append</Placement>{SUM}", ["B2", "A5", "C8"]),
}
NUMBERS = itertools.count(1)
BLOB = "x" * 100_000


def topic(name, more):
    return f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{more}</Topic>"


TOPICS = topic("loud", OFF) + "".join(topic(name, more) for name, (more, _) in FIGURES.items())
running = served(configuration(TOPICS), checks=False)


class Stalled:
    """A client that has subscribed and does not read until the end."""

    def __init__(self, server, raw, topic):
        self.server = server
        self.raw = raw
        self.name = f"stalled {next(NUMBERS)}"
        handshake(raw, server)
        raw.sendall(masked(json.dumps({"c": "logon", "client": self.name})))
        for followed in (topic, "loud"):
            raw.sendall(masked(json.dumps({"c": "subscribe", "t": followed})))
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
        client = Stalled(server, raw, name)
        for record, value in (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5)):
            server.publish(name, {"id": record, "v": value})
        return [f"{line['d']['id']}{line['d']['v']}" for line in client.rest(name)]


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_of_simple_and_structural_conflation(server, name):
    assert left_of(server, name) == FIGURES[name][1]
