"""Who sow.js says it is, to a server that asks: in a Node and in a page, as far as a page can."""

from contextlib import closing

import bcrypt
import pytest

from sow.security.authentication.authenticator import Logons
from sow.security.authentication.tokens import sum_of
from sow.server.net.websocket import WebSocketHandler
from tests.client.behaviour.javascript_agent import BrowserAgent, NodeAgent
from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.edge

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>hidden</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
"""
ROLES = """
<Role><Name>desk</Name><Member>user:ann</Member>
  <Allow><Topic>orders</Topic><Read/><Write/><Delete/></Allow></Role>
<Role><Name>agents</Name><Member>user:agent</Member><Allow><Impersonate/></Allow></Role>
"""
ANN = {"user": "ann", "password": "s3cret"}
AGENTS = [
    pytest.param(lambda url, _pages: NodeAgent(url), id="node", marks=pytest.mark.node),
    pytest.param(
        lambda url, pages: BrowserAgent(url, pages()), id="browser", marks=pytest.mark.browser
    ),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def running(tmp_path_factory, place):
    write_users(place, ann="s3cret")
    (place / "tokens").write_text(f"agent {sum_of('t0ken')}\n")
    made = configuration(
        TOPICS,
        f"""<Security><Authentication><Users><File>{place}/users</File></Users>
<Tokens><File>{place}/tokens</File></Tokens></Authentication>{ROLES}</Security>""",
    )
    # Here many are refused, who would have to wait.
    data = tmp_path_factory.mktemp("data")
    server = Running(made, data, logons=Logons(), reread=lambda: made)
    yield server
    server.close()
    assert server.errors == []


def write_users(place, **passwords):
    kept = {
        name: bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
        for name, password in passwords.items()
    }
    (place / "users").write_text("".join(f"{name}:{one}\n" for name, one in kept.items()))


@pytest.fixture(params=AGENTS)
def agent(request, running, pages):
    with closing(request.param(running.url, pages)) as found:
        yield found


def test_a_user_may_do_what_he_may_and_sees_nothing_else(agent):
    assert agent.act("logon", [ANN]) == "connected"
    assert agent.act("publish", ["orders", {"id": 1}]) == "done"
    assert agent.act("query", ["orders", {}]) == [{"id": 1}]
    for verb, words in (("query", ["hidden", {}]), ("live", ["v", "hidden", {}])):
        assert agent.act(verb, words)["refused"]["reason"] == "invalid topic"


def test_a_token_may_act_for_another(agent):
    assert agent.act("logon", [{"token": "t0ken", "as": "ann"}]) == "connected"
    assert agent.act("publish", ["orders", {"id": 2}]) == "done"


@pytest.mark.parametrize(
    "shown", [{}, {"user": "ann", "password": "other"}, {"token": "other"}], ids=str
)
def test_who_is_nobody_is_not_let_in(agent, shown):
    refused = agent.act("logon", [shown])["refused"]
    assert refused["reason"] == "auth failure"


def test_he_shows_it_again_when_he_comes_back(agent, running):
    agent.act("logon", [ANN])
    agent.act("live", ["v", "orders", {}])
    before = agent.act("rows", ["v"])
    running.call(
        lambda: [
            client._request.transport.abort()
            for client in list(running.server._handlers[WebSocketHandler]._clients)
        ]
    )
    assert agent.act("publish", ["orders", {"id": 3}]) in ("done", LOST)
    agent.act("publish", ["orders", {"id": 4}])
    rows = sorted([*before, {"id": 4}], key=lambda row: row["id"])
    assert {"id": 4} in agent.act("until_there", ["v", {"id": 4}])
    assert all(row in agent.act("rows", ["v"]) for row in rows)
    assert agent.act("gaps", ["v"]) == 0


LOST = {"refused": {"reason": "disconnected"}}
"""What is sent into a connection that breaks may or may not be done."""


def test_who_is_no_user_any_more_is_sent_and_stays_away(agent, running, place):
    agent.act("logon", [ANN])
    agent.act("live", ["v", "orders", {}])
    write_users(place, ben="other")
    try:
        running.wait(running.server.reload())
        assert agent.act("ended", ["v"]) == "AUTHORIZATION"
        assert "credentials are not valid any more: they have expired" in agent.act("closed", [])
    finally:
        write_users(place, ann="s3cret")
        running.wait(running.server.reload())
