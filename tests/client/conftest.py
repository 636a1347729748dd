"""A server for each module of tests, and clients of it without asyncio in the tests."""

import asyncio

import pytest

from sow.client import Client
from tests.edge.serving import WAIT_S, configuration, served

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>/my/orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>passing</Name><MessageType>json</MessageType><Key>/id</Key>
<Durability>transient</Durability></Topic>
<Topic><Name>/desk/1</Name><MessageType>json</MessageType><Key>/id</Key>
<KeyDomain>desk</KeyDomain></Topic>
<Topic><Name>/desk/2</Name><MessageType>json</MessageType><Key>/id</Key>
<KeyDomain>desk</KeyDomain></Topic>
<Topic><Name>short</Name><MessageType>json</MessageType><Key>/id</Key>
<Expiration>900s</Expiration></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key><Series/></Topic>
<Topic><Name>tasks</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Queue><Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>tasks</UnderlyingTopic>
<MaxPerSubscriptionBacklog>5</MaxPerSubscriptionBacklog></Queue>
<Topic><Name>fixes</Name><MessageType>nvfix</MessageType><Key>/1</Key></Topic>
<Topic><Name>blobs</Name><MessageType>binary</MessageType></Topic>
"""


running = served(configuration(TOPICS), checks=False)


@pytest.fixture
def server(running):
    """The module's server, found empty."""
    running.clear()
    return running


@pytest.fixture
def using(server):
    """Runs a coroutine function with a client and returns what it returns."""

    def run(work):
        async def session():
            async with Client(server.url, name="test") as client:
                return await work(client)

        return asyncio.run(asyncio.wait_for(session(), WAIT_S))

    return run


def pytest_collection_modifyitems(items):
    for item in items:
        if "server" in getattr(item, "fixturenames", ()) and "/client/" in item.path.as_posix():
            item.add_marker("edge")
