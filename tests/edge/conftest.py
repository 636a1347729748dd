"""One server for each module of tests; each test finds it empty and leaves it without errors."""

import pytest

from tests.edge.lives import lives_on
from tests.edge.serving import configuration, served
from tests.edge.topics import MESSAGE_TYPES, TOPICS

running = served(configuration(TOPICS, MESSAGE_TYPES), checks=False)


@pytest.fixture
def server(running):
    yield running
    errors = running.errors.copy()
    running.errors.clear()
    assert errors == []
    running.clear()


@pytest.fixture
def live(tmp_path):
    return lives_on(tmp_path)


def pytest_collection_modifyitems(items):
    for item in items:
        if "/edge/" in item.path.as_posix() or "/fuzz/" in item.path.as_posix():
            item.add_marker("edge")
