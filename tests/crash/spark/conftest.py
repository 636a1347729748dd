"""A server for each of these tests, and a proxy in front of it."""

import pytest

from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.spark.proxy import Proxy


@pytest.fixture
def server(tmp_path):
    server = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path / "data")
    yield server
    server.close()


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.url)
    yield proxy
    proxy.close()
