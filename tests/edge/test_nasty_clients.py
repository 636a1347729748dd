"""Clients that break off, lie about lengths or speak something else: nobody else notices."""

import asyncio
import json
import socket

import pytest

from tests.edge.serving import records

POST = (
    b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\n"
)
CLOSE = b"Connection: close\r\n"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def well(server):
    """The next request is served, and no session is left behind."""
    assert server.publish("orders", {"id": 1}).status == 200
    assert server.records("orders") == [{"id": 1}]
    with server.socket() as ws:
        while len(server.get("/v1/sessions").json) > 1:
            ws.ask({"c": "heartbeat"})


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/topics HT",
        b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        POST + b'Content-Length: 100\r\n\r\n{"id":9',
        POST + b"Content-Length: 100\r\n\r\n",
        POST + b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"id":9}\r\n',
        b"GET /v1/topics/orders/stream HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/log?wait=60&from=now HTTP/1.1\r\nHost: localhost\r\n\r\n",
        UPGRADE,
        UPGRADE + b"\x81\xfe",
        UPGRADE + b'\x81\x90\0\0\0\0{"c":"sow","t"',
        UPGRADE + b"\x82\xff\0\0\0\0\x7f\xff\xff\xff\0\0\0\0aaaa",
    ],
    ids=range(11),
)
def test_a_client_that_breaks_off_changes_nothing(server, data):
    server.drop(data)
    well(server)


def test_who_sends_its_frames_with_the_handshake_and_no_more_is_answered_at_once(server):
    line = b'{"c":"heartbeat","cid":"1"}'
    said = server.raw(UPGRADE + b"\x81" + bytes([0x80 | len(line)]) + bytes(4) + line)
    assert said.startswith(b"HTTP/1.1 101")
    assert b'"cid":"1"' in said
    assert said[-4:-2] == b"\x88\x02", "a close frame"
    well(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/topics HTTP/9.9\r\nHost: localhost\r\n" + CLOSE + b"\r\n",
        b"GET /v1/topics HTTP/one\r\n\r\n",
        POST + b"Content-Length: -5\r\n\r\n",
        POST + b"Content-Length: abc\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        POST + CLOSE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        POST + CLOSE + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
        POST + CLOSE + b"Content-Encoding: deflate\r\nContent-Length: 4\r\n\r\njunk",
        POST + CLOSE + b"Expect: wonders\r\nContent-Length: 0\r\n\r\n",
        b"BREW /v1/topics HTTP/1.1\r\nHost: localhost\r\n" + CLOSE + b"\r\n",
        b"GET http://x:99999/v1/topics HTTP/1.1\r\nHost: localhost\r\n" + CLOSE + b"\r\n",
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n" + CLOSE + b"\r\n",
    ],
    ids=range(15),
)
def test_what_is_no_request_is_a_4xx(server, data):
    assert server.said(data).startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    well(server)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x82\0\0\0\0\xff\xfe", 1007),  # text that is not UTF-8
        (b"\xc1\x81\0\0\0\0a", 1002),  # a compressed frame that nobody agreed on
        (b"\x83\x81\0\0\0\0a", 1002),  # an unknown opcode
        (b"\x80\x81\0\0\0\0a", 1002),  # a continuation of nothing
        (b'\x82\x0e{"c":"logon"}', 1002),  # a frame without a mask
        (b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0", 1002),  # a message within another one
        (b"\x88\x82\0\0\0\0\x03\xee", 1002),  # a code that is never sent
        (b"\x88\x82\0\0\0\0\x0b\xb9", 3001),  # a code of the client's own
        (b"\x82\xff\x00\x00\x00\x01\x00\x00\x00\x00\0\0\0\0a", 1009),  # 4 GiB to come
    ],
)
def test_a_broken_frame_ends_that_connection_with_its_code(server, frame, code):
    with server.connection() as raw:
        raw.sendall(UPGRADE)
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        raw.sendall(frame)
        left = raw.recv(4096)
    assert left[0] == 0x88
    assert int.from_bytes(left[2:4], "big") == code
    well(server)


def test_an_answer_that_nobody_waits_for_is_dropped(server):
    server.publish("orders", *({"id": n, "blob": "x" * 10_000} for n in range(90)))
    with server.connection() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(b"GET /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 200")
    server.request("DELETE", records("orders", filter="1=1"))
    well(server)


def test_a_request_in_many_small_pieces_is_a_request(server):
    body = b'{"id":1}'
    request = POST + CLOSE + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with server.connection() as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(request)):
            raw.sendall(request[at : at + 1])
        assert raw.recv(4096).startswith(b"HTTP/1.1 200")
    well(server)


@pytest.mark.parametrize("kind", ["application/json; charset=utf-16", "text/plain; x=\xe9", ""])
def test_an_odd_content_type_never_stores_what_is_not_json(server, kind):
    assert server.post("orders", b"\xff\xfe{\0", kind).status == 400
    well(server)


def test_of_a_field_that_comes_twice_the_stored_bytes_keep_both(server):
    server.post("orders", b'{"id":1,"id":2}')
    assert server.get(records("orders")).body == b'[{"id":1,"id":2}]'
    assert len(server.records("orders", filter="/id = 2")) == 1


def test_a_frame_of_very_many_commands_is_carried_out_in_order_beside_everybody_elses(server):
    lines = [f'{{"c":"heartbeat","cid":{n}}}' for n in range(60_000)]
    last = {"c": "publish", "t": "orders", "d": {"id": 1}, "cid": "last"}
    with server.socket() as ws, server.socket() as other:

        async def ask_behind_it():
            await ws._ws.send_str("\n".join([*lines, json.dumps(last)]))
            await other._ws.send_str('{"c":"sow","t":"orders","cid":"1","a":"completed"}')

        # Without a change of threads: it is there before the frame is carried out to its end.
        server.wait(ask_behind_it())
        assert other.until(c="ack", cid="1")[-1]["matches"] == 0
        acks = [line["cid"] for line in ws.until(cid="last") if line["c"] == "ack"]
    assert acks == [str(n) for n in range(60_000)] + ["last"]
    well(server)


def test_nothing_is_carried_out_for_a_client_whose_queue_is_full_of_answers(server):
    with server.socket() as ws:
        ws.send(*['{"c":"sow","t":"nope"}'] * 60_000, {"c": "publish", "t": "orders", "d": {}})
        depths = []
        while sessions := server.get("/v1/sessions").json:
            depths.append(sessions[0]["queue_messages"])
            server.wait(asyncio.sleep(0.02))
    assert 10_000 < max(depths) < 20_000
    well(server)


def test_what_a_client_has_sent_before_it_goes_is_carried_out(server):
    with server.socket() as ws:
        ws.send(*[{"c": "publish", "t": "orders", "d": {"id": n}} for n in range(3000)])
    while len(server.records("orders")) < 3000:
        pass
    assert server.request("DELETE", records("orders", filter="1=1")).status == 200
    well(server)
