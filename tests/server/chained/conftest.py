"""A pair of servers for the tests of a file."""

import pytest

from tests.server.chained.chains import Pair, hurry


@pytest.fixture(autouse=True)
def hurried(monkeypatch):
    hurry(monkeypatch)


@pytest.fixture
def pair(tmp_path):
    pair = Pair(tmp_path)
    yield pair
    pair.close()
    assert pair.upstream.errors == pair.chained.errors == []
