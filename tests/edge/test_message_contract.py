"""What the doors promise of every message type: runs for each of `tests.messages.examples`."""

import json
from dataclasses import replace

import orjson
import pyarrow as pa
import pytest

from sow.cli.commands.dump import cut_frames
from sow.messages import message_type
from sow.messages.json import json_text
from tests.edge.serving import Running, records
from tests.messages.examples import EXAMPLES, OPTIONS, configured, topic_of


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    topics = "".join(map(topic_of, EXAMPLES))
    server = Running(replace(configured(topics), port=0), tmp_path_factory.mktemp("data"))
    yield server
    server.close()


@pytest.fixture(params=EXAMPLES)
def name(request):
    return request.param


@pytest.fixture
def kind(name):
    return message_type(name, OPTIONS)


def body_of(kind, name, number=1, other=10):
    return kind.encode(EXAMPLES[name].record(number, other))


def with_key(name):
    return {} if EXAMPLES[name].key else {"k": "1"}


def only(server, name):
    """The one record as JSON, and as it is."""
    (row,) = server.records(name, meta="true")
    return row["d"], server.get(f"{records(name)}/{row['k']}")


def document(kind, body):
    """What JSON says of a message."""
    return orjson.loads(json_text(kind.parse(body)) if kind.structured else kind.to_line(body))


@pytest.mark.parametrize("form", ["its own", "application/octet-stream"])
def test_a_message_comes_and_goes_as_it_is(server, name, kind, form):
    body = body_of(kind, name)
    content_type = kind.media_type if form == "its own" else form
    answer = server.post(name, body, content_type, **with_key(name))
    assert answer.status == 200, answer.body
    said, record = only(server, name)
    assert said == document(kind, body)
    assert record.body == body
    assert record.headers["Content-Type"].split(";")[0] == kind.media_type


def test_many_come_and_go_in_frames(server, name, kind):
    if not EXAMPLES[name].key:
        return  # each would need a key
    bodies = [body_of(kind, name, number) for number in (1, 2)]
    framed = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    assert server.post(name, framed, "application/vnd.sow.frames").status == 200
    assert server.get(records(name), "application/vnd.sow.frames").body == framed
    answer = server.get(records(name, meta="true"), "application/vnd.sow.frames")
    found, rest = cut_frames(answer.body)
    assert (found[1::2], rest) == (bodies, b"")
    assert [json.loads(head).keys() for head in found[::2]] == [{"k", "bm", "ts"}] * 2


def test_a_document_stands_for_its_message(server, name, kind):
    if not kind.structured:
        return
    said = document(kind, body_of(kind, name))
    for form, text in (
        ("application/json", json.dumps([said])),
        ("application/x-ndjson", json.dumps(said)),
    ):
        server.clear()
        answer = server.post(name, text.encode(), form)
        assert answer.status == 200, answer.body
        assert only(server, name)[0] == said
    record = only(server, name)[1]
    assert document(kind, record.body) == said


def test_one_record_comes_as_json_for_who_asks(server, name, kind):
    body = body_of(kind, name)
    server.post(name, body, "application/octet-stream", **with_key(name))
    (row,) = server.records(name, meta="true")
    answer = server.get(f"{records(name)}/{row['k']}", "application/json")
    if kind.structured:
        assert (answer.status, answer.json) == (200, document(kind, body))
    else:
        assert answer.status == 406


def test_lines_of_a_socket_carry_text_or_base64(server, name, kind):
    body = body_of(kind, name)
    with server.socket() as ws:
        ws.ask({"c": "subscribe", "t": name}, cid="s")
        d = orjson.loads(kind.to_line(body))
        ws.send({"c": "publish", "t": name, "d": d, **with_key(name)})
        line = ws.until(c="p")[-1]
    assert line["d"] == d
    assert line.get("enc") == kind.enc
    assert isinstance(line["d"], dict if name == "json" else str)


def test_a_document_may_stand_in_a_line(server, name, kind):
    if not kind.structured:
        return
    said = document(kind, body_of(kind, name))
    with server.socket() as ws:
        assert ws.ask({"c": "publish", "t": name, "d": said})[-1]["status"] == "success"
    assert server.records(name) == [said]


REFUSALS = ((400, "bad message"), (413, "too large"))


def test_bad_and_hostile_bodies_are_refused_in_a_sentence(server, name, kind):
    example = EXAMPLES[name]
    for bad in (example.bad, *example.hostile):
        if bad:
            answer = server.post(name, bad, "application/octet-stream", **with_key(name))
            assert (answer.status, answer.json["reason"]) in REFUSALS, answer.body
            assert answer.json["index"] == 0
            assert len(answer.json["detail"]) < 600
    assert server.records(name) == []


def test_another_format_is_refused_with_what_to_send(server, name, kind):
    other = "application/bson" if kind.media_type != "application/bson" else "application/xml"
    answer = server.post(name, b"x", other, **with_key(name))
    assert answer.status == 415
    assert f"send {kind.media_type}" in answer.json["detail"]


def test_columns_of_arrow_are_the_fields(server, name, kind):
    server.post(name, body_of(kind, name), "application/octet-stream", **with_key(name))
    answer = server.get(records(name), "application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(answer.body).read_all()
    expected = EXAMPLES[name].record(1, 10)
    assert table.column_names == (list(expected) if kind.structured else ["value"])
