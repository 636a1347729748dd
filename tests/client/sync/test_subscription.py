"""Messages one by one, without asyncio."""

import pytest

from sow.client.sync import Client


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_messages_come_one_by_one_also_after_a_timeout(client):
    client.publish("orders", {"id": 1})
    with client.sow_and_subscribe("orders") as messages:
        assert [messages.next(5).c for _ in range(3)] == ["group_begin", "sow", "group_end"]
        client.publish("orders", {"id": 2})
        assert next(messages).document() == {"id": 2}
        for number in range(3, 6):
            with pytest.raises(TimeoutError):
                messages.next(0.01)
            client.publish("orders", {"id": number})
            assert messages.next(5).document() == {"id": number}
