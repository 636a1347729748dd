"""`sow sessions`: who is connected."""

import json

from sow.cli.sessions import columns_for, row, story
from tests.cli.terminal import Terminal

SLOW = {
    "id": "7", "client": None, "user": None, "address": "192.0.2.7", "connected": True,
    "connected_ms": 90_000, "subscriptions": 2,
    "queue_messages": 5000, "queue_bytes": 2048, "conflated": True, "conflated_messages": 1234,
    "dropped_messages": 0, "lag_ms": 250, "reason": None,
}  # fmt: skip


def test_a_session_is_a_line(sow, server):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "grid"})
        head, line = sow.ok("sessions").splitlines()
        assert head.split()[:4] == ["client", "lag", "queue", "state"]
        assert line.split()[0] == "grid"
        assert "connected" in line
        (found,) = json.loads(sow.ok("sessions", "--json"))
        assert found["client"] == "grid"


def test_nobody_is_no_table(sow):
    result = sow("sessions")
    assert (result.stdout, result.stderr) == ("", "0 sessions\n")


def test_what_waits_for_a_slow_one_is_said():
    shown = row(SLOW)
    assert (shown["client"], shown["lag"], shown["queue"]) == ("(no name)", "250 ms", "5,000")
    assert (shown["size"], shown["conflated"], shown["since"]) == ("2.0 KiB", "1,234", "90.0 s")
    assert row({**SLOW, "conflated": False})["conflated"] == "off"


def test_whose_it_is_and_where_from_is_said_where_there_are_users():
    nobody, anna = row(SLOW), row({**SLOW, "user": "anna"})
    assert (anna["user"], anna["address"]) == ("anna", "192.0.2.7")
    assert "user" not in {column.name for column in columns_for([nobody])}
    shown = [column.name for column in columns_for([nobody, anna])]
    assert shown[3:7] == ["state", "user", "address", "since"]


def test_whether_it_is_away_or_is_being_given_up_is_said():
    assert row({**SLOW, "connected": False})["state"] == "away"
    assert row({**SLOW, "connected": False, "reason": "slow client"})["state"] == "slow client"


def test_what_a_person_sees_on_a_terminal(server):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "grid"})
        with Terminal("sessions", "--url", server.url) as terminal:
            code, text = terminal.end()
    assert (code, "grid" in text, "1 session" in text) == (0, True, True)


def test_the_story_of_one_is_what_the_server_says_and_moves_no_cursor():
    told = {"id": "s7", "client": None, "why": ["it waits"], "instead": ["read \x1b[2Jfaster"]}
    assert story(told) == ["a client without a name, session s7", "it waits", "read \\x1b[2Jfaster"]
    assert story({**told, "client": "\x1b[2Jgrid"})[0] == "\\x1b[2Jgrid, session s7"


def test_one_session_by_its_id(sow, server):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "grid"})
        socket.ask({"c": "subscribe", "t": "orders", "filter": "/id > 1"}, cid="2")
        socket.ask({"c": "subscribe", "t": "orders", "opts": "conflation=1s"}, cid="3")
        (found,) = json.loads(sow.ok("sessions", "--json"))
        told = sow.ok("sessions", found["id"])
        assert told.splitlines()[0] == f"grid, session {found['id']}"
        assert "\nit follows orders where /id > 1, each update as it comes\n" in told
        assert "as requested by conflation=1s; updates in 0, out 0, waiting 0" in told
        assert json.loads(sow.ok("sessions", found["id"], "--json"))["client"] == "grid"
    result = sow("sessions", "nobody")
    assert (result.exit_code, "sow: no session 'nobody'" in result.stderr) == (1, True)
