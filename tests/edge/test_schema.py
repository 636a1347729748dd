"""A topic's Schema at every door: what does not fit is refused as a whole, by index and field."""

import json

import pytest

from tests.edge.serving import Running, configuration, served

SCHEMA = """<Schema><Field type="int64">/qty</Field><Field type="decimal(9,2)">/px</Field>
<Field type="date">/order/day</Field></Schema>"""
TOPIC = "<Topic><Name>trades</Name><MessageType>json</MessageType><Key>/id</Key>{}</Topic>"
GOOD = {"id": 1, "qty": 7, "px": 1.5, "order": {"day": "2025-01-31"}, "note": [1]}
BAD = {"id": 2, "qty": "7"}


trades = served(configuration(TOPIC.format(SCHEMA)), scope="function")


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_http_refuses_all_of_a_request(trades, method):
    body = json.dumps([GOOD, BAD, BAD]).encode()
    headers = {"Content-Type": "application/json"}
    answer = trades.request(method, "/v1/topics/trades/records", data=body, headers=headers)
    assert answer.status == 400
    assert (answer.json["index"], answer.json["field"]) == (1, "/qty")
    assert "int64" in answer.json["detail"]
    assert trades.records("trades") == []


@pytest.mark.parametrize("command", ["publish", "delta_publish"])
def test_a_websocket_is_sent_by_a_failure_ack(trades, command):
    with trades.socket() as socket:
        ask = {"c": command, "t": "trades", "a": "processed"}
        acks = [socket.ask({**ask, "d": document})[-1] for document in (GOOD, BAD)]
    assert [ack["status"] for ack in acks] == ["success", "failure"]
    assert (acks[1]["index"], acks[1]["field"]) == (0, "/qty")
    assert trades.records("trades") == [GOOD]


def test_a_delta_is_judged_by_the_fields_that_it_gives(trades):
    trades.publish("trades", GOOD)
    for delta, status in (({"px": 2.25}, 200), ({"px": 2.255}, 400), ({"order": {"day": 1}}, 400)):
        body = json.dumps({"id": 1, **delta}).encode()
        assert trades.request("PATCH", "/v1/topics/trades/records", data=body).status == status
    assert trades.records("trades") == [{**GOOD, "px": 2.25}]


def test_records_from_before_a_schema_stay_as_they_are(tmp_path):
    server = Running(configuration(TOPIC.format("")), tmp_path)
    server.publish("trades", {"id": 1, "qty": "many"}, {"id": 2, "qty": 3})
    server.close()
    server = Running(configuration(TOPIC.format(SCHEMA)), tmp_path)
    assert server.records("trades") == [{"id": 1, "qty": "many"}, {"id": 2, "qty": 3}]
    note = json.dumps({"id": 1, "note": "x"}).encode()
    assert server.request("PATCH", "/v1/topics/trades/records", data=note).status == 200
    assert server.records("trades")[0] == {"id": 1, "qty": "many", "note": "x"}
    assert server.request("POST", "/v1/topics/trades/records", data=note).status == 200
    assert server.records("trades")[0] == {"id": 1, "note": "x"}
    server.close()
    assert server.errors == []
