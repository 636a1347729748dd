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


def test_tables_of_an_answer_are_of_its_own_records(client):
    client.publish("orders", {"id": 1})
    for answer in (client.query("orders"), client.rows("orders").all()):
        assert (answer.records, answer.matches) == ([{"id": 1}], 1)
        assert answer.index == "scan"
        assert int(answer.bookmark) > 0
        client.publish("orders", {"id": 2, "note": "x"})
        assert answer.to_arrow().to_pylist() == [{"id": 1}]
        assert len(answer.to_pandas()) == len(answer.to_polars()) == 1
        client.delete("orders", filter="/id = 2")


def test_an_answer_is_read_after_its_client_is_closed(server):
    with Client(server.url) as client:
        client.publish("orders", [{"id": number, "px": 1.5} for number in range(500)])
        few, many = client.query("orders", top_n=1), client.query("orders")
        assert few.tables.is_settled is False
    assert many.to_arrow().schema.names == few.to_arrow().schema.names == ["id", "px"]
    assert "<caption>orders: 1 record of 500 that match</caption>" in few._repr_html_()
    assert few.preview().heads == ["id", "px"]
