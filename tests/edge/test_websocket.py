"""WebSocket: every command, its acks, framing, and the order of what comes back."""

import json
import re

import aiohttp
import pytest


def kinds(lines):
    return [line["c"] for line in lines]


def bodies(lines, kind):
    return [line["d"] for line in lines if line["c"] == kind]


@pytest.fixture
def ws(server):
    with server.socket() as socket:
        yield socket


@pytest.mark.parametrize("binary", [False, True])
def test_text_and_binary_frames_are_the_same(server, ws, binary):
    ws.send({"c": "publish", "t": "orders", "cid": "1", "d": {"id": "é"}}, binary=binary)
    assert ws.until(c="ack")[-1]["status"] == "success"
    assert server.records("orders") == [{"id": "é"}]


BINARY, TEXT = aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT


@pytest.mark.parametrize(
    ("protocols", "agreed", "kind"),
    [
        ((), None, BINARY),
        (("sow.text",), "sow.text", TEXT),
        (("graphql-ws", "sow.text", "soap"), "sow.text", TEXT),
        (("graphql-ws", "SOW.TEXT"), None, BINARY),
    ],
)
@pytest.mark.parametrize("binary", [False, True])
def test_a_client_may_ask_for_text_frames(server, protocols, agreed, kind, binary):
    with server.socket(protocols=protocols) as ws, server.socket() as other:
        assert ws._ws.protocol == agreed
        documents = [{"id": number, "note": "é" * 1000} for number in range(100)]
        for one in (ws, other):
            one.ask({"c": "sow_and_subscribe", "t": "orders"})
            one.settled()
        server.publish("orders", *documents)
        ws.send({"c": "flush", "cid": "1"}, binary=binary)
        found = []
        while len(found) < 101:
            message = server.wait(ws._ws.receive())
            assert message.type is kind
            found += [json.loads(line) for line in message.data.splitlines()]
        assert bodies(found, "p") == documents
        assert bodies(other.settled(), "p") == documents, "what is shared stays as it is"


def test_a_logon_names_the_log_as_every_door_does(server, ws):
    log = ws.ask({"c": "logon"})[-1]["log"]
    assert re.fullmatch("[0-9a-f]{16}", log)
    assert server.get("/v1/status").json["log"] == server.get("/v1/log/extent").json["log"] == log
    for path in ("/v1/log", "/readyz", "/v1/topics", "/v1/topics?names=true"):
        assert server.get(path).headers["SOW-Log"] == log


def test_heartbeat_is_returned(ws):
    assert kinds(ws.ask({"c": "heartbeat"})) == ["heartbeat", "ack"]


@pytest.mark.parametrize("command", ["sow", "subscribe", "zzz", "delta_publish"])
def test_bodies_of_a_refused_command_are_never_commands(server, ws, command):
    server.publish("orders", {"id": 1})
    evil = {"c": "sow_delete", "t": "orders", "filter": "1=1"}
    ws.send({"c": command, "t": "orders", "n": 1, "cid": "1"}, evil, {"c": "flush", "cid": "2"})
    assert [line["cid"] for line in ws.until(cid="2")] == ["1", "2"]
    assert len(server.records("orders")) == 1


@pytest.mark.parametrize("n", ["-1", "1000000000", '"2"', "1.5", "true", "1e3", "9" * 5000])
def test_when_the_bodies_cannot_be_sent_the_rest_of_the_frame_is_not_read(server, ws, n):
    server.publish("orders", {"id": 1})
    ws.send(
        f'{{"c":"publish","t":"orders","cid":"1","n":{n}}}',
        {"c": "sow_delete", "t": "orders", "filter": "1=1", "cid": "2"},
    )
    (ack,) = ws.settled()
    assert (ack["cid"], ack["status"]) == ("1", "failure")
    assert "the rest of the frame was not read" in ack["detail"]
    assert len(server.records("orders")) == 1


def test_a_refused_header_skips_just_its_own_bodies(server, ws):
    ws.send(
        {"c": "publish", "t": "orders", "n": 2, "cid": "1", "a": "stats"},
        {"id": 1},
        {"id": 2},
        {"c": "publish", "t": "orders", "cid": "2", "d": {"id": 3}},
    )
    assert [ack["status"] for ack in ws.until(cid="2")] == ["failure", "success"]
    assert server.records("orders") == [{"id": 3}]


def test_a_sow_query_is_ack_group_and_completed(server, ws):
    server.publish("orders", {"id": 1}, {"id": 2})
    ws.send({"c": "sow", "t": "orders", "cid": "1", "a": "processed,completed", "top_n": 1})
    lines = ws.until(a="completed")
    assert kinds(lines) == ["ack", "group_begin", "sow", "group_end", "ack"]
    assert (lines[-1]["matches"], lines[-1]["returned"]) == (2, 1)
    assert len({line["s"] for line in lines}) == 1


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ({"c": "subscrib", "t": "orders"}, "did you mean subscribe"),
        ({"c": "sow", "t": "order"}, "did you mean orders"),
        ({"c": "sow", "t": "orders", "opts": "ooof"}, "did you mean oof"),
        ({"c": "sow", "t": "orders", "opts": "oof=1"}, "takes no value"),
        ({"c": "sow", "t": "orders", "opts": "top_n=x"}, "whole number"),
        ({"c": "sow", "t": "orders", "top_n": -1}, "negative"),
        ({"c": "sow", "t": "orders", "a": "done"}, "no ack"),
        ({"c": "sow", "t": "orders", "order_by": "id"}, "not a path"),
        ({"c": "subscribe", "t": "orders", "top_n": 1}, "sow_and_subscribe"),
        ({"c": "subscribe", "t": "orders", "s": "mine"}, "the server names"),
        ({"c": "subscribe", "t": "orders", "s": "mine", "opts": "replace"}, "no subscription"),
        ({"c": "sow", "t": "ordr.*"}, "no topic matches"),
        ({"c": "subscribe", "t": "orders("}, "topic pattern"),
        ({"c": "subscribe", "t": "orders", "opts": "no_empties"}, "delta subscriptions"),
        ({"c": "subscribe", "t": "orders", "opts": "conflation=1"}, "has no unit"),
        ({"c": "subscribe", "t": "orders", "opts": "conflation=1ms"}, "shorter than 10ms"),
        ({"c": "subscribe", "t": "orders", "opts": "conflation_key=[/a]"}, "needs conflation"),
        ({"c": "subscribe", "t": "orders", "opts": "select=[a]"}, "select"),
        ({"c": "subscribe", "t": "orders", "bm": "x"}, "is not a bookmark"),
        ({"c": "subscribe", "t": "orders", "bm": "99999"}, "is not kept"),
        ({"c": "logon", "seen": 3}, "give the session as well"),
        ({"c": "unsubscribe"}, "needs s"),
        ({"c": "unsubscribe", "s": "f999"}, "no subscription"),
        ({"c": "publish", "t": "orders"}, "needs a body"),
        ({"c": "publish", "t": "orders", "d": {"id": 1}, "k": "1"}, "leave out k"),
        ({"c": "publish", "t": "keyless", "d": {"id": 1}}, "give the record's key"),
        ({"c": "publish", "t": "orders", "d": {"id": 1}, "x": 5}, "Expiration"),
        ({"c": "sow", "t": "orders", "filter": "/a ="}, "position 4"),
    ],
)
def test_a_mistake_is_sent_with_what_to_write_instead(ws, command, hint):
    ack = ws.ask(command)[-1]
    assert ack["status"] == "failure"
    assert hint in ack["detail"]


def test_a_session_that_goes_leaves_nothing_behind(server):
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": "orders", "filter": "/id = 1"})
    assert server.get("/v1/sessions").json == []
    assert server.get("/v1/topics/orders").json["subscriptions"] == 0
