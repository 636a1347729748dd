"""Live views without asyncio."""

from threading import Event

import pytest

from sow.client import ClosedByServer
from sow.client.sync import Client, Live, LiveWindow
from sow.client.sync.client import LiveView
from sow.errors import ClientError


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_both_kinds_have_it_from_one_place():
    for name in ("widget", "keep_drawing", "preview", "to_arrow", "change", "changes", "synced"):
        assert getattr(Live, name) is getattr(LiveWindow, name) is getattr(LiveView, name)


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
        following = {*live.awaited._drawing}
    assert all(task.done() for task in following)
    assert (widget.caption, widget.rows) == ("orders: ended: it was closed", [])


def closed_by_an_operator(client):
    for session in client.http.json("GET", "/v1/sessions"):
        if session["connected"]:
            client.http.json("DELETE", f"/v1/sessions/{session['id']}")


def test_a_view_whose_session_was_closed_shows_the_reason_and_no_records(client):
    client.publish("orders", [{"id": number} for number in range(3)])
    with client.live("orders") as live, client.live("orders", top_n=2) as window:
        assert (live.ended, window.ended) == (None, None)
        widget = live.widget(60)
        drawn = Event()
        widget.observe(lambda _change: drawn.set(), "caption")
        closed_by_an_operator(client)
        for view in (live, window):
            with pytest.raises(ClosedByServer, match="closed by an operator"):
                view.change(60)
            assert "closed by an operator" in view.ended
            for read in (len, list, lambda one: one.copy(), lambda one: one.to_arrow()):
                with pytest.raises(ClosedByServer):
                    read(view)
            assert "<tbody></tbody>" in view._repr_html_()
            assert "closed by an operator" in view._repr_html_()
        assert drawn.wait(60)
        assert "closed by an operator" in widget.caption
        assert widget.rows == []


def test_a_live_view_may_be_gone_through_while_records_leave(client):
    client.publish("orders", [{"id": number} for number in range(10)])
    with client.live("orders") as live:
        for _, record in live.items():
            if record["id"] == 0:
                client.delete("orders", filter="1=1")
                while len(live):
                    live.change(60)
        assert list(live.values()) == []


def test_a_view_that_nobody_has_opened_does_not_read_as_an_empty_topic(client):
    client.publish("orders", {"id": 1})
    for view in (client.live("orders"), client.live("orders", top_n=2)):
        assert "orders: not open: `with` opens it" in view._repr_html_()
        for read in (view.copy, view.to_arrow, lambda view=view: len(view)):
            with pytest.raises(ClientError, match="the live view of 'orders' is not open"):
                read()
        with view:
            assert len(view) == 1
