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


def test_tables_of_an_answer_are_asked_for_when_they_are_wanted(client):
    client.publish("orders", {"id": 1})
    for answer in (client.query("orders"), client.rows("orders").all()):
        assert (answer.records, answer.matches) == ([{"id": 1}], 1)
        assert answer.index == "scan"
        assert int(answer.bookmark) > 0
        client.publish("orders", {"id": 2, "note": "x"})
        assert answer.to_arrow().num_rows == 2
        assert len(answer.to_pandas()) == 2
        client.delete("orders", filter="/id = 2")
