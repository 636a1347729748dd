"""A live window without asyncio."""

import pytest

from sow.client.sync import Client, LiveWindow


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_a_live_window_is_a_list_that_stays_in_order(client):
    client.publish("orders", [{"id": 1}, {"id": 2}, {"id": 3}])
    with client.live("orders", order_by="/id DESC", top_n=2) as window:
        assert isinstance(window, LiveWindow)
        assert [document["id"] for document in window] == [3, 2]
        client.publish("orders", {"id": 9})
        left, came = window.change(5), window.change(5)
        assert (left.old, came.new) == ({"id": 2}, {"id": 9})
        assert window[0] == {"id": 9}
        assert [document["id"] for document in window[:]] == [9, 3]
        assert len(window.keys) == len(window) == 2
        assert window.to_arrow().column("id").to_pylist() == [9, 3]
