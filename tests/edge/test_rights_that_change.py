"""What a user may do changes while others watch, is noted, and is guessed at."""

import json

import pytest

from tests.edge.lives import NOW_US, SECOND
from tests.edge.secured import (
    ADMIN,
    ANN,
    AUDITOR,
    READER,
    ROLES,
    Secured,
    secured,
)
from tests.edge.serving import records
from tests.virtual_clock import VirtualClock


@pytest.fixture
def own(tmp_path):
    server = Secured(tmp_path)
    yield server
    server.close()
    assert server.errors == []


def test_with_its_topic_a_subscription_goes(own):
    with own.socket(headers=ANN) as ws:
        first = ws.ask({"c": "subscribe", "t": "orders"})[-1]["s"]
        second = ws.ask({"c": "subscribe", "t": "public-C"})[-1]["s"]
        ws.ask({"c": "subscribe", "t": "^orders"})
        own.next = secured(own.place, ROLES.replace("orders|orderz.*|", ""))
        assert own.reload().status == 200
        gone = [one for one in ws.settled() if one["c"] == "unsubscribed"]
        # The pattern goes on to mean what may be read.
        assert [(one["s"], one["reason"]) for one in gone] == [(first, "AUTHORIZATION")]
        own.ask("POST", records("orders"), ADMIN, b'[{"id":"unseen"}]')
        assert "unseen" not in json.dumps(ws.settled())
        assert ws.ask({"c": "unsubscribe", "s": second})[-1]["status"] == "success"
        assert ws.ask({"c": "sow", "t": "orders"})[-1]["reason"] == "invalid topic"


def test_a_user_who_is_no_more_is_put_out(own):
    with own.socket(headers=ANN) as ws, own.socket(headers=READER) as other:
        name = ws.ask({"c": "subscribe", "t": "orders"})[-1]["s"]
        with own.events("orders", headers=ANN) as events:
            events.until("group_end")
            own.say(reader="", admin="")
            assert own.reload().status == 200
            assert events.until("unsubscribed")[-1].line["reason"] == "AUTHORIZATION"
        told = [(one["c"], one.get("s")) for one in ws.until(c="close")]
        assert told == [("unsubscribed", name), ("close", None)]
        assert own.wait(ws._ws.receive()).data == 4401
        assert other.ask({"c": "heartbeat"})[-1]["status"] == "success"
    assert own.ask("GET", "/v1/topics", ANN).status == 401


def test_a_file_that_cannot_be_read_changes_nothing(own):
    (own.place / "tokens").write_text("nonsense\n")
    answer = own.reload()
    assert answer.status == 400
    assert own.ask("GET", "/v1/topics", ANN).status == 200


def test_deeds_are_noted_and_no_secret_with_them(own):
    own.next = secured(own.place, ROLES.replace("<Allow><Admin/>", AUDITOR + "<Allow><Admin/>"))
    assert own.reload().status == 200
    own.ask("GET", "/v1/config", ANN)
    own.ask("GET", "/v1/topics", {"Authorization": "Bearer planted-secret"})
    own.ask("DELETE", records("orders", filter="/id = 1"), ANN)
    with own.socket() as ws:
        ws.ask({"c": "logon", "user": "mallory", "password": "planted-secret"})
        ws.ask({"c": "logon", "token": "agent-token", "as": "reader"})
        ws.ask({"c": "sow_delete", "t": "orders", "filter": "1=1"})
        session = ws.ask({"c": "logon"})[-1]["id"]
        own.ask("DELETE", f"/v1/sessions/{session}", ADMIN)
    answer = own.ask("GET", records("/sow/audit"), ADMIN)
    noted = [(one["deed"], one["user"], one["by"], one["what"]) for one in answer.json]
    wanted = [
        ("logon", "admin", None, "HTTP"),
        ("admin", "admin", None, "POST /v1/config/reload"),
        ("logon", "ann", None, "HTTP"),
        ("refused", "ann", None, "GET /v1/config"),
        ("refused", None, None, "GET /v1/topics"),
        ("delete", "ann", None, "sow_delete"),
        ("refused", None, None, "logon"),
        ("logon", "reader", "agent", "logon"),
        ("refused", "reader", "agent", "sow_delete"),
        ("admin", "admin", None, f"DELETE /v1/sessions/{session}"),
    ]
    assert [one for one in dict.fromkeys(noted) if one in wanted] == wanted
    assert all(one["address"] for one in answer.json if one["deed"] == "logon" and not one["by"])
    assert b"planted-secret" not in answer.body
    for who in (ANN, READER):
        assert own.ask("GET", records("/sow/audit"), who).status == 404
    own._config = own.next
    own.stop()
    own.start()
    own.ask("GET", "/v1/config", ANN)
    numbers = sorted(one["number"] for one in own.ask("GET", records("/sow/audit"), ADMIN).json)
    assert numbers == list(range(1, len(numbers) + 1)), "after a start it goes on"


def test_who_guesses_has_to_wait_and_who_is_known_does_not(tmp_path):
    place = Secured(tmp_path, logons=None, clock=VirtualClock(NOW_US))
    try:
        wrong = {"Authorization": "Bearer wrong"}
        answers = [place.ask("GET", "/v1/topics", wrong) for _ in range(30)]
        assert {answer.status for answer in answers} == {401, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert int(refused.headers["Retry-After"]) >= 1
        with place.socket() as ws:
            for _ in range(30):
                ack = ws.ask({"c": "logon", "token": "wrong"})[-1]
                assert ack["status"] == "failure"
        assert place.ask("GET", "/v1/topics", ANN).status == 200
    finally:
        place.close()


def test_a_reload_says_how_often_may_be_tried_and_published(tmp_path):
    slow = (
        "<Limits><LogonsPerSecond>1</LogonsPerSecond>"
        "<PublishesPerSecond>1</PublishesPerSecond></Limits>"
    )
    clock = VirtualClock(NOW_US)
    place = Secured(tmp_path, logons=None, clock=clock)

    def statuses():
        wrong = {"Authorization": "Bearer wrong"}
        tried = [place.ask("GET", "/v1/topics", wrong).status for _ in range(2)]
        body = b'[{"id":1},{"id":2},{"id":3}]'
        return tried, [place.ask("POST", records("orders"), ADMIN, body).status for _ in range(2)]

    try:
        place.next = secured(tmp_path, more=slow)
        assert place.reload().status == 200
        assert statuses() == ([401, 429], [200, 503])
        place.next = secured(tmp_path, more=slow.replace(">1<", ">1000000<"))
        assert place.reload().status == 200
        place.call(clock.advance, SECOND)
        assert statuses()[1] == [200, 200]
        assert place.ask("GET", "/v1/topics", {"Authorization": "Bearer wrong"}).status == 401
    finally:
        place.close()


def test_a_connection_without_a_logon_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SOW_LOOP", "asyncio")
    limits = "<Limits><HeaderTimeout>50s</HeaderTimeout></Limits>"
    server = Secured(tmp_path, settings=limits)
    try:
        with server.socket(headers=ANN) as known, server.socket() as unknown:
            assert unknown.ask({"c": "heartbeat"})[-1]["reason"] == "auth failure"
            server.later(51)
            assert "nobody has logged on" in unknown.until(c="close")[-1]["reason"]
            assert known.ask({"c": "heartbeat"})[-1]["status"] == "success"
    finally:
        server.close()
