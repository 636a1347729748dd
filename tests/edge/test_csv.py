"""CSV over HTTP: out by header and by parameter, in as a publish, and the log."""

import csv
import io

import pytest

from tests.edge.serving import configuration, records, served

TOPICS = """<Topic><Name>plain</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>typed</Name><MessageType>json</MessageType><Key>/id</Key><Schema>
<Field type="string">/id</Field><Field type="decimal(30,20)">/px</Field></Schema></Topic>
<Topic><Name>notes</Name><MessageType>string</MessageType></Topic>
<Topic><Name>fixed</Name><MessageType>fix</MessageType><Key>/1</Key></Topic>"""
DIGITS = "0.12345678901234567890"


running = served(configuration(TOPICS), checks=False)


@pytest.fixture
def place(running):
    running.clear()
    yield running
    assert running.errors == []


def rows(answer):
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"].startswith("text/csv")
    return list(csv.reader(io.StringIO(answer.body.decode(), newline="")))


def test_numbers_keep_their_digits_on_the_way_out_and_in(place):
    body = f"id,px,big\r\n007,{DIGITS},123456789012345678901234567890\r\n".encode()
    assert place.post("typed", body, "text/csv").json["published"] == 1
    stored = place.get(records("typed")).body
    expected = f'[{{"id":"007","px":{DIGITS},"big":123456789012345678901234567890}}]'
    assert stored == expected.encode()
    answer = place.get(records("typed"), "text/csv")
    assert answer.body == body
    assert answer.headers["SOW-Matches"] == "1"
    assert rows(place.get(records("typed", format="csv"))) == rows(answer)


def test_rows_may_be_deltas_and_of_other_types(place):
    place.publish("plain", {"id": 1, "a": {"b": 1, "c": 2}})
    headers = {"Content-Type": "text/csv; charset=utf-8"}
    place.request("PATCH", records("plain"), data=b"id,/a/b\n1,7\n", headers=headers)
    assert place.records("plain") == [{"id": 1, "a": {"b": 7, "c": 2}}]
    assert place.post("fixed", b"1,55\nx,A\n", "text/csv").json["published"] == 1
    assert rows(place.get(records("fixed", format="csv"))) == [["1", "55"], ["x", "A"]]
    assert place.post("notes", b"value\nx\n", "text/csv", k="1").status == 200
    place.post("notes", b'say "hi"', "text/plain", k="1")
    assert rows(place.get(records("notes", format="csv"))) == [["value"], ['say "hi"']]


def test_the_log_is_a_table_too(place):
    place.publish("plain", {"id": 1, "px": 1.50})
    start = int(place.get("/v1/log/extent").json["newest"]) - 1
    head, row = rows(place.get(f"/v1/log?topics=plain&from={start}&format=csv"))
    assert head == ["seq", "bm", "ts", "topic", "op", "k", "d"]
    assert row[3:5] + row[6:] == ["plain", "publish", '{"id": 1, "px": 1.5}']
    assert rows(place.get(f"/v1/log?topics=plain&from={start + 1}", "text/csv")) == [head]
    assert place.get("/v1/log/extent?format=csv").status == 400
