"""Wherever an expression is refused, it is said where it breaks and what was expected there."""

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.serving import records, stream
from tests.expressions.refusals import REFUSED

SOME = [
    REFUSED[name]
    for name in ("a slip from another language", "AS", "too many levels", "OF PREVIOUS")
]
"""A few of the refusals that tests/expressions/test_refusals.py goes through."""
LONG = REFUSED["too many bytes of long letters"]
"""An address is bounded, so longer filters go over the WebSocket only."""
LISTS = [
    ({"order_by": "/px,  id"}, 6),
    ({"order_by": "/px DESC, /a * NOPE(/b)"}, 15),
    ({"order_by": "/px, -/a SIDEWAYS"}, 9),
    ({"order_by": ", ".join(["-/a"] * 9)}, 40),
    ({"select": "/id, px"}, 5),
    ({"select": "[-/, +id]"}, 5),
    ({"select": "/id,/legs[0]"}, 4),
]


@pytest.mark.parametrize("kind", ["query", "delete", "stream"])
def test_a_problem_says_where_a_filter_breaks(server, kind):
    for text, position in SOME:
        path = (stream if kind == "stream" else records)("orders", filter=text)
        answer = server.request("DELETE" if kind == "delete" else "GET", path)
        assert answer.headers["Content-Type"].startswith("application/problem+json")
        assert (answer.status in (400, 413), answer.json["position"]) == (True, position)
        assert answer.json["expected"]


@pytest.mark.parametrize("command", ["sow", "subscribe", "sow_and_subscribe", "sow_delete"])
def test_a_failure_ack_says_where_a_filter_breaks(server, command):
    with server.socket() as ws:
        for text, position in (*SOME, LONG):
            ack = ws.ask({"c": command, "t": "orders", "filter": text})[-1]
            assert (ack["status"], ack["position"]) == ("failure", position)
            assert ack["expected"]


@pytest.mark.parametrize(("text", "position"), SOME)
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
