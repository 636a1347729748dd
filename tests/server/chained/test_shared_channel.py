"""What follows a snapshot of a shared subscription."""

import pytest

from sow.protocol.replies import LINES
from sow.server.chained.shared_channel import ChannelCalls, Joining, Passed, channel_for
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from sow.topic.batch import Update
from tests.streaming.making import said, session
from tests.topic.making import records


def change(key, seq):
    return Passed(Update(key, True, b"{}", seq, 0, seq, 0), b"p %d" % seq)


def departure(key, seq):
    update = Update(key, True, None, seq, 0, seq, 0, "match", old=b"{}")
    return Passed(update, b"oof %d" % seq, marked=False)


def test_what_follows_a_snapshot_is_neither_in_it_nor_missing():
    plain = Joining([change("a", 3), change("b", 4), change("a", 5)], place=4)
    assert [one.line for one in plain.behind()] == [b"p 5"]
    # Departures have no bookmark of their own, but that of the line before.
    held = [
        departure("a", 3),  # it is back in the snapshot
        change("a", 4),
        departure("b", 4),  # before the snapshot, where it is not
        departure("c", 4),  # behind the snapshot, where it is
        change("d", 6),
        departure("d", 6),
    ]
    joining = Joining(held, keys={"a", "c"}, place=5)
    assert [one.line for one in joining.behind()] == [b"oof 4", b"p 6", b"oof 6"]
    assert joining.keys == {"a"}


def passed(key, group, reason=None):
    """A line of a record in a group, or that it is withdrawn."""
    body = None if reason else b'{"id":%s,"group":"%s"}' % (key, group)
    line = b'{"c":"p","s":"u","k":"%s","d":%s}' % (key, body or b"{}")
    return Passed(Update(key.decode(), True, body, 1, 0, 1, 0, reason), line, b'"s":"u"')


@pytest.mark.parametrize("windows", [{}, {"interval_us": 10, "conflation_key": ("/group",)}])
def test_no_line_of_a_withdrawn_record_that_waits_is_sent(windows):
    calls = ChannelCalls(lambda channel: channel.flush(0, 0), *(3 * [lambda *_: None]))
    channel = channel_for(UpdateEncoder(records(), "f1", LINES, FeedKey(**windows)), calls)
    queued, one = session("queued"), passed(b"1", b"a")
    channel.join(queued)
    channel.put_all([one, passed(b"2", b"b")], 0)
    if not windows:
        calls.flush(channel)  # into the queue of the session
    channel.put_all([passed(b"1", b"c"), passed(b"1", b"", "entitlement"), passed(b"3", b"d")], 0)
    if windows:
        channel.advance(10)
    calls.flush(channel)
    found = said(queued, now_us=20)
    assert [(kind, body["id"]) for kind, body in found] == [("p", 2), ("p", 3)]
