"""Bad input at every door: a sentence that says what and where, and the next request is served."""

import json

import pytest

from tests.cases import all_cases

DEEP = b'{"id":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

BODIES = {
    "not json": b"nonsense",
    "half a document": b'{"id":1',
    "a number": b"5",
    "an array of arrays": b"[[]]",
    "nothing": b"",
    "an empty array": b"[]",
    "NaN": b'{"id":1,"x":NaN}',
    "too large for a double": b'{"id":1,"x":1e400}',
    "four hundred digits": b'{"id":1,"x":' + b"9" * 400 + b"}",
    "not utf-8": b'{"id":1,"x":"\xff"}',
    "half a surrogate": b'{"id":1,"x":"\\ud800"}',
    "a control character": b'{"id":1,"x":"a\x01"}',
    "no key": b'{"x":1}',
    "a null key": b'{"id":null}',
    "an object as key": b'{"id":{"a":1}}',
    "an array as key": b'{"id":[1,2]}',
    "100,000 levels": DEEP,
    "100,000 objects": b'{"id":' * 100_000 + b"1" + b"}" * 100_000,
}


@all_cases("name", BODIES)
def test_a_bad_body_is_refused_over_http_and_the_next_is_served(server, name):
    answer = server.post("orders", BODIES[name])
    assert 400 <= answer.status < 500, answer.body
    assert answer.json["detail"]
    assert server.publish("orders", {"id": 1}).status == 200
    assert server.records("orders") == [{"id": 1}]


@all_cases("name", [name for name in BODIES if name not in ("nothing", "an empty array")])
def test_a_bad_body_in_a_frame_is_refused_and_its_neighbours_are_not(server, name):
    with server.socket() as ws:
        head = {"c": "publish", "t": "orders", "n": 1, "cid": "bad"}
        good = {"c": "publish", "t": "orders", "d": {"id": 2}, "cid": "good"}
        ws.send(head, BODIES[name], good, binary=True)
        lines = ws.until(cid="good")
    assert [line["status"] for line in lines] == ["failure", "success"]
    assert lines[0]["detail"]
    assert server.records("orders") == [{"id": 2}]


PATHS = [
    "/v1/topics/nope",
    "/v1/topics/nope/records",
    "/v1/topics/..%2F..%2Fetc%2Fpasswd/records",
    "/v1/topics/%2e%2e%2f/records",
    "/v1/topics/%00/records",
    "/v1/topics/%ff%fe/records",
    "/v1/topics/" + "x" * 5000 + "/records",
    "/v1/topics/orders/records/nope",
    "/v1/topics/orders/records/99999999999999999999999999",
    "/v1/topics/orders/records?filter=/a+%3E",
    "/v1/topics/orders/records?filter=" + "(" * 3000,
    "/v1/topics/orders/records?filter=/a+LIKE+'(%3F%3Dx)'",
    "/v1/topics/orders/records?filter=LAST_READ()=1",
    "/v1/topics/orders/records?top_n=-1",
    "/v1/topics/orders/records?top_n=1e9",
    "/v1/topics/orders/records?skip_n=x",
    "/v1/topics/orders/records?order_by=nonsense",
    "/v1/topics/orders/records?order_by=/a+SIDEWAYS",
    "/v1/topics/orders/records?meta=perhaps",
    "/v1/topics/orders/records?colour=red",
    "/v1/topics/orders/records?select=a",
    "/v1/topics/orders/stream?delta=perhaps",
    "/v1/topics/orders/stream?bookmark=x",
    "/v1/topics/orders/stream?filter=/a+%3E",
    "/v1/topics/nope/stream",
    "/v1/log?from=x",
    "/v1/log?from=999999999",
    "/v1/log?limit=0",
    "/v1/log?topics=nope",
    "/v1/ws",
    "/v1/nope",
]


@all_cases("path", PATHS)
def test_a_bad_address_is_answered_with_a_problem(server, path):
    answer = server.get(path)
    assert 400 <= answer.status < 500, answer.body
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert answer.json["detail"]
    assert server.get("/healthz").status == 200


LINES = [
    b"nonsense",
    b"[]",
    b"{}",
    b'{"c":5}',
    b'{"c":"fly"}',
    b'{"c":"publish"}',
    b'{"c":"publish","t":"nope","d":{"id":1}}',
    b'{"c":"publish","t":"orders-C","d":{"id":1}}',
    b'{"c":"publish","t":"orders","d":{"id":1},"x":-1}',
    b'{"c":"publish","t":"orders","d":{"id":1},"colour":"red"}',
    b'{"c":"publish","t":"orders","n":0}',
    b'{"c":"publish","t":"orders","n":-1}',
    b'{"c":"publish","t":"orders","n":1000000000}',
    b'{"c":"publish","t":"orders","n":"2"}\n{"id":1}\n{"id":2}',
    b'{"c":"publish","t":"orders","n":2}\n{"id":1}',
    b'{"c":"publish","t":"binary","d":{"a":1},"k":"a"}',
    b'{"c":"publish","t":"binary","d":"AAA=","k":"a\\u0000b"}',
    b'{"c":"sow","t":"orders","filter":"/a >"}',
    b'{"c":"subscribe","t":"orders","opts":"oof,,,fly"}',
    b'{"c":"subscribe","t":"orders","opts":"conflation_key=[/a,/b"}',
    b'{"c":"subscribe","t":"orders","a":"everything"}',
    b'{"c":"sow_delete","t":"orders"}',
    b'{"c":"sow_delete","t":"orders","filter":"1=1","k":"5"}',
    b'{"c":"\xff"}',
    b'{"c":"sow","t":"' + b"x" * 100_000 + b'"}',
    b'{"c":"sow","t":"orders","filter":"' + b"(" * 60_000 + b'"}',
    b'{"c":"sow","t":"orders","filter":"' + b"x" * 200_000 + b'"}',
    b'{"c":' * 100_000,
]


@all_cases("line", LINES)
def test_a_bad_line_is_answered_with_a_failure_and_the_next_is_served(server, line):
    with server.socket() as ws:
        ws.send_frame(line, binary=True)
        failure = ws.line()
        assert (failure["c"], failure["status"]) == ("ack", "failure"), failure
        assert failure["detail"]
        assert ws.ask({"c": "flush"})[-1]["status"] == "success"
    assert server.records("orders") == []


def test_a_client_that_closes_its_sending_side_is_answered(server):
    server.publish("orders", *({"id": number} for number in range(2000)))
    ask = b"GET /v1/topics/orders/records?top_n=%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
    said = server.raw(ask % 1500 + ask % 1)
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert b'"id": 1499' in said
    assert server.raw(b"GET /v1/topics HT") == b""


def test_who_asks_for_subprotocols_is_let_in_and_not_repeated_in_the_log(server, caplog):
    with server.socket(protocols=["p" * 50] * 50) as ws:
        ws.send({"c": "heartbeat"})
        assert ws.line()["c"] == "heartbeat"
    assert "ppp" not in caplog.text


@pytest.mark.parametrize(
    "parameters",
    [
        {"expiration": "-1"},
        {"expiration": "nan"},
        {"expiration": "1e308"},
        {"ack": "perhaps"},
        {"meta": "perhaps"},
        {"meta": "true"},
        {"meta": "true", "k": "1"},
    ],
    ids=json.dumps,
)
def test_bad_parameters_of_a_publish_are_refused(server, parameters):
    assert server.publish("short", {"id": 1}, **parameters).status == 400
    assert server.records("short") == []


@pytest.mark.parametrize("key", ["a\nb", "", "x" * 1000, "é"])
def test_a_bad_explicit_key_is_refused(server, key):
    answer = server.post("binary", b"\x00", kind="application/octet-stream", k=key)
    assert answer.status == 400
