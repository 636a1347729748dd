"""Rights that shrink by a reload while lines wait for a real WebSocket that does not read, or for a
client that has gone."""

import json

import pytest

from tests.edge.secured import ADMIN, ANN, ROLES, Secured, secured
from tests.edge.serving import records
from tests.edge.test_slow_clients import masked

WITHOUT_A = ROLES.replace(
    "<Allow><Topic>orders|orderz.*|desk/mine|public-.*</Topic><Read/>",
    "<Allow><Topic>orders</Topic><Read/><Filter>/desk = 'b'</Filter><Select>-/note</Select></Allow>"
    "<Allow><Topic>public-.*</Topic><Read/>",
)
WITHOUT_ORDERS = ROLES.replace("orders|orderz.*|", "")
BLOB = "x" * 100_000


class Withdrawing(Secured):
    """A server whose roles change."""

    def change_roles(self, roles):
        self.next = secured(self.place, roles)
        answer = self.reload()
        assert answer.status == 200, answer.body

    def tell(self, *documents):
        body = json.dumps(documents).encode()
        assert self.ask("POST", records("orders"), ADMIN, body).status == 200

    def waiting(self):
        sessions = self.ask("GET", "/v1/sessions", ADMIN).json
        return max(session["queue_messages"] for session in sessions)


@pytest.fixture
def server(tmp_path):
    server = Withdrawing(tmp_path)
    yield server
    server.close()
    assert server.errors == []


def order(number, desk):
    return {"id": f"order {number}", "desk": desk, "note": "for the desk alone"}


class Reader:
    """A bare WebSocket that reads when it is told to."""

    def __init__(self, server, raw):
        self.raw, self.data = raw, b""
        host, port = server.address
        raw.sendall(
            f"GET /v1/ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
            f"Authorization: {ANN['Authorization']}\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")

    def say(self, **command):
        self.raw.sendall(masked(json.dumps(command)))

    def until(self, end):
        """All lines up to the one that holds these bytes."""
        lines = []
        while not (lines and end in json.dumps(lines[-1])):
            lines += self._frame()
        return lines

    def _frame(self):
        head = self._take(2)
        size = head[1]
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return [json.loads(line) for line in self._take(size).split(b"\n")]

    def _take(self, size):
        while len(self.data) < size:
            self.data += self.raw.recv(1 << 20)
        found, self.data = self.data[:size], self.data[size:]
        return found


def stall(server):
    """Publish until the socket of the one who reads nothing takes no more."""
    waiting = [0]
    while len(waiting) < 6 or waiting[-1] - waiting[-6] < 5:
        server.tell({"id": "blob", "desk": "b", "blob": BLOB})
        waiting.append(server.waiting())


def test_what_waits_for_a_socket_that_does_not_read_is_checked_again(server):
    server.tell(order(0, "a"))
    with server.connection(receive_bytes=65_536) as raw:
        reader = Reader(server, raw)
        reader.say(c="sow_and_subscribe", t="orders", opts="oof", cid="1")
        told = reader.until('"group_end"')
        assert any(line.get("d") == order(0, "a") for line in told)
        stall(server)
        server.tell(order(0, "a") | {"v": 1}, order(1, "a"), order(2, "b"))
        server.change_roles(WITHOUT_A)
        server.tell({"id": "end", "desk": "b"})
        lines = [line for line in reader.until('"end"') if line.get("t") == "orders"]
    assert "order 1" not in json.dumps(lines), "it was never sent, and may not be seen"
    oofs = {line["d"]["id"]: line for line in lines if line["c"] == "oof"}
    assert oofs.keys() == {1, 2, "order 0"}
    assert {line["reason"] for line in oofs.values()} == {"entitlement"}
    assert oofs["order 0"]["d"] == {"id": "order 0", "desk": "a"}, "not as he was told it"
    told = {line["d"]["id"]: line["d"] for line in lines if line["c"] == "p"}
    assert told.keys() == {"blob", "order 2", "end"}
    assert told["order 2"] == {"id": "order 2", "desk": "b"}, "a field that may not be seen"


@pytest.mark.parametrize("has_seen_all", [True, False])
def test_a_session_that_lost_its_topic_while_it_was_away_is_sent_so(server, has_seen_all):
    with server.socket(headers=ANN) as ws:
        name = ws.ask({"c": "logon"})[-1]["session"]
        subscription = ws.ask({"c": "subscribe", "t": "orders"})[-1]["s"]
        server.tell(order(1, "a"))
        seen = 1 + len(ws.until(c="p"))
    server.tell(order(2, "a"))
    server.change_roles(WITHOUT_ORDERS)
    with server.socket(headers=ANN) as again:
        seen = seen if has_seen_all else 1
        ack = again.ask({"c": "logon", "session": name, "seen": seen})[-1]
        if has_seen_all:
            assert ack["resumed"] is True
            (line,) = again.settled()
            assert (line["c"], line["s"], line["reason"]) == (
                "unsubscribed", subscription, "AUTHORIZATION",
            )  # fmt: skip
        else:
            assert (ack["resumed"], ack["reason"]) == (False, "entitlement")
            assert "order" not in json.dumps(again.settled())
