"""Whatever a client sends in a frame, the connection and the rules of acks hold."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ
from tests.fuzz.inputs import TOPICS, TYPED, documents, edited, expressions, json_bytes, values

COMMANDS = (
    "logon", "publish", "delta_publish", "sow", "subscribe", "sow_and_subscribe", "unsubscribe",
    "delta_subscribe", "sow_and_delta_subscribe", "sow_delete", "flush", "heartbeat", "x", "",
)  # fmt: skip
OPTIONS = ("oof", "timestamp", "no_sowkey", "top_n=2", "skip_n=1", "conflation=1s", "[", "a=[b,c]")
LINES = ("ack", "group_begin", "sow", "group_end", "p", "oof", "heartbeat")
FIELDS = {
    "t": st.sampled_from(TOPICS + TYPED),
    "d": documents | values,
    "k": st.sampled_from(["key", "1", "", "a b", "\0", "é", "x" * 600]),
    "keys": st.sampled_from(["1,2", "", ["1"], []]),
    "filter": expressions,
    "opts": st.lists(st.sampled_from(OPTIONS), max_size=3).map(",".join),
    "order_by": expressions,
    "top_n": st.integers(-1, 3),
    "skip_n": st.integers(-1, 3),
    "a": st.sampled_from(["processed", "persisted", "processed,persisted,completed", "x"]),
    "x": st.sampled_from([1, 0, -1, 0.5, 1e308]),
    "s": st.sampled_from(["all", "f1", ""]),
    "n": st.integers(-1, 3),
    "bm": st.sampled_from(["now", "0", "x", 5]),
}

good = st.fixed_dictionaries({"c": st.sampled_from(COMMANDS)}, optional=FIELDS).filter(
    lambda command: not {"NaN", "Infinity"} & set(re.findall(r"\w+", json.dumps(command)))
)
odd = st.fixed_dictionaries(
    {"c": st.sampled_from(COMMANDS)}, optional=dict.fromkeys(FIELDS, values) | {"cid": values}
)
frames = st.lists(good | odd | documents, min_size=1, max_size=5).map(
    lambda lines: b"\n".join(map(json_bytes, lines))
)


def well(running, ws):
    """The session goes on: a publish and a query are answered as ever."""
    ack = ws.ask({"c": "publish", "t": "orders", "d": {"id": "probe"}}, cid="probe")[-1]
    assert ack["status"] == "success"
    assert running.errors == []
    assert running.records("orders", filter="/id = 'probe'") == [{"id": "probe"}]


@FUZZ
@given(good)
def test_every_command_with_a_cid_is_acknowledged(running, command):
    with running.socket() as ws:
        ws.send(command | {"cid": "mine"}, *["{}"] * max(0, command.get("n", 0)))
        lines = ws.settled()
        acks = [line for line in lines if line["c"] == "ack" and line.get("cid") == "mine"]
        assert acks
        assert all(ack["status"] == "success" or ack["detail"] for ack in acks)
        well(running, ws)


@FUZZ
@given(st.lists(edited(frames), min_size=1, max_size=3))
def test_any_frame_is_survived(running, data):
    with running.socket() as ws:
        for frame in data:
            ws.send_frame(frame, binary=True)
        assert all(line["c"] in LINES for line in ws.settled())
        well(running, ws)


@FUZZ
@given(edited(frames), st.sampled_from([2, 90, 300]), st.sampled_from([b"\n", b"\n\n", b"\n \r\n"]))
def test_any_lines_many_times_are_survived(running, lines, times, between):
    """Each command is refused or carried out, and other clients are served."""
    with running.socket() as ws:
        ws.send_frame(between.join([lines] * times), binary=True)
        assert all(line["c"] in LINES for line in ws.settled())
        well(running, ws)


@FUZZ
@given(
    st.sampled_from(sorted(FIELDS)),
    st.sampled_from([90, 300, 70_000]),
    st.text("z/,[$.'(", min_size=1, max_size=4),
)
def test_a_long_field_is_answered_and_little_of_it_repeated(running, field, times, text):
    with running.socket() as ws:
        ack = ws.ask({"c": "sow", "t": "orders"} | {field: text * times})[-1]
        assert text * 200 not in str(ack)
        well(running, ws)


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_in_a_frame_are_survived(running, frame):
    with running.socket() as ws:
        ws.send_frame(frame, binary=True)
        ws.settled()
        well(running, ws)


UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PAYLOAD = b'{"c":"sow_and_subscribe","t":"orders"}'
FRAME = b"\x81" + bytes([0x80 | len(PAYLOAD)]) + bytes(4) + PAYLOAD


def sessions(running):
    return {session["id"] for session in running.get("/v1/sessions").json}


@FUZZ
@given(edited(st.just(FRAME)), st.booleans())
def test_broken_framing_ends_that_connection_only(running, data, twice):
    others = sessions(running)  # those that wait for their clients to come back may stay
    with running.connection() as raw:
        raw.sendall(UPGRADE)
        assert raw.recv(4096).startswith(b"HTTP/1.1 101")
        broken = sessions(running) - others
        assert broken
        raw.sendall(data * (1 + twice))
    with running.socket() as ws:
        well(running, ws)
        while broken & sessions(running):
            ws.ask({"c": "heartbeat"})


@FUZZ
@given(st.lists(documents.map(json.dumps), min_size=1, max_size=6), st.integers(-1, 8))
def test_a_batch_is_whole_or_not_at_all(running, bodies, n):
    running.request("DELETE", "/v1/topics/pairs/records?filter=1=1")
    texts = [json.dumps({"a": 1, "b": {"c": at}}) for at in range(len(bodies))]
    mixed = [text if len(body) % 3 else body for text, body in zip(texts, bodies, strict=True)]
    with running.socket() as ws:
        ws.send({"c": "publish", "t": "pairs", "n": n, "cid": "1"}, *mixed)
        ack = ws.until(cid="1")[-1]
    stored = len(running.records("pairs"))
    assert stored == 0 if ack["status"] == "failure" else 1 <= stored <= n
    assert running.errors == []
