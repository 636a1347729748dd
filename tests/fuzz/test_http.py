"""Whatever comes in over HTTP, it is answered below 500, nothing is logged, and the next works."""

import json
from urllib.parse import quote

from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.conftest import FUZZ
from tests.fuzz.inputs import (
    CSV,
    MESSAGES,
    TOPICS,
    TYPED,
    documents,
    edited,
    expressions,
    json_bytes,
    values,
)

KINDS = (
    "application/json",
    "application/x-ndjson",
    "text/plain",
    "application/octet-stream",
    "application/vnd.sow.frames",
    "application/xml",
    "application/bson",
    "application/vnd.msgpack",
    "text/csv",
    "nonsense",
)
NAMES = ("filter", "order_by", "top_n", "skip_n", "keys", "meta", "explain", "select", "as_of", "x")
EVENT_NAMES = ("filter", "snapshot", "oof", "conflation", "delta", "bookmark", "x")
LOG_NAMES = ("topics", "from", "to", "limit", "x")
REQUEST = (
    b"POST /v1/topics/orders/records?k=1 HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\n"
    b'Accept: application/json\r\nContent-Length: 8\r\nConnection: close\r\n\r\n{"id":1}'
)

bodies = st.one_of(
    edited(documents.map(json_bytes)),
    edited(st.lists(documents, max_size=3).map(json_bytes)),
    values.map(json_bytes),
    edited(st.sampled_from([b"\0\0\0\x02{}", b"id=1|a=2|", b"11=a\x01", b"1.5", b"-7", CSV])),
    edited(st.sampled_from(MESSAGES)),
    st.binary(max_size=50),
)
texts = expressions | st.sampled_from(["true", "false", "0", "5", "-1", "now", "none", "1" * 25])


def parameters(names):
    pair = st.tuples(st.sampled_from(names), texts | st.binary(max_size=5))
    return st.lists(pair, max_size=3).map(
        lambda pairs: "&".join(f"{name}={quote(value, safe='')}" for name, value in pairs)
    )


def well(running, *answers):
    for answer in answers:
        assert answer.status < 500, answer.body
        if answer.status >= 400 and answer.headers["Content-Type"] == "application/problem+json":
            assert answer.json["detail"]
    assert running.errors == []
    assert running.publish("orders", {"id": "probe"}).status == 200
    assert running.records("orders", filter="/id = 'probe'") == [{"id": "probe"}]


@FUZZ
@given(st.sampled_from(TOPICS + TYPED), bodies, st.sampled_from(KINDS), st.booleans())
def test_any_body_is_answered(running, topic, body, kind, keyed):
    query = "?k=key" if keyed else ""
    path = f"/v1/topics/{quote(topic, safe='')}/records{query}"
    answer = running.request("POST", path, data=body, headers={"Content-Type": kind})
    well(running, answer)
    if answer.status == 200:
        assert running.get(f"/v1/topics/{quote(topic, safe='')}/records?meta=true").json


@FUZZ
@given(st.sampled_from(TOPICS), bodies, st.sampled_from(KINDS))
def test_any_delete_is_answered(running, topic, body, kind):
    path = f"/v1/topics/{quote(topic, safe='')}/records"
    well(running, running.request("DELETE", path, data=body, headers={"Content-Type": kind}))


@FUZZ
@given(st.sampled_from(TOPICS[:6]), parameters(NAMES))
def test_any_query_is_answered(running, topic, query):
    running.publish("orders", {"id": 1, "a": [1, "x"], "b": {"c": None}})
    answer = running.get(f"/v1/topics/{topic}/records?{query}")
    well(running, answer)
    if answer.status == 200:
        json.loads(answer.body)


@FUZZ
@given(st.text(st.characters(codec="utf-8", exclude_characters="]"), min_size=1, max_size=40))
@example("a\r\nX-Evil: 1")
@example("a\0b")
@example("\x7f\x85\u2028")
@example("é" * 2000)
@example("x" * 20_000)
def test_a_filter_on_a_field_of_any_name_is_answered(running, name):
    """What an index is called says what the client wrote, in a header."""
    running.publish("orders", {"id": 1})
    answers = []
    for condition in (f"[/{name}] = 1", f"[/{name}] > 1", f"[/{name}] IS NULL"):
        for explain in ("false", "true"):
            query = f"filter={quote(condition)}&explain={explain}"
            answers.append(running.get(f"/v1/topics/orders/records?{query}"))
    well(running, *answers)
    for answer in answers:
        assert "X-Evil" not in answer.headers
        index = answer.headers.get("SOW-Index", "")
        assert index.isascii()
        assert index.isprintable()


@FUZZ
@given(parameters(NAMES), st.text(max_size=20), st.text(max_size=20))
def test_any_path_is_answered(running, query, first, second):
    path = f"/v1/topics/{quote(first, safe='')}/records/{quote(second, safe='')}?{query}"
    well(running, running.get(path), running.get("/" + quote(first + second)))


@FUZZ
@given(parameters(LOG_NAMES))
def test_any_range_of_the_log_is_answered(running, query):
    answer = running.get(f"/v1/log?limit=50&{query}")
    well(running, answer)
    if answer.status == 200:
        assert int(answer.headers["SOW-Bookmark"]) >= 0
        assert len(answer.rows) <= 50


@FUZZ
@given(parameters(EVENT_NAMES), st.sampled_from(TOPICS[:7]))
def test_any_stream_is_opened_or_refused(running, query, topic):
    head = f"GET /v1/topics/{quote(topic)}/stream?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running.connection() as raw:
        raw.sendall(head.encode())
        status = raw.recv(4096).split(b" ")[1]
    assert status[:1] in (b"2", b"4")
    well(running)


@FUZZ
@given(edited(st.just(REQUEST)))
def test_any_bytes_on_the_port_are_survived(running, data):
    running.drop(data)
    well(running)


@FUZZ
@given(edited(st.just(REQUEST[:150])), st.binary(max_size=30))
def test_what_is_said_to_any_bytes_is_never_a_5xx(running, head, more):
    answer = running.raw(head + more + b"\r\n\r\n")
    assert not answer.startswith(b"HTTP/1.1 5"), answer
    well(running)
