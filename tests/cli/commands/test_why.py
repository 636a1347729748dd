"""`sow why`: the story of a record in sentences."""

import json

import pytest

from tests.cli.terminal import Terminal


def test_what_waits_is_sent_and_who_follows(sow, server, orders):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "grid"})
        socket.ask({"c": "subscribe", "t": "orders", "filter": "/px > 100"}, cid="2")
        orders({"id": 1, "px": 5}, {"id": 2})
        key = json.loads(sow.ok("why", "orders", "--filter", "/id = 1", "--json"))["key"]
        sentence, head, line = sow.ok("why", "orders", key).splitlines()
        assert sentence == "orders is not conflated: each update is sent as it comes"
        assert head.split() == ["follower", "told", "conflated", "filter", "session"]
        assert line.split()[:5] == ["grid", "no", "/px", ">", "100"]


def test_of_a_conflated_topic_windows_are_sent(sow, server, orders):
    orders({"id": 77, "px": 5}, {"id": 77, "px": 6})
    key = json.loads(sow.ok("why", "orders", "--filter", "/id = 77", "--json"))["key"]
    found = json.loads(sow.ok("why", "orders-C", key, "--json"))
    assert found["windows"][0]["updates"] == 2
    said = sow.ok("why", "orders-C", key)
    assert said.splitlines()[-1] == "nobody follows it"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give either KEY, a SowKey, or --filter"),
        (("7", "--filter", "1=1"), 2, "give either KEY"),
        (("7",), 1, "topic orders has no record '7'"),
        (("--filter", "1=1"), 1, "2 records of 'orders' match; name one"),
        (("--filter", "/id = 9"), 1, "0 records of 'orders' match"),
        (("7", "--query"), 2, "write --filter F in place of KEY"),
        (("--query", "--filter", "/id >"), 1, "  /id >\n       ^"),
        (("--session", "s1"), 2, "a session has no TOPIC"),
    ],
)
def test_one_record_has_to_be_named(sow, orders, words, code, said):
    orders({"id": 1}, {"id": 2})
    result = sow("why", "orders", *words)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


def test_what_a_person_sees_in_a_narrow_terminal(server, orders):
    orders({"id": 1})
    words = ("why", "orders", "--filter", "/id = 1", "--url", server.url)
    with Terminal(*words, columns=40, NO_COLOR="1") as terminal:
        code, text = terminal.end()
    assert (code, text.replace("\n", "")[:24]) == (0, "orders is not conflated:")


def test_a_query_is_sent_with_what_served_it(sow, orders):
    orders({"id": 1}, {"id": 2})
    assert sow.ok("why", "orders", "--query", "--filter", "/id = 1").splitlines() == [
        "/id = 1: served by hash(/id); 1 record left",
        "/id = 1: what was left of the records was read; 1 record left",
        "read to decide or to answer: 1 record",
    ]
    found = json.loads(sow.ok("why", "orders", "--query", "--json"))
    assert found["why"][0] == "all records match: 2 records"


def test_a_session_is_sent_by_the_sentences_of_its_own_command(sow, server):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "me"})
        listed = json.loads(sow.ok("sessions", "--json"))
        (found,) = [one for one in listed if one["client"] == "me"]
        told = sow.ok("why", "--session", found["id"]).splitlines()
        assert told[0] == f"me, session {found['id']}"
        assert told[-1] == "nothing waits for it: it keeps up"
        assert json.loads(sow.ok("why", "--session", found["id"], "--json"))["instead"] == []
    result = sow("why", "--session", "nobody")
    assert (result.exit_code, "sow: no session 'nobody'" in result.stderr) == (1, True)


def test_a_topic_or_a_session_has_to_be_named(sow):
    result = sow("why")
    assert (result.exit_code, "give a TOPIC and one of its records" in result.stderr) == (2, True)
