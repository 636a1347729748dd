"""The tables of what a client does, played with the Python client and with sow.js, in Node and in a
browser: what one of them does the other does."""

from contextlib import closing

import pytest

from tests.client.behaviour.javascript_agent import BrowserAgent, NodeAgent
from tests.client.behaviour.python_agent import PythonAgent
from tests.client.behaviour.tables import TABLES, TOPICS, World, fits, parse, play, row
from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.edge

FOUND = parse(TABLES.read_text())
AGENTS = [
    pytest.param(lambda url, _pages: PythonAgent(url), id="python"),
    pytest.param(lambda url, _pages: NodeAgent(url), id="node", marks=pytest.mark.node),
    pytest.param(
        lambda url, pages: BrowserAgent(url, pages()), id="browser", marks=pytest.mark.browser
    ),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = Running(configuration(TOPICS), tmp_path_factory.mktemp("data"))
    yield server
    server.close()
    assert server.errors == []


@pytest.mark.parametrize("begin", AGENTS)
@pytest.mark.parametrize("title", FOUND)
def test_a_client_does_what_the_table_says(running, begin, title, pages):
    running.clear()
    with closing(begin(running.url, pages)) as agent:
        play(FOUND[title], World(running), agent)


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
