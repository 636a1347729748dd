"""A live window as a list: in order, at the end of a turn, and after a gap."""

import msgspec
import pytest

from sow.client import LiveWindow, Message
from sow.errors import ClientError

SOON_S = 60.0


def test_changes_say_who_has_entered_and_left(using):
    async def work(client):
        await client.publish("orders", [{"id": 1}, {"id": 2}])
        async with client.live("orders", order_by="/id", top_n=1, skip_n=1) as window:
            await client.publish("orders", {"id": 0})
            return [await window.change(SOON_S) for _ in range(2)]

    left, came = using(work)
    assert (left.old, left.new) == ({"id": 2}, None)
    assert (came.old, came.new) == (None, {"id": 1})


def test_what_is_refused_is_raised_when_it_is_entered(using):
    async def work(client):
        with pytest.raises(ClientError, match="pattern"):
            await client.live("^ord", top_n=3).__aenter__()

    using(work)


def receive(view, *lines):
    for kind, key, at in lines:
        view._on_message(
            Message(kind, t="t", k=key, at=at, d=msgspec.Raw(b'{"k":"%s"}' % key.encode()))
        )


def test_half_a_turn_is_never_seen_and_a_gap_starts_again():
    view = LiveWindow(None, "t", None)
    view._is_open = True
    receive(
        view, ("group_begin", "", None), ("sow", "a", 0), ("sow", "b", 1), ("group_end", "", None)
    )
    receive(view, ("oof", "a", 0))
    assert view.keys == ["a", "b"]
    receive(view, ("p", "c", 1), ("turn_end", "", None))
    assert view.keys == ["b", "c"]
    receive(view, ("group_begin", "", None), ("sow", "d", 0))
    assert view.keys == ["b", "c"]
    receive(view, ("group_end", "", None))
    assert view.copy() == [{"k": "d"}]
