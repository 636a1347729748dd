"""Taking a session up again over real sockets."""

import json

import aiohttp
import pytest


@pytest.fixture
def dropped(server):
    """A session that follows orders, has been told of one, and has lost its socket."""
    with server.socket() as ws:
        (ack,) = ws.ask({"c": "logon", "client": "me"})
        ws.ask({"c": "subscribe", "t": "orders"})
        server.publish("orders", {"id": "seen"})
        ws.until(c="p")
    return ack["session"]


def connected(server):
    (found,) = [s["connected"] for s in server.get("/v1/sessions").json if s["client"] == "me"]
    return found


def test_a_session_collects_while_nobody_is_there(server, dropped):
    server.publish("orders", {"id": "missed"})
    assert connected(server) is False
    with server.socket() as ws:
        (ack,) = ws.ask({"c": "logon", "session": dropped, "seen": 2})
        assert (ack["resumed"], ack["session"]) == (True, dropped)
        assert ws.line()["d"] == {"id": "missed"}
        server.publish("orders", {"id": "live"})
        assert ws.line()["d"] == {"id": "live"}
        assert connected(server) is True


def test_a_session_may_come_back_for_frames_of_the_other_kind(server, dropped):
    server.publish("orders", {"id": "missed"})
    with server.socket(protocols=["sow.text"]) as ws:
        ws.send({"c": "logon", "session": dropped, "seen": 1, "cid": "1"})
        found = []
        while len(found) < 3:
            message = server.wait(ws._ws.receive())
            assert message.type is aiohttp.WSMsgType.TEXT
            found += map(json.loads, message.data.splitlines())
    ack, *lines = found
    assert ack["resumed"] is True
    assert [line["d"]["id"] for line in lines] == ["seen", "missed"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"conflated":1}', b'{"other":true}', b"[]"])
def test_a_switch_that_says_nothing_is_refused(server, body):
    with server.socket() as ws:
        (ack,) = ws.ask({"c": "logon"})
        answer = server.request("POST", f"/v1/sessions/{ack['id']}", data=body)
        assert answer.status == 400


def test_what_everybody_sees_of_a_session_does_not_take_it_up(server):
    with server.socket() as victim:
        (ack,) = victim.ask({"c": "logon", "client": "victim"})
        victim.ask({"c": "subscribe", "t": "orders"})
        listed = server.get("/v1/sessions").json
        (session,) = [session for session in listed if session["client"] == "victim"]
        for guess in (session["id"], session["client"], session["id"].lstrip("s"), ""):
            with server.socket() as thief:
                (taken,) = thief.ask({"c": "logon", "session": guess, "seen": 0})
                assert taken["resumed"] is False
                server.publish("orders", {"id": "for the victim"})
                assert victim.line()["d"] == {"id": "for the victim"}
                assert thief.settled() == []
        told = [server.get(path).body.decode() for path in ("/v1/sessions", "/metrics")]
        told += [str(server.request("GET", f"/v1/sessions/{ack['session']}").body)]
        assert not [text for text in told if ack["session"] in text]


@pytest.mark.parametrize("called", ["id", "session"])
def test_a_session_is_changed_and_closed_by_its_id_or_by_the_name_that_its_owner_knows(
    server, called
):
    with server.socket() as ws:
        (ack,) = ws.ask({"c": "logon", "client": "owner"})
        path = f"/v1/sessions/{ack[called]}"
        changed = server.request("POST", path, data=b'{"conflated":false}')
        assert (changed.json["id"], changed.json["conflated"]) == (ack["id"], False)
        closed = server.request("DELETE", path)
        assert closed.json == {"closed": ack["id"]}
        assert ack["session"].encode() not in changed.body + closed.body
        assert server.request("DELETE", f"/v1/sessions/{ack['id']}x").status == 404
