"""HTTP: every address and every parameter, asked over a real socket."""

import json
from urllib.parse import quote

import pytest

from tests.edge.serving import records

ORDERS = [
    {"id": 1, "symbol": "A", "price": 10},
    {"id": 2, "symbol": "B", "price": 30},
    {"id": 3, "symbol": "A", "price": 20},
]


@pytest.fixture
def orders(server):
    assert server.publish("orders", *ORDERS).status == 200
    return server


def ids(rows):
    return [row["id"] for row in rows]


def test_a_publish_reports_how_many_and_the_bookmark_of_the_last(server):
    first = server.publish("orders", {"id": 1}).json
    second = server.publish("orders", {"id": 2}, {"id": 3}).json
    assert second["published"] == 2
    assert int(second["bookmark"]) == int(first["bookmark"]) + 2


@pytest.mark.parametrize("topic", ["orders-C", "/sow/consumers", "nope"])
@pytest.mark.parametrize("body", [b"", b"[]", b'{"id":1}'])
def test_nothing_is_refused_where_something_would_be(server, topic, body):
    answers = [server.post(topic, sent) for sent in (body, b'[{"id":1}]')]
    assert [answer.body for answer in answers] == [answers[1].body] * 2
    assert answers[0].json["reason"] == "invalid topic"


def test_a_publish_may_be_answered_when_it_is_visible(server):
    assert server.publish("orders", {"id": 1}, ack="processed").status == 200
    assert ids(server.records("orders")) == [1]


def test_a_record_keeps_the_bytes_that_came(server):
    server.post("orders", b'[ {"id" :1.50,  "b":"\\u00e9"} ]')
    assert server.get(records("orders")).body == b'[{"id" :1.50,  "b":"\\u00e9"}]'


def test_a_query_answers_in_first_publish_order_with_its_headers(orders):
    orders.publish("orders", {"id": 1, "symbol": "A", "price": 11})
    answer = orders.get(records("orders"))
    assert ids(answer.json) == [1, 2, 3]
    assert answer.headers["SOW-Matches"] == "3"
    assert answer.headers["SOW-Index"] == "scan"
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"filter": "/symbol = 'A'"}, [1, 3]),
        ({"filter": "/price > 15"}, [2, 3]),
        ({"order_by": "/price DESC"}, [2, 3, 1]),
        ({"order_by": "/symbol,/price DESC"}, [3, 1, 2]),
        ({"order_by": "/price * -1"}, [2, 3, 1]),
        ({"order_by": "/symbol = 'A' DESC, /id * -1"}, [3, 1, 2]),
        ({"top_n": 2}, [1, 2]),
        ({"skip_n": 1}, [2, 3]),
        ({"top_n": 1, "skip_n": 1, "order_by": "/price"}, [3]),
        ({"top_n": 0}, []),
        ({"top_n": 999_999_999}, [1, 2, 3]),
        ({"keys": "7"}, []),
    ],
)
def test_parameters_choose_order_and_page(orders, parameters, expected):
    assert ids(orders.records("orders", **parameters)) == expected


def test_explain_reports_the_terms_and_the_rows(orders):
    told = orders.records("orders", filter="/symbol = 'A' AND /price > 15", explain="true")
    assert {"terms", "rows_touched", "advice"} <= told.keys()
    assert all({"expression", "index", "rows"} == term.keys() for term in told["terms"])


def test_meta_wraps_each_record(orders):
    row = orders.records("orders", meta="true")[0]
    assert row["d"] == ORDERS[0]
    assert row.keys() == {"k", "bm", "ts", "d"}
    assert row["ts"].endswith("Z")
    assert orders.records("orders", keys=row["k"]) == [ORDERS[0]]


def test_ndjson_is_a_record_a_line(orders):
    answer = orders.get(records("orders"), "application/x-ndjson")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.rows == ORDERS


def test_a_record_of_a_conflated_topic_is_named_by_values_too(server):
    server.publish("orders", {"id": "a,b"})
    while {"id": "a,b"} not in server.records("orders-C"):
        pass  # its window is 100 ms
    for key in ('"a,b"', "a"):
        named = quote(f"key={key}")
        newest = server.get("/v1/log/extent").json["newest"]
        answers = [
            server.get(records("orders-C", key=key)),
            server.get(f"{records('orders-C')}/{named}"),
            server.get(f"{records('orders-C')}/{named}/why"),
            server.get(f"{records('orders-C')}/{named}/why?as_of={newest}"),
        ]
        statuses = {answer.status for answer in answers}
        assert statuses == ({200} if key != "a" else {404})


def test_a_topic_name_is_percent_encoded_in_the_path(server):
    assert server.publish("/my/orders", {"id": 1}).status == 200
    assert server.get("/v1/topics/%2Fmy%2Forders/records").json == [{"id": 1}]


def test_a_patch_leaves_the_lifetime_of_a_record_as_it_is_or_takes_it_away(server):
    server.publish("short", {"id": 1}, expiration=900)
    server.publish("short", {"id": 2}, expiration=0)
    table = server.server.engine.topics["short"].records.table
    before = server.call(table.expiries, ["1", "2"], -1)
    assert before[0] > before[1] == 0
    server.request("PATCH", records("short"), json=[{"id": 1, "v": 2}, {"id": 2, "v": 2}])
    assert server.records("short") == [{"id": 1, "v": 2}, {"id": 2, "v": 2}]
    assert server.call(table.expiries, ["1", "2"], -1) == before
    server.request("PATCH", records("short", expiration=0), json=[{"id": 1, "v": 3}])
    assert [*server.call(table.expiries, ["1", "2"], -1)] == [0, 0]


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_what_a_query_with_meta_returns_is_published_with_its_lifetimes(server, accept):
    server.publish("short", {"id": 1}, expiration=900)
    server.publish("short", {"id": 2}, {"id": 3}, expiration=0)
    before = server.get(records("short", meta="true"), accept)
    assert sum(b'"expires":"' in line for line in before.body.split(b"}")) == 1
    server.clear()
    answer = server.post("short", before.body, accept, meta="true")
    assert (answer.status, answer.json["published"]) == (200, 3)
    seen = [
        [(row["k"], row["d"], row.get("expires")) for row in found]
        for found in (server.records("short", meta="true"), _rows(before))
    ]
    assert seen[0] == seen[1]
    patched = server.request(
        "PATCH", records("short", meta="true"), data=before.body, headers={"Content-Type": accept}
    )
    assert (patched.status, "meta" in patched.json["detail"]) == (400, True)


def _rows(answer):
    return answer.json if answer.body.startswith(b"[") else answer.rows


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v1/log?from=[0:5]", "from=[0:5] is a range; write its beginning here"),
        ("GET", "/v1/log/extent?from=(0:5)", "from=(0:5) is a range; write its beginning here"),
        ("GET", "/v1/log?from=2&to=1", "to=1 ends before from=2 begins"),
        ("POST", "/v1/snapshots?topic=orders&as_of=[0:1]", "as_of=[0:1] is a range; a state is"),
    ],
)
def test_a_range_where_one_moment_is_requested_is_refused_with_what_to_write(
    server, method, path, says
):
    server.publish("orders", {"id": 1}, {"id": 2})
    answer = server.request(method, path)
    assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
    assert says in answer.json["detail"]


def test_the_extent_of_a_filtered_log_counts_what_the_log_shows(server):
    start = server.get("/v1/log?limit=1000000").headers["SOW-Bookmark"]
    server.publish("orders", *({"id": n, "price": n} for n in range(5)))
    question = f"from={start}&topics=orders&filter=/price%20>%202&limit=4"
    log, extent = (server.get(f"/v1/{name}?{question}") for name in ("log", "log/extent"))
    assert [row["d"]["id"] for row in log.rows] == [3]
    assert (extent.json["rows"], extent.json["to"]) == (1, log.headers["SOW-Bookmark"])


@pytest.mark.parametrize(
    "path",
    [
        records("binary", filter="/a = 1"),
        records("binary", order_by="/a"),
        "/v1/topics/binary/stream?filter=/a%20=%201",
        "/v1/log?topics=binary&filter=/a%20=%201",
        "/v1/log/extent?topics=binary&filter=/a%20=%201",
    ],
)
def test_a_question_about_fields_is_refused_where_messages_have_none(server, path):
    answer = server.get(path)
    assert answer.status == 400
    assert "have no fields" in answer.json["detail"]


def test_nothing_is_deleted_by_fields_that_messages_have_not(server):
    server.post("binary", b"text", "application/octet-stream", k="mine")
    answer = server.request("DELETE", records("binary", filter="/a IS NULL"))
    assert (answer.status, answer.json["reason"]) == (400, "bad filter")
    assert server.get(records("binary") + "/mine").body == b"text"
    assert server.request("DELETE", records("binary", filter="1=1")).json == {"deleted": 1}


@pytest.mark.parametrize(
    ("method", "topic", "words"),
    [
        ("POST", "/sow/writes", "publish to"),
        ("DELETE", "/sow/writes", "delete from"),
        ("POST", "orders-C", "publish to orders"),
        ("DELETE", "orders-C", "delete from orders"),
    ],
)
def test_a_refusal_speaks_of_what_was_requested(server, method, topic, words):
    answer = server.request(
        method, records(topic, filter="1=1") if method == "DELETE" else records(topic)
    )
    assert (answer.status, answer.json["reason"]) == (400, "invalid topic")
    assert words in answer.json["detail"]


def test_the_servers_own_topics_are_never_suggested(server):
    for name in ("nope", "/sow/write", "sow/consumers"):
        assert "/sow/" not in server.get(records(name)).json["detail"].partition(";")[2]


def test_what_a_session_follows_is_sent_with_what_its_conflation_has_come_to(server):
    with server.socket() as ws:
        session = ws.ask({"c": "logon", "client": "me"})[-1]["id"]
        ws.ask({"c": "subscribe", "t": "orders", "filter": "/price > 1", "opts": "conflation=1h"})
        server.publish("orders", {"id": 1, "price": 2}, {"id": 1, "price": 3}, {"id": 2})
        found = server.get(f"/v1/sessions/{session}").json
        (one,) = found["following"]
        assert found["subscriptions"] == 1
        assert (one["topic"], one["filter"], one["interval_ms"]) == ("orders", "/price > 1", 3.6e6)
        assert (one["updates_in"], one["pending"], one["updates_out"]) == (2, 1, 0)
    assert server.get("/v1/sessions/none").status == 404


@pytest.mark.parametrize("path", ["/v1/topics/nope", records("nope"), records("nope") + "/1"])
def test_an_unknown_topic_is_not_found_and_the_known_are_named(server, path):
    answer = server.get(path)
    assert answer.status == 404
    assert "orders" in answer.json["detail"]


@pytest.mark.parametrize("parameter", ["filtr=1=1", "Filter=1=1", "top_n=1&top_n=2"])
def test_an_unknown_or_repeated_parameter_is_refused(server, parameter):
    assert server.get(f"/v1/topics/orders/records?{parameter}").status == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("PUT", "/v1/topics", 405, "method not allowed"),
        ("DELETE", "/", 405, "method not allowed"),
        ("GET", "/v2", 404, "not found"),
        ("POST", "/v1/topics/orders/nothing", 404, "not found"),
    ],
)
def test_a_wrong_address_or_method_is_a_problem(server, method, path, status, reason):
    answer = server.request(method, path)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (status, status, reason)
    assert ("Allow" in answer.headers) == (status == 405)


def test_a_table_without_names_is_refused(server):
    body = b"id,v\r\n7,8\r\n"
    refused = server.post("orders", body, "text/csv; header=absent")
    assert (refused.status, refused.json["reason"]) == (415, "unsupported media type")
    assert "names in the first line" in refused.json["detail"]
    assert server.records("orders") == []
    assert server.post("orders", body, 'text/csv; charset=utf-8; header="present"').status == 200


def test_a_filter_of_the_full_size_fits_into_an_address(orders):
    condition = " OR ".join(f"/symbol = '{'é' * 60}{n}'" for n in range(400))
    assert 50_000 < len(condition.encode()) < 65_536
    assert orders.records("orders", filter=condition + " OR /id = 2") == [ORDERS[1]]


def test_each_form_of_a_record_has_a_tag_of_its_own_and_any_is_good_for_a_change(server):
    server.post("fix", b"11=a\x0138=7\x01", "text/plain")
    (row,) = server.records("fix", meta="true")
    path = f"{records('fix')}/{row['k']}"
    stored, document = server.get(path), server.get(path, "application/json")
    assert (stored.body, document.json) == (b"11=a\x0138=7\x01", {"11": "a", "38": "7"})
    tags = [stored.headers["ETag"], document.headers["ETag"]]
    assert tags[0] != tags[1]
    for answer in (stored, document):
        assert "Accept" in answer.headers.getall("Vary")
    for accept, known in (("*/*", 0), ("application/json", 1)):
        for at, tag in enumerate(tags):
            requested = {"Accept": accept, "If-None-Match": tag}
            found = server.request("GET", path, headers=requested)
            assert found.status == (304 if at == known else 200)
    for tag, body in zip(tags, (b"11=a\x0138=8\x01", b"11=a\x0138=9\x01"), strict=True):
        requested = {"If-Match": tag, "Content-Type": "text/plain"}
        put = server.request("PUT", path, data=body, headers=requested)
        assert put.status == (200 if tag == tags[0] else 412), "it has been changed by then"
        again = server.get(path, "application/json").headers["ETag"]
        requested["If-Match"] = again
        assert server.request("PUT", path, data=body, headers=requested).status == 200


@pytest.mark.parametrize("kind", ["ndjson", "csv", "arrow"])
def test_a_range_of_the_log_has_its_length_and_a_tag(server, kind):
    server.publish("orders", *({"id": at, "note": "n" * 300} for at in range(500)))
    path = f"/v1/log?topics=orders&format={kind}"
    answer, head = server.get(path), server.request("HEAD", path)
    for one in (answer, head):
        assert one.headers["Content-Length"] == str(len(answer.body))
        assert one.headers["ETag"] == answer.headers["ETag"]
    known = {"If-None-Match": answer.headers["ETag"]}
    assert server.request("GET", path, headers=known).status == 304


def test_the_tag_of_a_packed_record_is_good_for_a_change(server):
    server.publish("orders", {"id": 1, "note": "long " * 1000})
    (row,) = server.records("orders", meta="true")
    path = f"{records('orders')}/{row['k']}"
    packed = server.request("GET", path, headers={"Accept-Encoding": "gzip"})
    tag = packed.headers["ETag"]
    assert tag.startswith(f'W/"{row["bm"]}.')
    known = server.request("GET", path, headers={"Accept-Encoding": "gzip", "If-None-Match": tag})
    assert (known.status, known.body) == (304, b"")
    body = json.dumps({"id": 1}).encode()
    requested = {"If-Match": tag, "Content-Type": "application/json"}
    assert server.request("PUT", path, data=body, headers=requested).status == 200
    assert server.request("PUT", path, data=body, headers=requested).status == 412
