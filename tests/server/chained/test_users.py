"""Users of a chained server: who they are upstream, and what upstream withdraws from them."""

import itertools
import json
from dataclasses import replace

import aiohttp
import bcrypt
import pytest

from sow.core.clock import LogClock
from sow.security.authentication.authenticator import Logons
from sow.server.api.nodes import Upstream
from tests.edge.arrow import ARROW, stream
from tests.edge.secured import ADMIN, ANN, READER, ROLES, Secured, secured, tokens
from tests.edge.serving import Running, configuration, records
from tests.server.chained.chains import ALL, ORDERS, begin, logged_on

CONFINED = ROLES.replace(
    "<Allow><Topic>orders|orderz.*|desk/mine|public-.*</Topic><Read/>",
    "<Allow><Topic>orders</Topic><Read/><Filter>/desk = 'b'</Filter></Allow>"
    "<Allow><Topic>public-.*</Topic><Read/>",
)
AGENT = "agent-token"


@pytest.fixture(params=["", AGENT], ids=["shown", "by token"])
def users(request, tmp_path):
    """An upstream that knows users and a chained server that knows the same ones."""
    upstream = Secured(tmp_path)
    there = tmp_path / "there"
    there.mkdir()
    (there / "tokens").write_text(tokens(ann="desk", reader="", admin="", agent=""))
    config = replace(secured(there, topics=""), topics=())
    above = Upstream(upstream.url, request.param)
    upstream.chained = Running(config, there / "data", upstream=above)
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


@pytest.mark.parametrize("more", [{"opts": "oof"}, {"opts": "oof,live", "top_n": 5}])
def test_what_upstream_withdraws_leaves_in_order(users, more):
    body = b'[{"id": 1, "desk": "a"}, {"id": 2, "desk": "b"}]'
    assert users.ask("POST", records("orders"), ADMIN, body).status == 200
    with users.chained.socket(headers=ANN) as one, users.chained.socket(headers=ANN) as two:
        for socket in (one, two):
            begin(socket, {**ALL, **more})
            # A session for which something waits when rights change is closed.
            socket.ask({"c": "flush"}, cid="nothing waits any more")
        users.next = secured(users.place, CONFINED)
        assert users.reload().status == 200
        assert users.ask("POST", records("orders"), ADMIN, b'{"id": 3, "desk": "b"}').status == 200
        for socket in (one, two):
            lines = socket.until(c="p")
            left = [line for line in lines if line["c"] == "oof"]
            assert {line["reason"] for line in left} == {"entitlement"}
            assert 1 in [line["d"]["id"] for line in left]
            assert lines[-1]["d"]["id"] == 3


@pytest.mark.parametrize("options", ["oof", "oof,conflation=50ms"])
def test_what_came_and_was_withdrawn_while_a_session_was_away_leaves_without_a_word(users, options):
    users.next = secured(users.place, CONFINED)
    assert users.reload().status == 200

    def post(*records_of):
        body = json.dumps(records_of).encode()
        assert users.ask("POST", records("orders"), ADMIN, body).status == 200

    post({"id": 1, "desk": "b", "x": 1})
    with users.chained.socket(headers=ANN) as other:
        begin(other, {**ALL, "opts": options})
        with users.chained.socket(headers=ANN) as one:
            session = logged_on(one)["session"]
            begin(one, {**ALL, "opts": options}, "2")
            seen = len(one.seen) - 1
        for desk in ("b", "a"):
            post({"id": 1, "desk": desk, "x": 2}, {"id": 2, "desk": desk})
            assert {other.line()["c"] for _ in range(2)} == {"p" if desk == "b" else "oof"}
        with users.chained.socket(headers=ANN) as again:
            assert logged_on(again, session=session, seen=seen)["resumed"]
            post({"id": 3, "desk": "b"})
            *left, _ = again.until(c="p")
    (one,) = [line["d"] for line in left]
    # Without conflation what was sent of it is not known there.
    assert one == ({"id": 1, "desk": "b", "x": 1} if "conflation" in options else {"id": 1})


def test_a_user_who_is_known_no_more_is_sent_away(users):
    with users.chained.socket(headers=ANN) as one:
        begin(one, ALL)
        users.say(reader="", admin="", agent="")
        assert users.reload().status == 200
        line = one.line()
        assert (line["c"], line["reason"]) == ("unsubscribed", "AUTHORIZATION")
        if not users.chained.server._source._upstream.token:
            # By a token of another she is a user still, without roles.
            assert one.line()["c"] == "close"


PASSWORDS = """<Security><Authentication><Users><File>{0}/users</File></Users></Authentication>
{1}<Role><Name>all</Name><Member>*</Member><Allow><Topic>orders</Topic><Read/></Allow></Role>
</Security>"""
TRUSTED = "<TrustedProxies>127.0.0.1</TrustedProxies>"


@pytest.mark.parametrize("trusted", [TRUSTED, ""])
def test_who_guesses_is_slowed_down_alone_where_upstream_trusts_this_server(tmp_path, trusted):
    """A chained server without users of its own: who they are is upstream's to say."""
    kept = bcrypt.hashpw(b"good", bcrypt.gensalt(4)).decode()
    (tmp_path / "users").write_text("".join(f"{user}:{kept}\n" for user in ("ann", "ben", "cy")))
    # Its time stands still, so that nobody has waited long enough.
    upstream = Running(
        configuration(ORDERS, PASSWORDS.format(tmp_path, trusted)),
        tmp_path / "data",
        logons=Logons(lambda: 20),
        clock=LogClock(),
    )
    chained = Running(configuration(""), tmp_path / "edge", upstream=Upstream(upstream.url))
    known = {"Authorization": aiohttp.encode_basic_auth("ann", "good")}
    with chained.socket(headers=known) as one:
        assert begin(one, ALL)[-1]["status"] == "success"
        for ask, good, refused in (
            (_over_http, 200, 429),
            (_over_websocket, "success", "too many logons"),
        ):
            said = {chained.wait(ask(chained.url, "ann", f"{n}", "127.0.0.2")) for n in range(8)}
            assert refused in said
            user = {_over_http: "ben", _over_websocket: "cy"}[ask]
            found = chained.wait(ask(chained.url, user, "good", "127.0.0.3"))
            assert found == (good if trusted else refused)
        assert begin(one, {**ALL, "filter": "/x > 1"}, "2")[-1]["status"] == "success"
    chained.close()
    upstream.close()


def _from(source):
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(source, 0)))


async def _over_http(url, user, password, source):
    headers = {"Authorization": aiohttp.encode_basic_auth(user, password)}
    url += records("orders")
    async with _from(source) as calls, calls.get(url, headers=headers) as answer:
        return answer.status


async def _over_websocket(url, user, password, source):
    logon = {"c": "logon", "user": user, "password": password}
    async with _from(source) as calls, calls.ws_connect(url + "/v1/ws") as socket:
        await socket.send_bytes(json.dumps(logon).encode())
        await socket.send_bytes(b'{"c":"sow","t":"orders","cid":"2","a":"completed"}')
        while True:
            for line in map(json.loads, (await socket.receive_bytes()).splitlines()):
                if line["c"] == "ack" and line.get("cid") == "2":
                    return line.get("reason") or line["status"]


def test_what_a_user_has_stored_is_his_through_whichever_server_he_comes(tmp_path):
    """Staged writes, writers, consumers and snapshots, by one token or another, and by none."""
    more = ROLES.replace(
        "<Member>user:agent</Member>", "<Member>user:agent</Member><Member>user:other</Member>"
    )
    upstream = Secured(tmp_path)
    upstream.say(ann="desk", ben="desk", reader="", admin="", agent="", other="")
    upstream.next = secured(tmp_path, more)
    assert upstream.reload().status == 200
    chained = []
    for name, token in (("one", AGENT), ("two", "other-token"), ("three", "")):
        there = tmp_path / name
        there.mkdir()
        (there / "tokens").write_text(tokens(ann="desk", ben="desk"))
        config = replace(secured(there, topics=""), topics=())
        above = Upstream(upstream.url, token)
        chained.append(Running(config, there / "data", upstream=above))

    def ask(server, who, method, path, body=None, kind="application/json"):
        headers = {**who, "Content-Type": kind}
        return server.request(method, path, data=body, headers=headers)

    ben = {"Authorization": "Bearer ben-token"}
    servers = [*chained, upstream]
    for epoch, (first, second) in enumerate(itertools.permutations(servers, 2)):
        path = f"/v1/writes/w/{epoch}"
        rows = stream(value=[json.dumps({"id": 100 + epoch})])
        staged = ask(first, ANN, "POST", f"{path}?topic=orders&attempt=a", rows, ARROW)
        assert (staged.status, staged.json["staged"]) == (200, 1)
        parts = [{"part": 0, "attempt": "a", "chunks": 1, "rows": 1}]
        commit = json.dumps({"topic": "orders", "parts": parts}).encode()
        for _ in range(2):
            assert ask(second, ben, "POST", f"{path}/commit", commit).status in (403, 409)
        done = ask(second, ANN, "POST", f"{path}/commit", commit)
        assert (done.status, done.json["duplicate"]) == (200, False)
        assert ask(first, ANN, "POST", f"{path}/commit", commit).json["duplicate"] is True
        position = b'{"bookmark":"1"}'
        assert ask(first, ANN, "PUT", "/v1/log/consumers/c", position).status == 200
        assert ask(second, ben, "PUT", "/v1/log/consumers/c", position).status == 403
        taken = ask(first, ANN, "POST", "/v1/snapshots?topic=orders")
        part = f"/v1/snapshots/{taken.json['snapshot']}?part=0"
        assert ask(second, ben, "GET", part).status == 404
        assert ask(second, ANN, "GET", part).status == 200
    for one in reversed(servers):
        one.close()
    assert [one.errors for one in servers] == [[]] * 4
