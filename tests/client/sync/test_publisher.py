"""Publishing fast, without asyncio."""

import pytest

from sow.client.sync import Client
from sow.errors import BadMessage


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_a_number_that_json_does_not_have_is_refused_before_anything_is_sent(client, server):
    bad = [{"id": 1}, {"id": 2, "legs": [{"px": float("nan")}]}]
    with client.publisher("orders") as publisher:
        for send in (
            lambda: client.publish("orders", bad),
            lambda: client.delta_publish("orders", bad),
            lambda: publisher.send(bad),
        ):
            with pytest.raises(BadMessage, match=r"message 1: /legs\[0\]/px is NaN") as caught:
                send()
            assert caught.value.index == 1
        assert publisher.sent == 0
    assert server.records("orders") == []
