"""Answers over HTTP, without asyncio."""

import pytest

from sow.client import Answer
from sow.client.sync import Client
from sow.client.sync.http import TopicAnswer
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


def test_tables_of_an_answer_are_asked_for_when_they_are_wanted():
    asked = []

    def ask():
        asked.append(1)
        return "table"

    answer = TopicAnswer.of(Answer([{"id": 1}], 1, "scan", "7"), ask)
    assert (answer.records, answer.matches, answer.index, answer.bookmark) == (
        [{"id": 1}],
        1,
        "scan",
        "7",
    )
    assert asked == []
    assert answer.to_arrow() == "table"
    assert asked == [1]
