"""Every message type through both doors: what goes in comes out, keyed and rendered alike."""

import base64
import json

import pytest

from tests.edge.serving import records

BYTES = b"\x00\xff\n\x01"


def bflat_body():
    from sow.messages import message_type

    return message_type("bflat").encode({"id": "x", "price": 5})


def test_binary_rows_in_the_log_and_in_ndjson(server):
    server.post("binary", BYTES, "application/octet-stream", k="b")
    row = server.get(records("binary", meta="true"), "application/x-ndjson").rows[0]
    assert base64.b64decode(row["d"]) == BYTES
    logged = server.get("/v1/log?topics=binary&limit=1000000").rows[-1]
    assert base64.b64decode(logged["d"]) == BYTES


@pytest.mark.parametrize("framed", [False, True], ids=["d", "n"])
@pytest.mark.parametrize("command", ["publish", "delta_publish"])
def test_base64_may_be_announced_as_the_server_announces_it(server, command, framed):
    d = base64.b64encode(BYTES).decode()
    line = {"c": command, "t": "binary", "k": "b", "enc": "base64"}
    with server.socket() as ws:
        ack = ws.ask({**line, "n": 1}, d) if framed else ws.ask({**line, "d": d})
    assert ack[-1]["status"] == "success"
    assert server.get(records("binary") + "/b").body == BYTES


def test_what_an_update_carried_can_be_sent_back(server):
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": "bflat"}, cid="s")
        server.post("bflat", bflat_body(), "application/octet-stream")
        got = ws.until(c="p")[-1]
        body = {name: got[name] for name in ("t", "d", "enc")}
        assert ws.ask({"c": "publish", **body}, cid="2")[-1]["status"] == "success"
        ack = ws.ask({"c": "sow_delete", **body}, cid="3")[-1]
    assert (ack["status"], ack["deleted"]) == ("success", 1)


def test_framed_base64_names_the_records_to_delete(server):
    server.post("bflat", bflat_body(), "application/octet-stream")
    with server.socket() as ws:
        line = {"c": "sow_delete", "t": "bflat", "n": 1, "enc": "base64"}
        assert ws.ask(line, base64.b64encode(bflat_body()))[-1]["deleted"] == 1


@pytest.mark.parametrize(
    ("line", "bodies", "says"),
    [
        ({"t": "binary", "k": "b", "d": "eA==", "enc": "hex"}, [], "enc is 'hex'; write base64"),
        (
            {"t": "orders", "d": {"id": 1}, "enc": "base64"},
            [],
            "messages of orders are text (json)",
        ),
        ({"t": "string", "k": "a", "d": "eA==", "enc": "base64"}, [], "send the text"),
        ({"t": "orders", "n": 1, "enc": "base64"}, [b"e30="], "messages of orders are text"),
        ({"t": "binary", "k": "b", "d": "e*==", "enc": "base64"}, [], "is not base64"),
        ({"t": "binary", "k": "b", "d": 5, "enc": "base64"}, [], "must be a JSON string"),
        ({"t": "binary", "k": "b", "n": 1, "enc": "base64"}, [b'"eA=="'], "is not base64"),
        ({"t": "binary", "k": "b", "n": 1, "enc": "base64"}, [b"\xff"], "is not base64"),
        ({"t": "binary", "k": "b", "enc": "base64"}, [], "here is none; leave it out"),
        ({"c": "sow", "t": "binary", "enc": "base64"}, [], "here is none; leave it out"),
        ({"c": "sow_delete", "t": "binary", "k": "b", "enc": "base64"}, [], "leave it out"),
    ],
)
def test_an_encoding_that_does_not_fit_is_refused(server, line, bodies, says):
    with server.socket() as ws:
        ws.send(b"\n".join([json.dumps({"c": "publish", "cid": "1", **line}).encode(), *bodies]),
                binary=True)  # fmt: skip
        ack = ws.until(c="ack")[-1]
        assert (ack["status"], says in ack["detail"]) == ("failure", True), ack
        assert ws.ask({"c": "flush"}, cid="2")[-1]["status"] == "success"
    assert server.records(line["t"]) == []
