"""Who may do what, at every door: each address and each command asks, and what a user may not see
is not there for him, whatever he asks and however it is refused.

The law goes through the tables of addresses and of commands, so that a door that is added is asked
about, too. *Indistinguishable* is the word for a topic that is not there for somebody: every answer
about it is, but for the name, the answer about one that nobody has.
"""

import base64
import json
import re

import pytest

from sow.protocol.commands import COMMANDS
from sow.security.authentication.tokens import sum_of
from sow.server.boot.routes import TABLE as ADDRESSES
from sow.server.http.route import allowed
from tests.cases import all_cases
from tests.edge.arrow import ARROW, stream
from tests.edge.secured import (
    ABSENT,
    ADMIN,
    ANN,
    MARK,
    PARTS,
    READER,
    SECRET,
    TABLE,
    USERS,
    Secured,
)
from tests.edge.serving import records

FREE = {"/healthz", "/readyz", "/openapi.json", "/", "/sow.js", "/sow.d.ts", "/v1/ws"} | {
    "/v1/status",
    "/console/{file}",
    "/console/{folder}/{file}",
}
"""What needs no credentials; a WebSocket asks for them before anything else, and the status of a
server says only its name without them (`tests/server/api/test_status.py`)."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Secured(tmp_path_factory.mktemp("secured"))
    yield server
    server.close()


@pytest.fixture
def server(running):
    yield running
    errors = running.errors.copy()
    running.errors.clear()
    assert errors == []


@pytest.fixture
def own(tmp_path):
    server = Secured(tmp_path)
    yield server
    server.close()
    assert server.errors == []


def path_of(route, topic):
    path = re.sub(r"\{(\w+)\}", lambda part: {"topic": topic, **PARTS}[part[1]], route.path)
    return path + (f"?topic={topic}" if "topic" in route.parameters else "")


BODIES = {
    ("POST", "/v1/writes/{writer}/{epoch}/commit"): '{"topic":"%s","parts":[]}',
    ("PUT", "/v1/log/consumers/{name}"): '{"bookmark":"0"}',
    ("POST", "/v1/sessions/{id}"): '{"conflated":true}',
}


def body_of(route, topic):
    text = BODIES.get((route.method, route.path), '[{"id":1}]' if "records" in route.path else "")
    return (text % topic if "%s" in text else text).encode() or None


def each(table):
    return all_cases("route", table)


WRONG = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": "Basic " + base64.b64encode(b"ann:ann-token").decode()},
    {"Authorization": "Basic !"},
    {"Authorization": "Digest x"},
    {"Authorization": "Bearer " + "x" * 5000},
]
"""Every address is asked with the first two, and one of them with all."""

# The law.


@each(TABLE)
def test_every_address_asks_who_it_is(server, route):
    if route.path in FREE:
        assert route.demand == "nothing"
        return
    assert route.demand != "nothing"
    for who in WRONG if route.path == "/v1/topics" else WRONG[:2]:
        answer = server.ask(route.method, path_of(route, "orders"), who, body_of(route, "orders"))
        assert answer.status == 401, (who, answer.body)
        assert route.method == "HEAD" or answer.json["reason"] == "auth failure"
        assert "Bearer" in answer.headers["WWW-Authenticate"]
        assert b"ann-token" not in answer.body


@each(TABLE)
def test_to_who_has_no_role_nothing_is_open(server, route):
    who = {"Authorization": "Bearer stranger-token"}
    if route.path in FREE or route.path == "/v1/functions":
        return
    answer = server.ask(route.method, path_of(route, "orders"), who, body_of(route, "orders"))
    if route.demand == "logon":
        assert answer.status == 403 or route.method != "PUT"
        assert answer.status == 404 or not re.search(b"orders|desk|zq", answer.body)
        return
    assert answer.status == (403 if route.demand == "admin" else 404), answer.body
    if route.method == "HEAD":
        assert answer.body == b""
        return
    assert answer.json["reason"] == ("not entitled" if answer.status == 403 else "invalid topic")


@each(
    [
        route
        for route in TABLE
        if route.demand in ("read", "write", "delete") and not route.path.endswith("/stream")
    ]
)
def test_each_verb_is_requested_for_by_itself(server, route):
    answer = server.ask(route.method, path_of(route, "orders"), READER, body_of(route, "orders"))
    assert (answer.status == 403) == (route.demand != "read"), answer.body


@each(TABLE)
def test_a_topic_that_may_not_be_seen_is_as_one_that_nobody_has(server, route):
    if route.path in FREE:
        return
    for headers in ({}, {"Accept": "application/x-ndjson"}):
        answers = []
        for topic in (SECRET, ABSENT):
            path, body = path_of(route, topic), body_of(route, topic)
            answer = server.ask(route.method, path, ANN, body, **headers)
            told = re.sub(rb'"ts(_us)?":[^,]*,', b"", answer.body)
            answers.append((answer.status, told.replace(topic.encode(), b"?")))
        if "consumers" not in route.path:
            assert answers[0] == answers[1]
        assert MARK.encode() not in answers[0][1]
        assert b"zq" not in answers[0][1]


@each(ADDRESSES)
def test_which_methods_there_are_is_said_to_anybody_and_says_nothing_of_topics(server, route):
    answers = [
        server.ask("OPTIONS", path_of(route, topic).partition("?")[0], who)
        for topic in ("orders", SECRET, ABSENT)
        for who in ({}, ANN, {"Authorization": "Bearer wrong"})
    ]
    assert {(answer.status, answer.body, answer.headers["Allow"]) for answer in answers} == {
        (204, b"", allowed(ADDRESSES)[route.path])
    }


QUERIES = (
    *(
        path_of(one, "orderz")
        for one in ADDRESSES
        if one.method == "GET" and not one.path.endswith("/stream")
    ),
    "/v1/topics/orderz1",
    "/v1/topics/public-C",
    "/v1/topics/public-view",
    "/v1/topics/public-view?expected=true",
    "/v1/topics/zq-patterns",
    f"/v1/log?topics=orders,{SECRET[:-1]}",
    "/v1/log/extent?topics=public-C",
    "/v1/log/extent?topics=public-view",
    "/v1/sessions?closed=true",
    "/v1/topics/orders/records?explain=true&filter=/zz=1",
    "/v1/topics/orders/rates?k=zq",
    "/v1/topics/orders/records?projection=COUNT(/id)%20AS%20/n&grouping=[zq]./id",
)


@all_cases("path", QUERIES)
def test_no_answer_says_the_name_of_what_is_not_there_for_who_asks(server, path):
    requested = "zq" in path
    answer = server.ask("GET", path, ANN)
    assert answer.status < 500
    assert MARK.encode() not in answer.body
    assert requested or b"zq" not in answer.body, answer.body
    assert SECRET.encode() not in answer.body


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("topic", ["public-C", "public-view"])
def test_what_a_topic_is_made_of_is_sent_to_who_sees_that(server, method, topic):
    answer = server.ask(
        method,
        records(topic, filter="1=1") if method == "DELETE" else records(topic),
        ANN,
        b'[{"id":1}]',
    )
    assert answer.status == 400
    assert b"zq" not in answer.body
    told = server.ask("POST", records(topic), ADMIN, b'[{"id":1}]')
    assert SECRET.encode() in told.body


def test_a_mistyped_name_is_sent_what_is_near_among_what_is_seen(server):
    detail = server.ask("GET", "/v1/topics/orderz", ANN).json["detail"]
    assert detail == "no topic 'orderz'; did you mean orders?"
    assert "did you mean" in server.ask("GET", "/v1/topics/zq-secre", ADMIN).json["detail"]


def test_lists_hold_what_is_seen(server):
    names = {one["name"] for one in server.ask("GET", "/v1/topics", ANN).json}
    assert names == {"orders", "public-C", "public-view"}
    all_names = {one["name"] for one in server.ask("GET", "/v1/topics", ADMIN).json}
    assert {SECRET, "zq-patterns"} <= all_names
    rows = server.ask("GET", "/v1/log", ANN).body.splitlines()
    assert {json.loads(row)["topic"] for row in rows} == {"orders"}


def test_a_topic_says_what_one_may_do_with_it(server):
    def may(user, name):
        return server.ask("GET", f"/v1/topics/{name}", user).json["may"]

    assert may(READER, "orders") == ["read"]
    assert may(ANN, "orders") == may(ADMIN, "orders") == ["read", "write", "delete"]
    assert may(ANN, "public-C") == ["read"], "nobody publishes to what conflates"


# WebSocket.


def lines_for(name, topic):
    """One line of a command, and its bodies."""
    more = {
        "publish": {"d": {"id": 9}},
        "delta_publish": {"d": {"id": 9}},
        "sow_delete": {"filter": "1=1"},
        "unsubscribe": {"s": "all"},
    }
    kind = COMMANDS[name]
    return {"c": name, **({"t": topic} if "t" in kind.fields else {}), **more.get(name, {})}


@all_cases("name", COMMANDS)
def test_no_command_is_carried_out_before_a_logon(server, name):
    with server.socket() as ws:
        for topic in ("orders", SECRET, ABSENT, ".*"):
            *_, ack = ws.ask(lines_for(name, topic))
            assert (ack["status"], ack["reason"]) == ("failure", "auth failure"), ack
        *_, ack = ws.ask({"c": "logon", "token": "ann-token"})
        assert ack["status"] == "success"
        assert ws.ask({"c": "heartbeat"})[-1]["status"] == "success"


TOPICAL = [name for name, kind in COMMANDS.items() if "t" in kind.fields]


@all_cases("name", TOPICAL)
def test_every_command_asks_for_its_topic(server, name):
    assert COMMANDS[name].demand in ("read", "write", "delete")
    with server.socket(headers=ANN) as ws:
        found = []
        for topic in (SECRET, ABSENT):
            *before, ack = ws.ask(lines_for(name, topic))
            assert (before, ack["status"]) == ([], "failure")
            found.append(json.dumps(ack).replace(topic, "?"))
        assert found[0] == found[1]
    with server.socket(headers=READER) as ws:
        *_, ack = ws.ask(lines_for(name, "orders"))
        demand = COMMANDS[name].demand
        assert ack["status"] == ("success" if demand == "read" else "failure")
        assert demand == "read" or ack["reason"] == "not entitled"


def test_a_batch_of_publishes_asks_too(server):
    with server.socket(headers=READER) as ws:
        line = '{"c":"publish","t":"orders","d":{"id":"planted"},"cid":"%d"}'
        ws.send(line % 1)
        ws.send(line % 2, line % 3)
        ws.send({"c": "publish", "t": "orders", "n": 2, "cid": "4"}, '{"id":"x"}', '{"id":"y"}')
        acks = [ws.line() for _ in range(4)]
        assert {ack["reason"] for ack in acks} == {"not entitled"}
    assert b"planted" not in server.ask("GET", records("orders"), ADMIN).body


def test_a_pattern_means_the_topics_that_may_be_read_those_that_come_later_included(own):
    with own.socket(headers=ANN) as ws, own.socket(headers=ADMIN) as all_ws:
        *lines, _ = ws.ask({"c": "sow", "t": ".*", "a": "completed"})
        assert {one["t"] for one in lines if one["c"] == "sow"} - {"public-C"} == {
            "orders", "public-view",
        }  # fmt: skip
        ws.ask({"c": "subscribe", "t": ".*"})
        all_ws.ask({"c": "subscribe", "t": ".*"})
        for topic in ("desk/theirs", "desk/mine", SECRET):
            body = json.dumps([{"id": f"late-{topic}"}]).encode()
            assert own.ask("POST", records(topic), ADMIN, body).status == 200
        heard = {one["t"] for one in all_ws.until(c="p", t=SECRET)}
        assert {"desk/theirs", "desk/mine"} <= heard
        own.ask("POST", records("orders"), ADMIN, b'[{"id":"last"}]')
        told = ws.until(c="p", t="orders")
        assert "desk/mine" in {one["t"] for one in told}
        assert "desk/theirs" not in json.dumps(told)
        assert SECRET not in json.dumps([one.get("t") for one in told])


def test_a_name_with_the_signs_of_a_pattern_is_no_way_round(tmp_path):
    place = Secured(tmp_path)
    try:
        for topic in ("desk/a.b", "desk/none.b"):
            place.ask("POST", records("desk/a.b"), ADMIN, b'[{"id":"hidden"}]')
            with place.socket(headers=ANN) as ws:
                found = ws.ask({"c": "sow", "t": topic, "a": "completed"})
                assert "hidden" not in json.dumps(found)
                assert found[-1]["reason"] == "invalid topic"
                options = "projection=[COUNT(/id) AS /n],grouping=[/id]"
                found = ws.ask({"c": "sow", "t": topic, "opts": options})
                assert "is a pattern" in found[-1]["detail"]
    finally:
        place.close()


# Sessions.


def test_a_session_is_there_for_its_user_and_for_who_administers(server):
    with server.socket(headers=ANN) as ws, server.socket(headers=READER) as other:
        anns = ws.ask({"c": "logon"})[-1]
        others = other.ask({"c": "logon"})[-1]
        assert len(anns["session"]) >= 22, "128 bits"
        shown = {one["id"] for one in server.ask("GET", "/v1/sessions", ANN).json}
        assert anns["id"] in shown
        assert others["id"] not in shown
        assert {anns["id"], others["id"]} <= {
            one["id"] for one in server.ask("GET", "/v1/sessions", ADMIN).json
        }
        for called in (others["id"], others["session"]):
            for method in ("GET", "POST", "DELETE"):
                answer = server.ask(method, f"/v1/sessions/{called}", ANN, b'{"conflated":true}')
                assert answer.status == 404
        changed = server.ask("POST", "/v1/sessions?filter=1=1", ANN, b'{"conflated":false}').json
        assert others["id"] not in changed["changed"]
        assert server.ask("DELETE", f"/v1/sessions/{others['id']}", ADMIN).status == 200
        other.rest()
        for user, is_sent in ((ANN, False), (ADMIN, True)):
            gone = server.ask("GET", "/v1/sessions?closed=true", user).json
            assert (others["id"] in {one["id"] for one in gone}) == is_sent


def test_a_session_is_taken_up_by_its_user_alone(server):
    with server.socket(headers=ANN) as ws:
        name = ws.ask({"c": "logon"})[-1]["session"]
        ws.ask({"c": "subscribe", "t": "orders"})
        for token in ("ben-token", "admin-token"):
            with server.socket() as thief:
                ack = thief.ask({"c": "logon", "token": token, "session": name})[-1]
                assert (ack["resumed"], ack["reason"]) == (False, "unknown session")
        with server.socket() as again:
            ack = again.ask({"c": "logon", "token": "ann-token", "session": name, "seen": 0})[-1]
            assert ack["resumed"] is True


def test_a_connection_stays_its_users(server):
    with server.socket() as ws:
        assert ws.ask({"c": "logon", "token": "ann-token"})[-1]["status"] == "success"
        ack = ws.ask({"c": "logon", "token": "reader-token"})[-1]
        assert "another user" in ack["detail"]
        assert ws.ask({"c": "logon", "token": "ann-token"})[-1]["status"] == "success"
        ack = ws.ask({"c": "logon", "token": "wrong"})[-1]
        assert ack["reason"] == "auth failure"
        assert "wrong" not in json.dumps(ack)


def test_who_may_acts_for_another_and_may_do_what_that_one_may(server):
    with server.socket() as ws:
        ack = ws.ask({"c": "logon", "token": "ann-token", "as": "reader"})[-1]
        assert ack["reason"] == "not entitled"
    with server.socket() as ws:
        assert ws.ask({"c": "logon", "token": "agent-token", "as": "reader"})[-1]["a"]
        assert ws.ask({"c": "sow", "t": "orders"})[-1]["status"] == "success"
        assert ws.ask(lines_for("publish", "orders"))[-1]["reason"] == "not entitled"
    with server.socket() as ws:
        assert ws.ask({"c": "logon", "token": "agent-token", "as": "ben"})[-1]["a"]
        assert ws.ask(lines_for("publish", "orders"))[-1]["status"] == "success", "ben's groups"


def test_commands_keep_their_order_around_a_logon(server):
    with server.socket() as ws:
        ws.send(
            {"c": "sow", "t": "orders", "cid": "before"},
            {"c": "logon", "token": "ann-token", "cid": "logon"},
            {"c": "heartbeat", "cid": "after"},
        )
        acks = [one for one in ws.until(c="ack", cid="after") if one["c"] == "ack"]
        assert [(one["cid"], one["status"]) for one in acks] == [
            ("before", "failure"), ("logon", "success"), ("after", "success"),
        ]  # fmt: skip


# What others have made.


def test_snapshots_and_consumers_are_their_users(server):
    taken = server.ask("POST", "/v1/snapshots?topic=orders", ANN).json["snapshot"]
    missing = server.ask("GET", "/v1/snapshots/none", READER).json
    for method in ("GET", "DELETE"):
        answer = server.ask(method, f"/v1/snapshots/{taken}", READER)
        assert answer.status == 404
        assert answer.json["detail"].replace(taken, "none") == missing["detail"]
    assert server.ask("GET", f"/v1/snapshots/{taken}", ANN).status == 200
    assert server.ask("PUT", "/v1/log/consumers/anns", ANN, b'{"bookmark":"0"}').status == 200
    assert server.ask("PUT", "/v1/log/consumers/anns", READER, b'{"bookmark":"0"}').status == 403
    assert server.ask("DELETE", "/v1/log/consumers/anns", READER).status == 404
    assert server.ask("GET", "/v1/log/consumers", READER).json == []
    assert [one["name"] for one in server.ask("GET", "/v1/log/consumers", ANN).json] == ["anns"]
    assert server.ask("DELETE", "/v1/log/consumers/anns", ADMIN).status == 200


def test_what_is_staged_is_committed_by_its_user_alone(server):
    data = stream(value=['{"id":"staged"}'])
    path, part = "/v1/writes/w", {"part": 0, "attempt": "a", "chunks": 1, "rows": 1}
    commit = json.dumps({"topic": "orders", "parts": [part]}).encode()
    ben = {"Authorization": "Bearer ben-token"}
    chunk = f"{path}/1?topic=orders&part=0&attempt=a&chunk=0"
    headers = {"Content-Type": ARROW}
    assert server.ask("POST", chunk, ben, data, **headers).status == 200
    assert server.ask("POST", f"{path}/1/commit", ANN, commit).json["reason"] == "not staged"
    assert server.ask("DELETE", f"{path}/1?topic=orders", ANN).status == 200
    assert server.ask("POST", f"{path}/1/commit", ben, commit).status == 200
    empty = json.dumps({"topic": "orders", "parts": []}).encode()
    assert server.ask("POST", f"{path}/9/commit", ANN, empty).status == 403, "or ben's are done"
    assert server.ask("POST", f"{path}/2/commit", ben, empty).status == 200


def test_no_secret_stands_in_what_the_server_reports_of_itself(server):
    for path in ("/v1/config", "/metrics", "/v1/sessions", "/openapi.json"):
        body = server.ask("GET", path, ADMIN).body
        for name in USERS:
            assert f"{name}-token".encode() not in body
            assert sum_of(f"{name}-token").encode() not in body


def test_a_bug_of_ours_leaves_nobody_his_rights(own, running, monkeypatch):
    authn = own.server._authn
    found = authn.identify_again

    async def identify_again(shown, who):
        if shown is shown_by_unlucky:
            raise RuntimeError("a bug")
        return await found(shown, who)

    monkeypatch.setattr(authn, "identify_again", identify_again)
    with own.socket(headers=READER) as unlucky, own.socket(headers=ANN) as ws:
        unlucky.ask({"c": "heartbeat"})
        sessions = own.server.executor.sessions
        (shown_by_unlucky,) = [one.shown for one in sessions if one.rights.user.name == "reader"]
        ws.ask({"c": "heartbeat"})
        own.say(reader="", admin="")
        assert own.reload().status == 200
        assert unlucky.until(c="close")
        assert ws.until(c="close"), "who comes after him is put out all the same"
    # The other server of these tests hears of it, too: there is one log in a process.
    assert "its user cannot be identified" in own.errors.pop()
    running.errors.clear()


def test_an_address_that_asks_nobody_is_found(server):
    """Planted: it lets everybody through, and the law says so."""
    (route,) = [one for one in TABLE if (one.method, one.path) == ("GET", "/v1/config")]
    with pytest.raises(AssertionError):
        test_every_address_asks_who_it_is.__wrapped__(server, route._replace(demand="nothing"))
