"""Series over lives of a process on a disk, and over the doors of a server."""

import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series
from sow.security.authorization import EVERYTHING
from sow.sessions.commands import record_ops
from sow.store import manifest
from sow.store.restoring import restore
from tests.edge.lives import NOW_US, ORDERS, backed_up, lives_on, refused
from tests.edge.serving import records

PRICES = replace(ORDERS, name="prices", series=Series(events_max=4))
DESKS = replace(PRICES, name="desks", pattern="^/desk/")
LATER_US = NOW_US + 10**12


def append(life, number, author="ann", topic="prices"):
    body = json.dumps({"id": 1, "n": number}).encode()
    found = life.engine.publishable(topic)
    life.engine.publish_slice(found, [body], NOW_US + number, author)
    life.store()


def edit(life, seq, number):
    topic = life.engine.topic("prices")
    body = json.dumps({"id": 1, "n": number}).encode()
    message = life.engine.read(topic, [body], now_us=NOW_US, author="eve")
    rights = lambda: EVERYTHING  # noqa: E731
    run_to_completion(record_ops.edit(life.engine, "prices", seq, message, NOW_US, rights=rights))
    life.store()


def events(life, topic="prices"):
    kept = life.engine.topics[topic].records.events
    return [(event.author, json.loads(event.body)["n"]) for event in kept.last("1", 99)]


EDITED = [("eve", 20), ("ann", 3), ("ann", 4), ("bob", 5)]


def test_events_and_edits_outlive_the_process_with_a_checkpoint_and_without(live):
    with live(PRICES, DESKS) as life:
        for number in (1, 2, 3):
            append(life, number)
        append(life, 7, topic="/desk/1")
    with live(PRICES, DESKS) as life:
        life.checkpoint()
        append(life, 4)
        append(life, 5, "bob")
        edit(life, 2, 20)
        assert events(life) == EDITED
    with live(PRICES, DESKS) as life:
        assert events(life) == EDITED
        life.checkpoint()
        life.trim()
    with live(PRICES, DESKS) as life:
        assert (events(life), events(life, "/desk/1")) == (EDITED, [("ann", 7)])
        life.engine.check()
        life.delete("prices")
    with live(PRICES, DESKS) as life:
        assert life.engine.topic("prices").records.events.count == 0


def test_a_backup_has_the_events(tmp_path):
    live = lives_on(tmp_path / "data")
    with live(PRICES) as life:
        for number in (1, 2, 3):
            append(life, number)
        life.checkpoint()
        append(life, 4)
        append(life, 5, "bob")
        edit(life, 2, 20)
        backup = backed_up(life, tmp_path / "backup")
    restore(backup, tmp_path / "again", now_us=LATER_US)
    with lives_on(tmp_path / "again")(PRICES) as life:
        assert events(life) == EDITED
        table = life.engine.topic("prices").records
        assert table.events.newest("1").seq == int(table.table.seqs[0])
        append(life, 6)
        assert events(life) == [*EDITED[1:], ("ann", 6)]


def test_a_topic_may_become_a_series_and_cease_to_be_one_at_a_start(live):
    plain = replace(PRICES, series=None)
    with live(plain) as life:
        life.publish("prices", {"id": 1, "n": 1})
        life.checkpoint()
    with live(PRICES) as life:
        assert events(life) == [("", 1)]
        append(life, 2)
        life.checkpoint()
        append(life, 3)
    with live(plain) as life:
        assert life.records("prices") == [{"id": 1, "n": 3}]


def test_an_earlier_release_refuses_the_directory(live, monkeypatch):
    with live(PRICES) as life:
        append(life, 1)
    monkeypatch.setattr(manifest, "FORMAT", 2)
    refused(live, PRICES, match="later release .format 3, this one reads up to 2")


def test_a_directory_without_a_series_is_of_the_format_before(live):
    with live(ORDERS):
        pass
    text = (live.path / manifest.MANIFEST_FILE).read_text()
    assert json.loads(text)["version"] == manifest.WITHOUT_SERIES


# Over the doors.


def test_lines_say_what_is_appended_and_edited(server):
    server.publish("prices", *({"id": 1, "n": number} for number in range(3)))
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "ann"})
        ws.send({"c": "sow_and_subscribe", "t": "prices", "opts": "last=2"})
        begun = ws.until(c="group_end")
        assert [line["d"]["n"] for line in begun if line["c"] == "sow"] == [1, 2]
        ws.send({"c": "publish", "t": "prices", "d": {"id": 1, "n": 3}})
        appended = ws.until(c="p")[-1]
        path = f"{records('prices')}/key=1/events"
        rows = server.get(path).json
        assert [row["author"] for row in rows] == ["", "", "", "ann"]
        assert appended["bm"] == str(rows[-1]["seq"])
        for row, past in ((rows[0], True), (rows[-1], False)):
            body = json.dumps({"id": 1, "n": 10}).encode()
            assert server.request("PUT", f"{path}/{row['seq']}", data=body).status == 200
            line = ws.until(c="p")[-1]
            assert (line["edit"], line["seq"], line.get("past", False)) == (True, row["seq"], past)
            assert line["d"] == {"id": 1, "n": 10}


@pytest.mark.parametrize(
    ("topic", "command", "opts", "says"),
    [
        ("prices", "subscribe", "conflation=1s", "never conflated"),
        ("prices", "sow_and_subscribe", "conflation=auto", "never conflated"),
        ("prices", "subscribe", "last=2", "use sow_and_subscribe"),
        ("prices", "sow", "last=2", "use sow_and_subscribe"),
        ("prices", "sow_and_subscribe", "last=0", "write 1 or more"),
        ("prices", "sow_and_subscribe", "last=2,top_n=3", "leave out order_by"),
        ("prices", "sow_and_subscribe", "last=10001", "over 10000, the most of one record"),
        ("orders", "sow_and_subscribe", "last=2", "no series"),
    ],
)
def test_options_that_do_not_go_with_events_are_refused(server, topic, command, opts, says):
    with server.socket() as ws:
        ack = ws.ask({"c": command, "t": topic, "opts": opts})[-1]
        assert (ack["status"], says in ack["detail"]) == ("failure", True), ack


def test_the_log_says_what_was_edited(server):
    published = server.publish("prices", {"id": 5, "n": 1}, {"id": 5, "n": 2})
    bookmark = published.json["bookmark"]
    path = f"{records('prices')}/key=5/events"
    first, last = (row["seq"] for row in server.get(path).json)
    for seq in (first, last):
        server.request("PUT", f"{path}/{seq}", data=b'{"id":5,"n":9}')
    text = server.get(f"/v1/log?topics=prices&from={bookmark}").body
    rows = [json.loads(line) for line in text.splitlines()]
    assert [(row["op"], row["edits"], row["d"]["n"]) for row in rows] == [
        ("edit", first, 9),
        ("publish", last, 9),
    ]


def test_a_topic_says_that_it_is_a_series(server):
    server.publish("prices", {"id": 6, "n": 1}, {"id": 6, "n": 2})
    found = server.get("/v1/topics/prices").json["series"]
    assert (found["limit"], found["last_ms"], found["events"]) == (100, None, 2)
    assert found["bytes"] > 0


def test_events_by_server_sent_events(server):
    server.publish("prices", *({"id": 7, "n": number} for number in range(4)))
    with server.events("prices", snapshot="true", last="3", filter="/id = 7") as stream:
        lines = [event.line for event in stream.until("group_end")]
        assert [line["d"]["n"] for line in lines if line["c"] == "sow"] == [1, 2, 3]
