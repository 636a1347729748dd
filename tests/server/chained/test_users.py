"""Users of a chained server: who they are upstream, and what upstream withdraws from them."""

from dataclasses import replace

import pytest

from tests.edge.secured import ADMIN, ANN, READER, ROLES, Secured, secured, tokens
from tests.edge.serving import Running, records
from tests.server.chained.chains import ALL, begin, hurry

CONFINED = ROLES.replace(
    "<Allow><Topic>orders|orderz.*|desk/mine|public-.*</Topic><Read/>",
    "<Allow><Topic>orders</Topic><Read/><Filter>/desk = 'b'</Filter></Allow>"
    "<Allow><Topic>public-.*</Topic><Read/>",
)
AGENT = "agent-token"


@pytest.fixture(params=["", AGENT], ids=["shown", "by token"])
def users(request, tmp_path, monkeypatch):
    """An upstream that knows users and a chained server that knows the same ones."""
    hurry(monkeypatch)
    upstream = Secured(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    (there / "tokens").write_text(tokens(ann="desk", reader="", admin="", agent=""))
    config = replace(secured(there, topics=""), topics=())
    upstream.chained = Running(config, there / "data", upstream=(upstream.url, request.param))
    yield upstream
    upstream.chained.close()
    upstream.close()
    assert upstream.errors == upstream.chained.errors == []


def test_a_user_may_do_what_upstream_allows_and_this_server_too(users):
    chained = users.chained

    def status(path, who, method="GET", body=None):
        headers = {"Content-Type": "application/json", **(who or {})}
        return chained.request(method, path, data=body, headers=headers).status

    assert status(records("orders"), None) == 401
    assert status(records("orders"), {"Authorization": "Bearer nonsense"}) == 401
    assert status(records("orders"), ANN) == 200
    assert status(records("orders"), ANN, "POST", b'{"id": 7}') == 200
    assert status(records("orders"), READER, "POST", b'{"id": 8}') == 403
    assert status(records("zq-secret"), ANN) == 404
    with chained.socket(headers=READER) as one:
        ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 9}})[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "not entitled")
        assert begin(one, ALL, "2")[-1]["status"] == "success"
    with chained.socket() as one:
        assert one.ask({"c": "sow", "t": "orders"})[-1]["status"] == "failure"
        one.ask({"c": "logon", "token": "ann-token"}, cid="2")
        assert begin(one, ALL, "3")[-1]["status"] == "success"


@pytest.mark.parametrize("user", ["ann", "reader", "nobody", ""])
def test_who_acts_for_another_may_do_what_that_one_may(users, user):
    found = []
    for server in (users, users.chained):
        agent = {"Authorization": f"Bearer {AGENT}", "SOW-As": user}
        headers = {**agent, "Content-Type": "application/json"}
        body = b'{"id": 7}'
        statuses = [
            server.request("POST", records("orders"), data=body, headers=headers).status,
            server.request("GET", records("orders"), headers=agent).status,
            server.request("GET", records("orders"), headers={**ANN, "SOW-As": user}).status,
        ]
        with server.socket(headers=agent) as one:
            ack = one.ask({"c": "publish", "t": "orders", "d": {"id": 8}})[-1]
            one.send({**ALL, "cid": "2"})
            began = one.until(c="ack", cid="2")[-1]
        found.append((statuses, ack["status"], began["status"]))
    assert found[0] == found[1]
    assert (found[0][1] == "success") == (user == "ann")


def test_users_share_subscriptions_with_themselves_alone(users):
    with (
        users.chained.socket(headers=ANN) as one,
        users.chained.socket(headers=ANN) as two,
        users.chained.socket(headers=READER) as other,
    ):
        names = [begin(socket, ALL)[0]["s"] for socket in (one, two, other)]
        assert names[0] == names[1] != names[2]
        sessions = users.ask("GET", "/v1/sessions", ADMIN).json
        assert sum(one["subscriptions"] for one in sessions) == 2


def test_what_upstream_withdraws_leaves_in_order(users):
    body = b'[{"id": 1, "desk": "a"}, {"id": 2, "desk": "b"}]'
    assert users.ask("POST", records("orders"), ADMIN, body).status == 200
    with users.chained.socket(headers=ANN) as one, users.chained.socket(headers=ANN) as two:
        for socket in (one, two):
            begin(socket, {**ALL, "opts": "oof"})
        users.next = secured(users.place, CONFINED)
        assert users.reload().status == 200
        assert users.ask("POST", records("orders"), ADMIN, b'{"id": 3, "desk": "b"}').status == 200
        for socket in (one, two):
            lines = socket.until(c="p")
            left = [line for line in lines if line["c"] == "oof"]
            assert {line["reason"] for line in left} == {"entitlement"}
            assert 1 in [line["d"]["id"] for line in left]
            assert lines[-1]["d"]["id"] == 3


def test_a_user_who_is_known_no_more_is_sent_away(users):
    with users.chained.socket(headers=ANN) as one:
        begin(one, ALL)
        users.say(reader="", admin="", agent="")
        assert users.reload().status == 200
        line = one.line()
        if line["c"] == "unsubscribed":
            # By a token of another she is a user still, without roles.
            assert (line["reason"], users.chained.server._source._upstream.token) == (
                "AUTHORIZATION",
                AGENT,
            )
        else:
            assert [line, *one.rest()][-1]["c"] == "close"
