"""Wherever an expression is refused, it is said where it breaks and what was expected there."""

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.serving import records, stream
from tests.expressions.refusals import REFUSED

CASES = pytest.mark.parametrize(("text", "position"), REFUSED.values(), ids=REFUSED)
LISTS = [
    ({"order_by": "/px,  id"}, 6),
    ({"order_by": "/px DESC, /a * NOPE(/b)"}, 15),
    ({"order_by": "/px, -/a SIDEWAYS"}, 9),
    ({"order_by": ", ".join(["-/a"] * 9)}, 40),
    ({"select": "/id, px"}, 5),
    ({"select": "[-/, +id]"}, 5),
    ({"select": "/id,/legs[0]"}, 4),
]


@pytest.fixture(params=["query", "delete", "stream"])
def over_http(server, request):
    """The problem document of a request with this filter."""
    kind = request.param

    def ask(text):
        path = (stream if kind == "stream" else records)("orders", filter=text)
        answer = server.request("DELETE" if kind == "delete" else "GET", path)
        assert answer.headers["Content-Type"].startswith("application/problem+json")
        return answer

    return ask


@pytest.fixture(params=["sow", "subscribe", "sow_and_subscribe", "sow_delete"])
def over_websocket(server, request):
    """The failure ack of a command with this filter."""

    def ask(text):
        with server.socket() as ws:
            command = {"c": request.param, "t": "orders", "filter": text}
            return ws.ask(command)[-1]

    return ask


# An address is bounded, so longer filters go over the WebSocket only.
SHORT = {name: case for name, case in REFUSED.items() if len(case[0]) < 2000}


@pytest.mark.parametrize(("text", "position"), SHORT.values(), ids=SHORT)
def test_a_problem_says_where_a_filter_breaks(over_http, text, position):
    answer = over_http(text)
    assert (answer.status in (400, 413), answer.json["position"]) == (True, position)
    assert answer.json["expected"]


@CASES
def test_a_failure_ack_says_where_a_filter_breaks(over_websocket, text, position):
    ack = over_websocket(text)
    assert (ack["status"], ack["position"], bool(ack["expected"])) == ("failure", position, True)


@pytest.mark.parametrize(("text", "position"), SHORT.values(), ids=SHORT)
def test_the_command_line_points_at_where_a_filter_breaks(server, text, position):
    words = ["query", "orders", "--url", server.url, "--filter", text]
    result = CliRunner().invoke(main, words)
    said, shown, caret = result.stderr.splitlines()
    code = 2 if "not available yet" in said else 1
    assert (result.exit_code, said[:5]) == (code, "sow: ")
    at = caret.index("^")
    assert shown[at : at + 10] == text[position : position + len(shown[at:])][:10]


@pytest.mark.parametrize(("requested", "position"), LISTS)
def test_a_refused_list_says_where_it_breaks(server, requested, position):
    problem = server.get(records("orders", **requested)).json
    assert (problem["position"], bool(problem["expected"])) == (position, True)
    with server.socket() as ws:
        ack = ws.ask({"c": "sow", "t": "orders", **requested})[-1]
    assert (ack["reason"], ack["position"]) == (problem["reason"], position)


def test_a_refused_conflation_key_says_where_it_breaks(server):
    problem = server.get(stream("orders", conflation="1s", conflation_key="/a, b")).json
    assert (problem["reason"], problem["position"]) == ("invalid options", 4)
    with server.socket() as ws:
        options = "conflation=1s,conflation_key=[/a, b]"
        ack = ws.ask({"c": "subscribe", "t": "orders", "opts": options})[-1]
    assert (ack["reason"], ack["position"]) == ("invalid options", 5)
    assert ack["detail"].startswith("conflation_key: 'b' is not a path")
