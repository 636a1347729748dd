"""What clients may take of the server in all: connections, time, memory for what they send."""

import gzip
import json
import select
import socket

import pytest

from tests.edge.serving import WAIT_S, Running, configuration, stream
from tests.edge.test_nasty_clients import POST, UPGRADE
from tests.edge.topics import TOPICS

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOST = b"Host: localhost\r\n"


@pytest.fixture
def limited(tmp_path):
    """Starts servers with limits of their own."""
    servers = []

    def start(limits, more="", reread=""):
        topics = TOPICS.replace("bar", "nvfix")
        first, again = (
            configuration(topics, f"<Limits>{each}</Limits>{more}")
            for each in (limits, reread or limits)
        )
        servers.append(Running(first, tmp_path / str(len(servers)), reread=lambda: again))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
        assert server.errors == []


def used(server):
    return server.call(lambda: server.server._requests.budget.used)


def until_used(server, wanted):
    while not wanted(used(server)):
        server.get("/healthz")


# Memory for what is read.


def test_half_sent_bodies_hold_no_more_than_there_is_and_then_it_is_free_again(limited):
    server = limited("<RequestMemory>4MB</RequestMemory><FrameSize>1MB</FrameSize>"
                     "<MessageSize>1MB</MessageSize>")  # fmt: skip
    body = gzip.compress(b" " * 900_000)
    head = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    held = [socket.create_connection(server.address, timeout=WAIT_S) for _ in range(8)]
    for raw in held:
        raw.sendall(head + body[:-9])
    answers, waiting = [], set(held)
    while len(answers) < 4:
        ready = select.select(list(waiting), [], [], WAIT_S)[0]
        assert ready
        answers += [raw.recv(4096) for raw in ready]
        waiting -= set(ready)
    assert all(answer.startswith(b"HTTP/1.1 503") for answer in answers)
    assert all(b"Retry-After: 1" in answer and b"Limits/RequestMemory" in answer
               for answer in answers)  # fmt: skip
    assert 0 < used(server) <= 4 << 20
    for raw in held:
        raw.close()
    until_used(server, lambda amount: amount == 0)
    assert server.publish("orders", {"id": 1}).status == 200
    assert used(server) == 0


def test_a_frame_of_exactly_its_limit_is_carried_out_and_one_byte_more_is_not(limited):
    server = limited("<FrameSize>100KB</FrameSize><MessageSize>100KB</MessageSize>")
    line = b'{"c":"heartbeat"}'
    with server.socket() as ws:
        ws.send_frame(line + b" " * (102_400 - len(line)), binary=True)
        assert ws.line()["c"] == "heartbeat"
        ws.send_frame(line + b" " * (102_401 - len(line)), binary=True)
        with pytest.raises(EOFError):
            ws.line()


def test_half_sent_frames_wait_for_each_other_and_all_come_to_their_end(limited):
    server = limited("<RequestMemory>2MB</RequestMemory><FrameSize>500KB</FrameSize>"
                     "<MessageSize>500KB</MessageSize>")  # fmt: skip
    line = json.dumps({"c": "publish", "t": "orders", "a": "persisted", "cid": "1", "n": 1})
    sockets = []
    for number in range(12):
        raw = socket.create_connection(server.address, timeout=WAIT_S)
        raw.sendall(UPGRADE)
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        text = f'{line}\n{{"id":{number},"text":"{"x" * 400_000}"}}'.encode()
        frame = b"\x81\xff" + len(text).to_bytes(8, "big") + b"\0\0\0\0" + text
        raw.sendall(frame[:300_000])
        sockets.append((raw, frame[300_000:]))
    until_used(server, lambda amount: amount > 1 << 20)
    with server.socket() as ws:
        assert ws.ask({"c": "heartbeat"})
    for raw, rest in sockets:
        raw.sendall(rest)
    for raw, _ in sockets:
        assert b'"status":"success"' in raw.recv(4096)
        raw.close()
    assert len(server.records("orders")) == 12
    until_used(server, lambda amount: amount == 0)


# Memory for records.


def test_records_beyond_the_limit_are_refused_and_how_full_it_is_is_sent(limited):
    server = limited("<Memory>2000</Memory>")
    assert server.publish("pairs", *({"a": a, "b": {"c": 1}} for a in range(2))).status == 200
    assert server.get("/readyz").body == b"ok\n"
    answer = server.publish("pairs", *({"a": number, "b": {"c": 2}} for number in range(9)))
    assert (answer.status, answer.json["reason"]) == (507, "memory full")
    assert len(server.records("pairs")) == 2
    assert server.publish("pairs", {"a": 3, "b": {"c": 1}, "text": "x" * 1000}).status == 200
    told = server.get("/readyz").body
    assert told.startswith(b"ok; records and views take 19")
    assert told.endswith(b" of 2000 bytes (Limits/Memory)\n")
    assert server.publish("pairs", {"a": 4, "b": {"c": 1}}).status == 507
    assert server.publish("pairs", {"a": 1, "b": {"c": 1}}).status == 200
    assert b"sow_memory_limit_bytes 2000.0" in server.get("/metrics").body
    server.clear()
    assert server.publish("pairs", {"a": 4, "b": {"c": 1}}).status == 200


# Groups.


# Time.


def test_who_follows_or_says_a_word_now_and_then_stays(limited, monkeypatch):
    monkeypatch.setenv("SOW_LOOP", "asyncio")
    server = limited("<IdleTimeout>120s</IdleTimeout>")
    ping = b"\x89\x80\0\0\0\0"
    with (
        server.events("orders") as events,
        server.socket() as follower,
        server.socket() as speaker,
        server.connection() as pinger,
        server.connection() as silent,
        server.connection() as idle,
    ):
        follower.ask({"c": "subscribe", "t": "orders"})
        for raw in (pinger, silent):
            raw.sendall(UPGRADE)
            assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        # Longer than anybody may be silent, in two parts, each of them shorter.
        for _ in range(2):
            server.later(70)
            speaker.ask({"c": "heartbeat"})
            pinger.sendall(ping)
            assert pinger.recv(4096)
        assert idle.recv(1) == b""
        assert b"Limits/IdleTimeout" in silent.makefile("rb").read()
        server.publish("orders", {"id": 1})
        assert follower.until(c="p")
        while events.event().name != "p":
            pass
        assert speaker.ask({"c": "heartbeat"})
        pinger.sendall(ping)
        assert pinger.recv(4096)


# Connections.


def test_one_connection_too_many_is_sent_so(limited):
    server = limited("<Connections>3</Connections>")
    with server.connection() as first, server.connection() as second, server.connection() as third:
        for raw in (first, second, third):
            raw.sendall(GET)
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        answer = server.said(b"")
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1" in answer
        assert b"Limits/Connections" in answer
    while not server.said(GET.replace(HOST, HOST + b"Connection: close\r\n")).startswith(
        b"HTTP/1.1 200"
    ):
        pass


def test_whom_a_trusted_proxy_asks_for_is_counted_by_requests(limited):
    server = limited(
        "<ConnectionsPerAddress>1</ConnectionsPerAddress>",
        "<Security><TrustedProxies>127.0.0.1</TrustedProxies></Security>",
    )
    path = stream("orders").encode()
    follow = b"GET %b HTTP/1.1\r\n%bX-Forwarded-For: 198.51.100.%d\r\n\r\n"
    with server.connection() as first, server.connection() as second:
        first.sendall(follow % (path, HOST, 7))
        assert first.recv(4096).startswith(b"HTTP/1.1 200")
        second.sendall(follow % (path, HOST, 7))
        answer = second.recv(4096)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Limits/ConnectionsPerAddress" in answer
        second.sendall(follow % (path, HOST, 8))
        assert second.recv(4096).startswith(b"HTTP/1.1 200")
