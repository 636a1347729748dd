"""A live view without asyncio."""

import pytest

from sow.client.sync import Client


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_a_live_view_gives_changes_after_any_number_of_timeouts(client):
    with client.live("orders") as live:
        for number in range(3):
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    live.change(0.01)
            client.publish("orders", {"id": number})
            assert live.change(5).new == {"id": number}
        assert len(live) == 3


def test_a_live_view_may_be_gone_through_while_records_leave(client):
    client.publish("orders", [{"id": number} for number in range(10)])
    with client.live("orders") as live:
        for _, record in live.items():
            if record["id"] == 0:
                client.delete("orders", filter="1=1")
                while len(live):
                    live.change(5)
        assert list(live.values()) == []
