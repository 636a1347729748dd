"""The tables of what a client does, played with the Python client and with sow.js, in Node and in a
browser: what one of them does the other does."""

from contextlib import ExitStack, closing
from functools import cache

import pytest

from tests.client.behaviour.javascript_agent import BrowserAgent, NodeAgent
from tests.client.behaviour.python_agent import PythonAgent
from tests.client.behaviour.tables import TABLES, TOPICS, World, fits, parse, play, row
from tests.edge.serving import configuration, served

pytestmark = pytest.mark.edge

FOUND = parse(TABLES.read_text())
IN_A_PAGE = {
    "A query returns the records in the requested order",
    "Publishes are there when they are answered",
    "Bytes are bytes and texts are texts",
    "A live view is the topic as it stands",
    "A window stays in its order",
    "Nothing is lost or repeated over broken connections",
    "A live view goes on over broken connections",
    "A closed client gets no more messages",
}
"""In a page sow.js is the same text with another WebSocket: by default these show that it works
there, too; `make slow` plays the others as well."""


def agents(title):
    """By which clients a table is played."""
    in_a_page = [pytest.mark.browser, *([] if title in IN_A_PAGE else [pytest.mark.slow])]
    yield pytest.param(title, "python")
    yield pytest.param(title, "node", marks=pytest.mark.node)
    yield pytest.param(title, "browser", marks=in_a_page)


def test_what_is_played_in_a_page_is_a_table():
    assert FOUND.keys() >= IN_A_PAGE


running = served(configuration(TOPICS), restarts=True)


@pytest.fixture(scope="module")
def begun(running, request):
    """The agents by their names, each started on demand, and used by all tables."""
    begin = {
        "python": lambda: PythonAgent(running.url),
        "node": lambda: NodeAgent(running.url),
        "browser": lambda: BrowserAgent(running.url, request.getfixturevalue("one_browser").page()),
    }
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(closing(begin[name]())))


@pytest.mark.parametrize(("title", "name"), [one for title in FOUND for one in agents(title)])
def test_a_client_does_what_the_table_says(running, begun, name, title):
    world, agent = World(running), begun(name)
    # The agent's client of before has gone; whether the server knows it already is left to nobody,
    # since who follows the same at one time shares windows.
    world.forget()
    running.clear()
    try:
        play(FOUND[title], world, agent)
    finally:
        agent.from_scratch()


class Planted:
    """Does what the table says, but for one thing."""

    def __init__(self, came):
        self.came = came

    def act(self, verb, words):
        return self.came


@pytest.mark.parametrize(
    ("line", "came"),
    [
        ('client rows v => [{"id":1}]', [{"id": 1, "px": 2}]),
        ('client rows v => [{"id":1}]', [{"id": True}]),
        ('client next s => {"command":"p","record":{"id":1}}', {"command": "p", "record": {}}),
        ('client change v => {"old":null}', {"old": {"id": 1}, "new": None}),
        ('client query o {} => refused {"reason":"bad filter"}', []),
        ("client next s => end", {"command": "p"}),
        ("client subscribe s orders {}", {"refused": {"reason": "bad request"}}),
    ],
)
def test_another_outcome_fails(line, came):
    with pytest.raises(AssertionError, match="client"):
        play([row(line)], None, Planted(came))


def test_of_a_message_only_what_is_named_counts():
    assert fits({"command": "p", "bm": "7", "record": {"id": 1}}, {"command": "p"})
