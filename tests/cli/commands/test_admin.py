"""`sow topics`, `sow sessions`, `sow why`: what a server has, and why it is so."""

import json

import pytest

from sow.cli.commands.admin import columns_for, session_row, story
from sow.errors import ConfigError
from tests.cli.terminal import Terminal


def test_a_topic_is_a_line_and_those_of_a_pattern_are_one(sow, server, orders):
    orders({"id": 1}, {"id": 2})
    server.post("/desk/1", b'{"id":1}')
    lines = sow.ok("topics").splitlines()
    by_name = {line.split()[0]: line.split() for line in lines[1:]}
    assert by_name["orders"][1:5] == ["2", "topic", "18", "B"]
    assert " ".join(by_name["orders-C"]).endswith("json /id orders every 1 s")
    assert by_name["desks"][1:3] == ["1", "pattern"]
    assert "/desk/1" not in by_name
    assert "/desk/1" in sow.ok("topics", "--all")


def test_for_programs_it_is_what_the_server_says(sow, server):
    found = json.loads(sow.ok("topics", "--json", "--all"))
    said = server.get("/v1/topics").json
    assert [one.keys() for one in found] == [one.keys() for one in said]
    assert [one["name"] for one in found] == [one["name"] for one in said]


def test_what_a_person_sees_fits_into_a_narrow_terminal_without_colour(server, orders):
    orders({"id": 1})
    words = ("topics", "--url", server.url)
    with Terminal(*words, columns=32, NO_COLOR="1") as terminal:
        code, text = terminal.end()
    lines = text.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 32
    assert next(line for line in lines if line.startswith("orders ")).split() == [
        "orders", "1", "topic", "9", "B",
    ]  # fmt: skip
    assert not terminal.has_colour


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
    shown = session_row(SLOW)
    assert (shown["client"], shown["lag"], shown["queue"]) == ("(no name)", "250 ms", "5,000")
    assert (shown["size"], shown["conflated"], shown["since"]) == ("2.0 KiB", "1,234", "90.0 s")
    assert session_row({**SLOW, "conflated": False})["conflated"] == "off"


def test_whose_it_is_and_where_from_is_said_where_there_are_users():
    nobody, anna = session_row(SLOW), session_row({**SLOW, "user": "anna"})
    assert (anna["user"], anna["address"]) == ("anna", "192.0.2.7")
    assert "user" not in {column.name for column in columns_for([nobody])}
    shown = [column.name for column in columns_for([nobody, anna])]
    assert shown[3:7] == ["state", "user", "address", "since"]


def test_whether_it_is_away_or_is_being_given_up_is_said():
    assert session_row({**SLOW, "connected": False})["state"] == "away"
    assert (
        session_row({**SLOW, "connected": False, "reason": "slow client"})["state"] == "slow client"
    )


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


@pytest.fixture
def reread(server, monkeypatch):
    """Has the server read this configuration again, or raise this."""

    def becomes(found):
        def read():
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(server.server._reloader, "_reread", read)

    return becomes


def test_a_server_without_a_file_says_that_it_cannot(sow):
    result = sow("reload")
    assert (result.exit_code, "not started from a file" in result.stderr) == (1, True)


def test_nothing_that_has_changed_is_said_to_be_nothing(sow, server, reread):
    reread(server.server.configuration)
    assert sow.ok("reload") == "nothing changed\n"
    assert json.loads(sow.ok("reload", "--json")) == {"changes": []}


def test_a_mistake_in_the_file_is_said_as_it_is(sow, reread):
    reread(ConfigError("config.xml:3: <Topic>: it has no Name"))
    result = sow("reload", "--allow-loss")
    assert result.exit_code == 1
    assert "config.xml:3: <Topic>: it has no Name" in result.stderr


def test_what_waits_is_sent_and_who_follows(sow, server, orders):
    with server.socket() as socket:
        socket.ask({"c": "logon", "client": "ladder"})
        socket.ask({"c": "subscribe", "t": "orders", "filter": "/px > 100"}, cid="2")
        orders({"id": 1, "px": 5}, {"id": 2})
        key = json.loads(sow.ok("why", "orders", "--filter", "/id = 1", "--json"))["key"]
        sentence, head, *lines = sow.ok("why", "orders", key).splitlines()
        assert sentence == "orders is not conflated: each update is sent as it comes"
        assert head.split() == ["follower", "told", "conflated", "filter", "session"]
        (line,) = [line for line in lines if line.startswith("ladder")]
        assert line.split()[:5] == ["ladder", "no", "/px", ">", "100"]


def test_of_a_conflated_topic_windows_are_sent(sow, server, orders):
    orders({"id": 77, "px": 5}, {"id": 77, "px": 6})
    key = json.loads(sow.ok("why", "orders", "--filter", "/id = 77", "--json"))["key"]
    found = json.loads(sow.ok("why", "orders-C", key, "--json"))
    assert found["windows"][0]["updates"] == 2
    said = sow.ok("why", "orders-C", key)
    assert said.splitlines()[-1] == "nobody follows it"


def test_a_record_is_named_by_the_values_of_its_key(sow, orders):
    orders({"id": 77, "px": 5})
    by_value = json.loads(sow.ok("why", "orders-C", "77", "--json"))
    # Its window may end in between.
    by_key = json.loads(sow.ok("why", "orders-C", by_value["key"], "--json"))
    assert by_key["key"] == by_value["key"]
    orders({"id": "", "px": 5})
    assert json.loads(sow.ok("why", "orders", "", "--json"))["key"], "an empty text is a value"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "give either KEY, a SowKey or the key's values"),
        (("7", "--filter", "1=1"), 2, "give either KEY"),
        (("7",), 1, "topic orders has no such record: 'key=7'"),
        (("7,8",), 1, "the Key of orders is /id; write 1 value"),
        (("",), 1, "topic orders has no such record: 'key='"),
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


def test_what_had_been_told_of_a_record_then(sow, orders):
    orders({"id": 4, "px": 1})
    lines = sow.ok("why", "orders", "4", "--as-of", "now").splitlines()
    assert lines[0] == 'p {"id":4,"px":1}'
    assert lines[1].startswith("by ")
    assert " the last line was update " in lines[1]
    assert len(lines) == 2, "who follows it now was not asked"
    told = json.loads(sow.ok("why", "orders", "4", "--as-of", "now", "--opts", "oof", "--json"))
    assert (told["told"]["d"], told["window"], told["waiting"]) == ({"id": 4, "px": 1}, None, False)
    for_ann = sow.ok("why", "orders", "4", "--as-of", "now", "--for", "ann").splitlines()
    assert for_ann[0] == lines[0], "the rights of ann, asked for by whoever this is"
    bookmark = orders({"id": 5}).json["bookmark"]
    assert "nothing of it had been sent" in sow.ok("why", "orders-C", "5", "--as-of", bookmark)


def test_who_was_told_is_about_a_moment_and_a_record(sow):
    for words, text in (
        (("orders", "4", "--for", "ann"), "give --as-of T too"),
        (("orders", "4", "--opts", "oof"), "give --as-of T too"),
        (("--session", "s1", "--as-of", "now"), "--as-of is about a record"),
        (("orders", "--query", "--filter", "/id = 4", "--as-of", "now"), "is about a record"),
    ):
        result = sow("why", *words)
        assert (result.exit_code, text in result.stderr) == (2, True), result.stderr
    result = sow("why", "orders", "4", "--as-of", "2999-01-01T00:00:00Z")
    assert (result.exit_code, "is in the future" in result.stderr) == (1, True)
