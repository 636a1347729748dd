"""A server for each of these tests, and a proxy in front of it."""

import pytest

from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.spark.home import fast_home
from tests.spark.proxy import Proxy


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """Where each driver finds Spark: most of its life is the start of Pythons."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(fast_home(tmp_path_factory.mktemp("spark"))))
        yield


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
