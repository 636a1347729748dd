"""A server for each module of tests, and the command line pointed at it."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.serving import configuration, served

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>copies</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>elements-2</Name><MessageType>xml</MessageType><Key>/o/@id</Key></Topic>
<Topic><Name>packed-2</Name><MessageType>msgpack</MessageType><Key>/id</Key>
  <Expiration>enabled</Expiration></Topic>
<Topic><Name>pairs</Name><MessageType>json</MessageType><Key>/a</Key><Key>/b/c</Key></Topic>
<Topic><Name>short</Name><MessageType>json</MessageType><Key>/id</Key>
  <Expiration>enabled</Expiration></Topic>
<Topic><Name>brief</Name><MessageType>json</MessageType><Key>/id</Key>
  <Expiration>30m</Expiration></Topic>
<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^/desk/</Pattern></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key><Series/></Topic>
<Topic><Name>notes</Name><MessageType>string</MessageType></Topic>
<Topic><Name>blobs</Name><MessageType>binary</MessageType></Topic>
<Topic><Name>elements</Name><MessageType>xml</MessageType><Key>/o/@id</Key></Topic>
<Topic><Name>packed</Name><MessageType>msgpack</MessageType><Key>/id</Key></Topic>
<Topic><Name>documents</Name><MessageType>bson</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>
"""


running = served(configuration(TOPICS), checks=False)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """A machine that stands still is no server that does not answer."""
    monkeypatch.setattr("sow.cli.connecting.PATIENCE_S", 1e6)


@pytest.fixture
def server(running):
    """The module's server, found empty."""
    running.clear()
    return running


@pytest.fixture
def sow(server):
    """Runs a command against the server; `sow.ok` insists that it works, returning stdout."""

    def run(*arguments, **more):
        return CliRunner().invoke(main, [*arguments, "--url", server.url], **more)

    def ok(*arguments, **more):
        result = run(*arguments, **more)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    run.ok = ok
    return run


@pytest.fixture
def orders(server):
    """Publishes documents to the topic orders."""
    return lambda *documents: server.post("orders", json.dumps(documents).encode())


def pytest_collection_modifyitems(items):
    for item in items:
        if "server" in getattr(item, "fixturenames", ()) and "/cli/" in item.path.as_posix():
            item.add_marker("edge")
