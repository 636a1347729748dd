"""A client that does not read is bounded and told why; everybody else goes on."""

import json

import pytest

from sow.streaming.outbox.overflow import BURST_FACTOR
from tests.edge.serving import WAIT_S, Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS

BOUND = 500_000
ROUND_BYTES = 200_000
SESSIONS = f"<Sessions><QueueMaxBytes>{BOUND}</QueueMaxBytes></Sessions>"
BLOB = "x" * 10_000
ROUNDS_MAX = 400


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    config = configuration(TOPICS, MESSAGE_TYPES + SESSIONS)
    server = Running(config, tmp_path_factory.mktemp("data"))
    yield server
    server.close()


@pytest.fixture
def patience(monkeypatch):
    """Who was given up has the time that a busy machine needs to read why."""
    monkeypatch.setattr("sow.server.net.session_writer.GRACE_S", WAIT_S)


def handshake(raw, server):
    host, port = server.address
    raw.sendall(
        f"GET /v1/ws HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert raw.recv(4096).startswith(b"HTTP/1.1 101")


def masked(text):
    """A client's WebSocket text frame, masked with zeros."""
    payload = text.encode()
    return b"\x81" + bytes([0x80 | len(payload)]) + bytes(4) + payload


def sessions(server):
    return {session["client"]: session for session in server.get("/v1/sessions").json}


def fill(server, ended, topic="loud"):
    """Publish until the slow session has been given up; its queue is never far over the bound."""
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "quick"})
        ws.ask({"c": "subscribe", "t": topic})
        for n in range(ROUNDS_MAX):
            server.publish(topic, *({"id": i, "n": n, "blob": BLOB} for i in range(10)))
            assert all(line["d"]["n"] == n for line in ws.settled())
            slow = next(
                (s for s in server.get("/v1/sessions").json if s["client"] != "quick"), None
            )
            assert slow is None or slow["queue_bytes"] <= BURST_FACTOR * BOUND + ROUND_BYTES
            if ended(slow):
                return slow
    raise AssertionError("the slow client was never given up")


def test_a_slow_websocket_client_is_closed_with_a_reason_and_others_go_on(server, caplog, patience):
    with server.connection(receive_bytes=65_536) as raw:
        handshake(raw, server)
        raw.sendall(masked('{"c":"subscribe","t":"loud"}'))
        slow = fill(server, lambda slow: slow is None or slow["reason"])
        assert slow is None or "slow client" in slow["reason"]
        left = b"".join(iter(lambda: raw.recv(65536), b""))
    last_line = left[left.rindex(b'{"c":"close"') :]
    assert json.loads(last_line[: last_line.index(b"}") + 1])["reason"].startswith("slow client")
    (said,) = [line for line in caplog.messages if " is closed: slow client" in line]
    assert said.endswith(" bytes waited"), "an operator reads of it in the log"


def test_a_slow_stream_is_closed_with_a_reason_and_others_go_on(server, patience):
    with server.connection(receive_bytes=65_536) as raw:
        raw.sendall(b"GET /v1/topics/loud/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        fill(server, lambda slow: slow is None or slow["reason"])
        left = b""
        while b"event: close" not in left:
            left = left[-100:] + raw.recv(65536)
    assert b"event: close" in left


def test_a_client_that_was_given_up_and_never_reads_is_cut_off(server, monkeypatch):
    monkeypatch.setattr("sow.server.net.session_writer.GRACE_S", 0.1)
    with server.connection(receive_bytes=65_536) as raw:
        raw.sendall(b"GET /v1/topics/loud/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        assert fill(server, lambda slow: slow is None) is None


def test_a_slow_client_is_conflated_and_ends_with_the_newest_state(server):
    with server.connection(receive_bytes=65_536) as raw:
        handshake(raw, server)
        raw.sendall(masked('{"c":"logon","client":"slow"}'))
        raw.sendall(masked('{"c":"subscribe","t":"orders"}'))
        slow = fill(server, lambda slow: slow["conflated_messages"] > 2000, topic="orders")
        assert slow["reason"] is None
        assert slow["queue_bytes"] <= BOUND + ROUND_BYTES
        assert slow["lag_ms"] > 0
        (newest,) = {record["n"] for record in server.records("orders")}
        left, has_newest, was_sent = b"", False, False
        while not (has_newest and was_sent):
            left = left[-200_000:] + raw.recv(65536)
            has_newest |= left.count(b'"n": %d,' % newest) >= 10
            was_sent |= b'"c":"heartbeat","conflated":' in left
