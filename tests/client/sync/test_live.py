"""A live view without asyncio."""

from threading import Event

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


def test_a_live_view_shows_itself_in_notebooks(client):
    client.publish("orders", [{"id": number} for number in range(3)])
    with client.live("orders") as live, client.live("orders", top_n=2) as first:
        assert "<caption>orders: 3 records</caption>" in live._repr_html_()
        assert "<caption>orders: 2 records</caption>" in first._repr_html_()


def test_a_widget_follows_a_live_view_until_that_is_closed(client):
    client.publish("orders", [{"id": number} for number in range(3)])
    with client.live("orders") as live, client.live("orders", top_n=2) as first:
        widget, other = live.widget(0.1), first.widget()
        assert (widget.caption, other.caption) == ("orders: 3 records", "orders: 2 records")
        drawn = Event()
        widget.observe(lambda _change: drawn.set(), "caption")
        client.publish("orders", {"id": 7})
        assert drawn.wait(60)
        assert widget.caption == "orders: 4 records"
        following = {*live.live._drawing}
    assert all(task.cancelled() for task in following)
