"""HTTP requests of a chained server: forwarded, and refused while upstream is lost."""

import pytest

from sow.server.http.negotiation import FORMAT_ENDINGS
from tests.edge.serving import records


def test_requests_are_answered_from_upstream(pair):
    assert pair.chained.publish("orders", {"id": 1}, {"id": 2}).json["published"] == 2
    assert pair.chained.records("orders") == [{"id": 1}, {"id": 2}]
    assert pair.upstream.records("orders") == [{"id": 1}, {"id": 2}]
    answer = pair.chained.get(records("nix"))
    assert (answer.status, answer.json["reason"]) == (404, "invalid topic")
    assert pair.chained.get("/v1/topics/orders").json["name"] == "orders"
    log = pair.chained.get("/readyz").headers["SOW-Log"]
    assert log == pair.upstream.get("/readyz").headers["SOW-Log"]
    status = pair.chained.get("/v1/status").json
    assert (status["role"], status["log"], status["state_hash"]) == ("chained", log, None)
    assert status["upstream"] == pair.relay.url
    answer = pair.chained.get(records("orders", min_bookmark=2))
    assert answer.headers["SOW-Bookmark"] == "2"


def test_what_is_no_bookmark_is_refused_by_all_that_it_answers(pair):
    for path in ("/v1/status", "/v1/sessions", "/v1/topics"):
        for text in ("%25", "x", "-1"):
            answer = pair.chained.get(f"{path}?min_bookmark={text}")
            assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
        assert pair.chained.get(f"{path}?min_bookmark=0").status == 200
        log = pair.upstream.get("/readyz").headers["SOW-Log"]
        assert pair.chained.get(f"{path}?min_bookmark={log}-0").status == 200
        answer = pair.chained.get(f"{path}?min_bookmark={'f' * 16}-0")
        assert (answer.status, answer.json["reason"]) == (409, "another log")


def test_an_answer_is_that_of_upstream_in_every_form(pair):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(500)))
    for headers in ({}, {"Accept-Encoding": "gzip"}, {"Accept": "text/csv"}):
        found = [
            server.request("GET", records("orders"), headers=headers)
            for server in (pair.chained, pair.upstream)
        ]
        assert found[0].body == found[1].body
        for name in ("ETag", "Content-Encoding", "Content-Type", "SOW-Bookmark"):
            assert found[0].headers.get(name) == found[1].headers.get(name)
    tag = found[0].headers["ETag"]
    again = {"If-None-Match": tag, "Accept": "text/csv"}
    assert pair.chained.request("GET", records("orders"), headers=again).status == 304
    with pair.chained.events("orders", filter="/id = 1", snapshot="true") as events:
        assert [event.name for event in events.until("group_end")][1] == "sow"


def test_a_target_that_is_a_whole_address_is_that_of_this_server(pair):
    pair.upstream.publish("orders", {"id": 1})
    target = "http://127.0.0.1:1/v1/topics/orders/records?filter=/id=1"
    head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = pair.chained.said(head.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'[{"id": 1}]' in answer


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ("Accept: text/csv\r\nConnection: close, X-Own\r\nX-Own: 1", "text/csv"),
        ("Accept: text/csv;q=0.1\r\nAccept: application/json\r\nConnection: close", "json"),
        ("Accept: application/json\r\nAccept: text/csv;q=0.1\r\nConnection: close", "json"),
    ],
)
def test_headers_that_are_sent_twice_count_twice(pair, headers, kind):
    head = f"GET {records('orders')} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    answer = pair.chained.said(head.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert kind.encode() in answer.partition(b"Content-Type:")[2].partition(b"\r\n")[0]


def test_nothing_is_requested_that_the_client_has_not_requested(pair):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(500)))
    target = f"{records('orders')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for more in ("\r\n", "Range: bytes=1-9\r\n\r\n"):
        request = f"GET {target}{more}".encode()
        answer, straight = (server.said(request) for server in (pair.chained, pair.upstream))
        assert b"Content-Encoding" not in answer
        assert answer.split(b"\r\n", 1)[0] == straight.split(b"\r\n", 1)[0]
    assert answer.endswith(b'\r\n\r\n{"id": 0,')
    # Not even the type of a body.
    body = b'{"id": 501}'
    head = f"POST {target}Content-Length: {len(body)}\r\n\r\n".encode()
    found = [server.said(head + body)[:15] for server in (pair.chained, pair.upstream)]
    assert found[0] == found[1]


@pytest.mark.parametrize("ending", FORMAT_ENDINGS)
def test_a_file_is_that_of_upstream(pair, ending):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(50)))
    for path in (f"/v1/topics/orders/records.{ending}", f"/v1/log.{ending}"):
        found = [server.get(path) for server in (pair.chained, pair.upstream)]
        assert found[0].body == found[1].body
        for name in ("ETag", "Content-Type", "Content-Length", "Content-Disposition"):
            assert found[0].headers[name] == found[1].headers[name]
        part = {"Range": "bytes=5-9", "If-Range": found[0].headers["ETag"]}
        answer = pair.chained.request("GET", path, headers=part)
        assert (answer.status, answer.body) == (206, found[1].body[5:10])
