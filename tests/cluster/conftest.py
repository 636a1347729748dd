"""One cluster, one session on it and one server for the whole run.

Only a run that names this directory collects it (`make cluster`): it takes a minute and gigabytes.
"""

import os
import warnings

import pytest

from sow.spark import session
from tests.cluster.daemons import Cluster
from tests.cluster.installed import python_with_wheel
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.spark.home import fast_home


def pytest_ignore_collect(config):
    return None if any("cluster" in argument for argument in config.args) else True


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path_factory.mktemp("data"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """The Python of the workers, which has SOW from a wheel and no checkout."""
    return python_with_wheel(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory):
    """Where each of Spark's processes here finds Spark."""
    with pytest.MonkeyPatch.context() as patch:
        found = fast_home(tmp_path_factory.mktemp("spark"))
        patch.setenv("SPARK_HOME", str(found))
        yield found


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, python, home):
    with Cluster(tmp_path_factory.mktemp("cluster"), python) as found:
        yield found


@pytest.fixture(scope="module")
def spark(tmp_path_factory, cluster, python):
    """A driver of this checkout on workers that have the wheel; gone when others need its cores."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = str(python)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = session(
            "tests",
            cluster.url,
            {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
        )
    try:
        yield found
    finally:
        found.stop()
        os.environ.pop("PYSPARK_PYTHON")
        if before is not None:
            os.environ["PYSPARK_PYTHON"] = before
