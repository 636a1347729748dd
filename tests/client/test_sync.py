"""The client without asyncio."""

import pytest

from sow.client.sync import Client
from sow.errors import UnknownTopic


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_publishing_and_asking(client):
    client.publish("orders", [{"id": 1, "px": 1}, {"id": 2, "px": 2}])
    client.delta_publish("orders", {"id": 1, "q": 5})
    assert client.query("orders", filter="/px = 1").records == [{"id": 1, "px": 1, "q": 5}]
    assert client.delete("orders", filter="1=1") == 2


def test_a_refusal_is_raised_as_the_same_error(client):
    with pytest.raises(UnknownTopic):
        client.query("nope")


def test_messages_come_one_by_one(client):
    client.publish("orders", {"id": 1})
    with client.sow_and_subscribe("orders") as messages:
        assert [messages.next(5).c for _ in range(3)] == ["group_begin", "sow", "group_end"]
        client.publish("orders", {"id": 2})
        assert next(messages).document() == {"id": 2}
        with pytest.raises(TimeoutError):
            messages.next(0.01)


def test_a_live_view(client):
    client.publish("orders", {"id": 1})
    with client.live("orders") as live:
        assert [record["id"] for record in live.values()] == [1]
        client.publish("orders", {"id": 2})
        assert live.change(5).new == {"id": 2}
        assert len(live) == 2
