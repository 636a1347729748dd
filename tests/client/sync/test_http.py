"""Answers over HTTP, without asyncio."""

import pytest

from sow.client.sync import Client
from sow.errors import UnknownTopic


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_rows_may_be_gone_through_without_a_context(client):
    client.publish("orders", [{"id": 1}, {"id": 2}])
    assert list(client.rows("orders", order_by="/id")) == [b'{"id":1}', b'{"id":2}']
    rows = client.rows("orders", order_by="/id")
    assert (rows.matches, next(iter(rows))) == (2, b'{"id":1}')
    with pytest.raises(UnknownTopic):
        list(client.rows("nope"))
