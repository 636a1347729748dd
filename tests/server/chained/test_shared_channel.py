"""What follows a snapshot of a shared subscription."""

from sow.server.chained.shared_channel import Joining, Passed
from sow.topic.batch import Update


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
