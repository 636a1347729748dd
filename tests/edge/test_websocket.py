"""WebSocket: every command, its acks, framing, and the order of what comes back."""

import json
import re

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


def test_logon_names_the_session(server, ws):
    ack = ws.ask({"c": "logon", "client": "me"})[-1]
    assert ack["id"] in [session["id"] for session in server.get("/v1/sessions").json]


def test_a_logon_names_the_log_as_every_door_does(server, ws):
    log = ws.ask({"c": "logon"})[-1]["log"]
    assert re.fullmatch("[0-9a-f]{16}", log)
    assert server.get("/v1/status").json["log"] == server.get("/v1/log/extent").json["log"] == log
    for path in ("/v1/log", "/readyz", "/v1/topics", "/v1/topics?names=true"):
        assert server.get(path).headers["SOW-Log"] == log


def test_heartbeat_is_returned(ws):
    assert kinds(ws.ask({"c": "heartbeat"})) == ["heartbeat", "ack"]


def test_a_publish_is_acknowledged_with_its_bookmark(server, ws):
    ack = ws.ask({"c": "publish", "t": "orders", "d": {"id": 1}, "a": "persisted"})[-1]
    assert (ack["a"], ack["status"]) == ("persisted", "success")
    assert server.get("/v1/log?limit=1000000").rows[-1]["bm"] == ack["bm"]


def test_each_ack_requested_for_comes_in_order(ws):
    ws.send({"c": "publish", "t": "orders", "d": {"id": 1}, "cid": "1", "a": "persisted,processed"})
    assert [line["a"] for line in (ws.line(), ws.line())] == ["processed", "persisted"]


def test_a_publish_without_cid_is_silent_unless_it_fails(ws):
    ws.send({"c": "publish", "t": "orders", "d": {"id": 1}})
    ws.send({"c": "publish", "t": "orders", "d": {}})
    lines = ws.settled()
    assert [line["status"] for line in lines] == ["failure"]
    assert "cid" not in lines[0]


def test_bodies_that_follow_are_stored_byte_for_byte(server, ws):
    ws.ask({"c": "publish", "t": "orders", "n": 2}, '{"id" : 1}', b'{"id":2.0}')
    assert server.get("/v1/topics/orders/records").body == b'[{"id" : 1},{"id":2.0}]'


def test_a_frame_may_hold_many_commands_and_bodies(server, ws):
    ws.send(
        {"c": "publish", "t": "orders", "n": 1, "cid": "1"},
        {"id": 1},
        "",
        {"c": "publish", "t": "pairs", "cid": "2", "d": {"a": 1, "b": {"c": 2}}},
        {"c": "publish", "t": "orders", "n": 2, "cid": "3"},
        {"id": 2},
        {"id": 3},
        {"c": "flush", "cid": "4"},
    )
    assert [line["cid"] for line in ws.until(cid="4")] == ["1", "2", "3", "4"]
    assert len(server.records("orders")) == 3


def test_a_bad_line_costs_its_neighbours_nothing(server, ws):
    ws.send(
        {"c": "publish", "t": "orders", "d": {"id": 1}, "cid": "1"},
        "{]",
        {"c": "publish", "t": "nope", "d": {"id": 1}, "cid": "3"},
        {"c": "publish", "t": "orders", "d": {"id": 2}, "cid": "4"},
    )
    acks = ws.until(cid="4")
    assert [ack["status"] for ack in acks] == ["success", "failure", "failure", "success"]
    assert len(server.records("orders")) == 2


def test_a_framed_publish_is_all_or_nothing(server, ws):
    ack = ws.ask({"c": "publish", "t": "orders", "n": 3}, {"id": 1}, {"id": None}, {"id": 3})[-1]
    assert (ack["status"], ack["reason"], ack["index"]) == ("failure", "bad message", 1)
    assert server.records("orders") == []


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


def test_a_sow_query_takes_filter_order_and_page(server, ws):
    server.publish("orders", *({"id": n, "price": n % 3} for n in range(6)))
    ws.send(
        {"c": "sow", "t": "orders", "filter": "/price > 0", "order_by": "/price DESC,/id"}
        | {"opts": "skip_n=1,top_n=2"}
    )
    assert [body["id"] for body in bodies(ws.until(c="group_end"), "sow")] == [5, 1]


def test_a_snapshot_is_ordered_by_what_is_calculated(server, ws):
    server.publish("orders", *({"id": n, "symbol": "x" * (n * 3 % 5)} for n in range(1, 5)))
    ws.send({"c": "sow_and_subscribe", "t": "orders", "order_by": "LENGTH(/symbol) DESC"})
    assert [body["id"] for body in bodies(ws.until(c="group_end"), "sow")] == [3, 1, 4, 2]


def test_a_subscription_gets_what_comes_and_nothing_else(server, ws):
    server.publish("orders", {"id": 1})
    name = ws.ask({"c": "subscribe", "t": "orders", "filter": "/id > 1"})[-1]["s"]
    bookmark = server.publish("orders", {"id": 1}, {"id": 2}).json["bookmark"]
    (line,) = ws.settled()
    assert (line["c"], line["s"], line["d"], line["bm"]) == ("p", name, {"id": 2}, bookmark)


def test_a_snapshot_goes_on_as_a_subscription_without_gap_or_repeat(server, ws):
    server.publish("orders", {"id": 1})
    ws.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1"},
        {"c": "publish", "t": "orders", "d": {"id": 2}},
    )
    lines = ws.settled()
    assert kinds(lines) == ["ack", "group_begin", "sow", "group_end", "p"]
    assert int(lines[-1]["bm"]) == int(lines[-2]["bm"]) + 1


def test_what_leaves_focus_is_sent_with_its_reason(server, ws):
    ws.ask({"c": "sow_and_subscribe", "t": "orders", "filter": "/price > 5", "opts": "oof"})
    server.publish("orders", {"id": 1, "price": 9}, {"id": 2, "price": 9}, {"id": 3, "price": 1})
    server.publish("orders", {"id": 1, "price": 2})
    ws.send({"c": "sow_delete", "t": "orders", "filter": "1=1"})
    leaving = [line for line in ws.settled() if line["c"] == "oof"]
    assert [(line["reason"], line["d"]) for line in leaving] == [
        ("match", {"id": 1, "price": 2}),
        ("deleted", {"id": 2, "price": 9}),
    ]


def test_an_expired_record_leaves_focus(server, ws):
    ws.ask({"c": "subscribe", "t": "short", "opts": "oof"})
    ws.send({"c": "publish", "t": "short", "d": {"id": 1}, "x": 0.05})
    line = ws.until(c="oof")[-1]
    assert (line["reason"], line["d"]) == ("expired", {"id": 1})


def test_a_delta_without_a_lifetime_leaves_that_of_its_record(server, ws):
    ws.ask({"c": "publish", "t": "short", "d": {"id": 1}, "x": 900, "a": "processed"})
    table = server.server.engine.topics["short"].records.table
    before = server.call(table.expiries, ["1"], -1)
    delta = {"c": "delta_publish", "t": "short", "d": {"id": 1, "v": 2}, "a": "processed"}
    ws.ask(delta, cid="2")
    assert server.call(table.expiries, ["1"], -1) == before
    ws.ask({**delta, "x": 0}, cid="3")
    assert server.call(table.expiries, ["1"], -1) == [0]


def test_without_oof_nothing_is_said_of_what_leaves(server, ws):
    ws.ask({"c": "subscribe", "t": "orders"})
    server.publish("orders", {"id": 1})
    ws.send({"c": "sow_delete", "t": "orders", "filter": "1=1"})
    assert kinds(ws.settled()) == ["p"]


def test_options_shape_the_lines(server, ws):
    server.publish("orders", {"id": 1})
    ws.send({"c": "sow", "t": "orders", "opts": "no_sowkey,timestamp"})
    line = ws.until(c="sow")[-1]
    assert "k" not in line
    assert line["ts"].endswith("Z")


def test_equal_subscriptions_get_the_same_bytes(server, ws):
    with server.socket() as other:
        names = {s.ask({"c": "subscribe", "t": "orders"})[-1]["s"] for s in (ws, other)}
        server.publish("orders", {"id": 1})
        assert ws.settled() == other.settled()
    assert len(names) == 1


def test_an_unsubscribed_session_hears_no_more(server, ws):
    name = ws.ask({"c": "subscribe", "t": "orders"})[-1]["s"]
    assert ws.ask({"c": "unsubscribe", "s": name})[-1]["status"] == "success"
    server.publish("orders", {"id": 1})
    assert ws.settled() == []


def test_all_subscriptions_end_at_once(server, ws):
    ws.ask({"c": "subscribe", "t": "orders"})
    ws.ask({"c": "subscribe", "t": "pairs"})
    ws.ask({"c": "unsubscribe", "s": "all"})
    assert server.get("/v1/sessions").json[0]["subscriptions"] == 0


@pytest.mark.parametrize("selector", ["filter", "k", "keys", "d", "n"])
def test_deletes_by_each_selector(server, ws, selector):
    server.publish("orders", {"id": 1}, {"id": 2})
    key = server.records("orders", meta="true")[0]["k"]
    value = {"filter": "/id = 1", "k": key, "keys": [key], "d": {"id": 1}, "n": 1}[selector]
    rest = ['{"id":1}'] if selector == "n" else []
    ack = ws.ask({"c": "sow_delete", "t": "orders", selector: value}, *rest)[-1]
    assert (ack["status"], ack["deleted"]) == ("success", 1)
    assert server.records("orders") == [{"id": 2}]


def test_a_delete_by_nothing_is_refused(server, ws):
    assert ws.ask({"c": "sow_delete", "t": "orders"})[-1]["status"] == "failure"


def test_a_conflated_topic_is_followed(server, ws):
    ws.ask({"c": "subscribe", "t": "orders-C"})
    server.publish("orders", {"id": 1, "v": 0})
    ws.until(c="p")
    for v in range(1, 50):
        ws.send({"c": "publish", "t": "orders", "d": {"id": 1, "v": v}})
    seen = bodies(ws.until(c="p", d={"id": 1, "v": 49}), "p")
    assert len(seen) < 49
    assert [body["v"] for body in seen] == sorted(body["v"] for body in seen)


def test_a_copy_that_stops_matching_leaves_by_match(server, ws):
    server.publish("orders", {"id": 1, "price": 500})
    ws.ask({"c": "subscribe", "t": "dear-C", "opts": "oof"})
    server.publish("orders", {"id": 1, "price": 501})
    ws.until(c="p", d={"id": 1, "price": 501})
    server.publish("orders", {"id": 1, "price": 1})
    line = ws.until(c="oof")[-1]
    assert (line["reason"], line["d"]) == ("match", {"id": 1, "price": 1})


@pytest.mark.parametrize("command", ["publish", "sow_delete"])
def test_a_conflated_topic_takes_no_changes(ws, command):
    ack = ws.ask({"c": command, "t": "orders-C", "d": {"id": 1}})[-1]
    assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")


def test_a_large_snapshot_streams_and_the_subscription_follows(server, ws):
    body = b"\n".join(b'{"id":%d}' % n for n in range(20_000))
    server.post("orders", body, "application/x-ndjson")
    ws.send(
        {"c": "sow_and_subscribe", "t": "orders", "cid": "1"},
        {"c": "publish", "t": "orders", "d": {"id": -1}},
    )
    lines = ws.until(c="p")
    assert [body["id"] for body in bodies(lines, "sow")] == list(range(20_000))
    assert kinds(lines[-2:]) == ["group_end", "p"]


@pytest.mark.parametrize(
    "command",
    [
        {"c": "subscribe", "t": "orders", "opts": "pause"},
        {"c": "subscribe", "t": "orders", "opts": "rate=1000"},
        {"c": "sow", "t": "orders", "a": "stats"},
    ],
)
def test_what_is_not_built_yet_is_refused_by_name(ws, command):
    ack = ws.ask(command)[-1]
    assert (ack["status"], ack["reason"]) == ("failure", "not available yet")
    assert "not available yet" in ack["detail"]


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
        ({"c": "subscribe", "t": "orders", "bm": "0", "opts": "oof"}, "neither oof nor deltas"),
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


def test_lines_hold_the_body_as_it_was_stored(server, ws):
    server.post("orders", b'{"id":1, "v":1.10}')
    ws.send({"c": "sow", "t": "orders"})
    assert json.dumps(ws.until(c="sow")[-1]["d"]) == '{"id": 1, "v": 1.1}'
