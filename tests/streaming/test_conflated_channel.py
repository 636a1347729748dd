"""Windows of a subscription: what waits, when it is sent, and what a newcomer gets of it."""

import pytest

from sow.protocol.replies import LINES
from sow.streaming import conflated_channel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ConflatedFeed
from sow.streaming.update_encoder import FeedKey
from tests.streaming.making import SECOND, Subscription, pulled, said, session
from tests.topic.making import put, records


class Windows(Subscription):
    def __init__(self, interval_us=SECOND, **key):
        super().__init__(interval_us=interval_us, **key)
        self.seq = 0

    def put(self, now_us, *documents):
        self.on_batch(put(self.topic, *documents, seq=self.seq + 1, ts_us=now_us), now_us)
        self.seq += len(documents)


def test_a_window_is_said_once_at_its_end():
    windows = Windows()
    windows.put(0, {"id": 1, "v": 1})
    windows.put(400_000, {"id": 1, "v": 2})
    assert windows.channel.due_us() == SECOND
    assert windows.said(SECOND - 1) == []
    assert windows.said(SECOND) == [("p", {"id": 1, "v": 2})]
    assert windows.channel.due_us() is None


def test_of_much_that_is_due_some_is_released_at_a_time(monkeypatch):
    monkeypatch.setattr(conflated_channel, "RELEASED_AT_ONCE", 2)
    windows = Windows()
    windows.put(0, *({"id": at} for at in range(5)))
    assert [document["id"] for _, document in windows.said(SECOND)] == [0, 1]
    windows.put(SECOND, {"id": 4, "v": 2}, {"id": 0, "v": 2})
    assert [document["id"] for _, document in windows.said(SECOND)] == [2, 3]
    assert windows.said(SECOND) == [("p", {"id": 4})]
    assert windows.said(SECOND) == []
    assert len(windows.said(2 * SECOND)) == 2


def test_windows_end_in_the_order_in_which_they_opened():
    windows = Windows()
    windows.put(0, {"id": 2})
    windows.put(1, {"id": 1})
    windows.put(2, {"id": 2, "v": 1})
    said = [*windows.said(2 * SECOND), *windows.said(2 * SECOND)]
    assert [document["id"] for _, document in said] == [2, 1]


def test_a_line_bears_the_bookmark_of_the_first_change_that_it_stands_for():
    windows = Windows()
    windows.put(0, {"id": 1, "v": 1})
    windows.put(1, {"id": 1, "v": 2})
    windows.channel.advance(SECOND)
    windows.channel.flush(0, SECOND)
    ((line,),) = pulled(windows.session)
    assert line["bm"] == "1"


def test_a_newcomer_is_sent_what_changed_since_its_snapshot_and_no_more():
    windows, late = Windows(), session("late")
    windows.put(0, {"id": 1, "v": 1}, {"id": 2, "v": 1})
    windows.channel.join_at(late, windows.seq)
    windows.put(SECOND // 2, {"id": 1, "v": 2}, {"id": 3, "v": 1})
    assert len([*windows.said(2 * SECOND), *windows.said(2 * SECOND)]) == 3
    assert said(late) == [("p", {"id": 1, "v": 2}), ("p", {"id": 3, "v": 1})]
    windows.put(3 * SECOND, {"id": 2, "v": 5})
    windows.said(4 * SECOND)
    assert said(late) == [("p", {"id": 2, "v": 5})]


def test_a_newcomer_is_sent_deltas_as_deltas_but_for_what_is_new_in_the_window():
    windows, late = Windows(delta=True), session("late")
    windows.put(0, {"id": 1, "v": 1, "w": 1})
    windows.said(SECOND)
    windows.put(SECOND, {"id": 1, "v": 2, "w": 1}, {"id": 2, "v": 1, "w": 1})
    windows.channel.join_at(late, windows.seq)
    windows.put(SECOND, {"id": 1, "v": 3, "w": 1}, {"id": 2, "v": 2, "w": 1})
    windows.said(2 * SECOND)
    assert said(late) == [("p", {"id": 1, "v": 3}), ("p", {"id": 2, "v": 2, "w": 1})]


def test_what_waits_for_a_member_is_what_it_will_be_sent():
    windows, late = Windows(), session("late")
    windows.put(0, {"id": 1, "v": 1})
    windows.channel.join_at(late, windows.seq)
    (place,) = windows.channel.conflator.keys()
    assert windows.channel.pending_for(late, place) is None
    windows.put(1, {"id": 1, "v": 2})
    update = windows.channel.pending_for(late, place)
    assert windows.channel.pending_for(windows.session, place).old is None
    assert (update.known, update.old, update.new) == (True, b'{"id":1,"v":1}', b'{"id":1,"v":2}')


def test_places_are_noted_when_something_waits_comes_or_is_released(monkeypatch):
    monkeypatch.setattr(conflated_channel, "RELEASED_AT_ONCE", 1)
    windows, noted = Windows(), {}
    windows.put(0, {"id": 1}, {"id": 2})
    first, second = windows.channel.note(noted)
    assert noted == {}
    assert windows.said(SECOND) == [("p", {"id": 1})]
    assert [*noted] == [first]
    windows.put(SECOND, {"id": 2, "v": 2})
    assert [*noted] == [first, second]
    windows.channel.note_no_more(noted)
    noted.clear()
    windows.put(SECOND, {"id": 3})
    assert noted == {}


def test_what_nobody_hears_any_more_is_forgotten_some_at_a_time(monkeypatch):
    monkeypatch.setattr(conflated_channel, "RELEASED_AT_ONCE", 2)
    windows = Windows()
    windows.put(0, *({"id": at} for at in range(5)))
    assert len([*windows.channel.let_go()]) == 3
    assert windows.channel.conflator.is_idle


def test_at_its_own_pace_a_client_gets_what_waits_as_soon_as_it_has_read():
    channel = ConflatedChannel("sub", LINES, None)
    topic, client = records(), session()
    feed = ConflatedFeed(channel, topic, FeedKey(auto=True), None)
    channel.join_at(client, 0)
    for value in range(3):
        feed.on_batch(put(topic, {"id": 1, "v": value}, seq=value + 1), value)
        if channel.waiting:
            channel.flush(0, value)
    assert not channel.waiting
    assert said(client) == [("p", {"id": 1, "v": 0})]
    assert channel.waiting
    channel.flush(0, 5)
    assert said(client) == [("p", {"id": 1, "v": 2})]


def test_all_can_be_released_before_it_is_due():
    windows = Windows()
    windows.put(0, {"id": 1})
    windows.channel.release_all()
    assert windows.channel.waiting
    assert len(windows.channel.collect()) == 1


@pytest.mark.parametrize("gone_first", [True, False])
def test_a_newcomer_that_leaves_is_forgotten(gone_first):
    windows, late = Windows(), session("late")
    windows.put(0, {"id": 1})
    windows.channel.join_at(late, windows.seq)
    if gone_first:
        windows.channel.leave(late)
    windows.said(SECOND)
    assert said(late) == []
