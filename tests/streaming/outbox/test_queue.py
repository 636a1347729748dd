"""The queue of an outbox: order, exact counts, and entries that are folded away in their places."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.streaming.outbox import queue as module
from sow.streaming.outbox.entries import ChannelEntries, Queued, QueuedUpdate
from sow.streaming.outbox.queue import Queue
from sow.topic.updates import Update
from tests.streaming.making import wording
from tests.topic.making import body

WORDING = wording()


def frame(text=b"x", since_us=0, count=1):
    return Queued(0, since_us, text, count)


def single(identity="1", since_us=0, membership=None, **fields):
    lines = WORDING
    membership = membership or ChannelEntries("sub")
    update = Update(identity, False, body(id=1, **fields), 1, 0, 1, 0)
    entry = QueuedUpdate(membership, lines, (lines.queue_policy, (identity,)), update, 0, since_us)
    membership.enter(entry)
    return entry


@given(st.lists(st.tuples(st.sampled_from(["append", "prepend", "pop"]), st.integers(0, 9))))
def test_what_goes_in_comes_out_in_order_and_is_counted(steps):
    queue, model = Queue(), []
    for step, size in steps:
        if step == "pop":
            if model:
                assert queue.entries[0].frame == model.pop(0)
                queue.pop()
        else:
            entry = frame(b"x" * size)
            getattr(queue, step)(entry)
            model.insert(0 if step == "prepend" else len(model), entry.frame)
        queue.check()
        assert [one.frame for one in queue] == model
        assert (queue.message_count, queue.bytes) == (len(model), sum(map(len, model)))
        assert bool(queue) == bool(model)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_who_stands_nearer_to_the_head_has_waited_longer_whatever_clocks_say(entries):
    queue = Queue()
    for first, since_us in entries:
        (queue.prepend if first else queue.append)(frame(since_us=since_us))
    waits = [entry.since_us for entry in queue]
    assert waits == sorted(waits)
    assert queue.oldest_us() == (waits[0] if waits else None)


def test_what_was_folded_away_says_nothing_and_leaves_when_it_is_at_the_head():
    queue, entry, other = Queue(), single("1"), single("2", since_us=7)
    queue.append(entry)
    queue.append(other)
    queue.kill(entry)
    assert (queue.message_count, queue.oldest_us()) == (1, 7)
    queue.check()
    queue.pop()
    assert list(queue) == [other]
    queue.kill(other)
    assert not queue
    queue.check()


def test_the_dead_are_taken_out_once_they_are_most_of_it(monkeypatch):
    monkeypatch.setattr(module, "DEAD_MIN", 2)
    queue, entries = Queue(), [single(str(at)) for at in range(5)]
    for entry in entries:
        queue.append(entry)
    for entry in entries[:2]:
        queue.kill(entry)
    queue.compact()
    assert len(queue.entries) == 5
    queue.kill(entries[2])
    queue.compact()
    assert list(queue) == entries[3:]
    queue.check()


def test_a_pair_is_one_message_until_it_is_parted():
    queue, membership = Queue(), ChannelEntries("sub")
    older, newer = single(membership=membership), single(membership=membership, v=1)
    queue.append(older)
    queue.append(newer)
    queue.pair(older, newer)
    assert (queue.line_count, queue.message_count) == (2, 1)
    queue.check()
    queue.part(older)
    queue.part(older)
    assert queue.message_count == 2
    queue.pair(older, newer)
    queue.kill(newer)
    assert queue.message_count == 1
    queue.check()


def test_bytes_are_counted_anew_when_an_entry_says_something_else():
    queue, entry = Queue(), single()
    queue.append(entry)
    queue.append(frame(b"four"))
    queue.rewrite(entry, entry.update._replace(new=body(id=1, text="longer")), group=3)
    queue.reframe(queue.entries[-1], b"sixteen")
    queue.check()
    assert entry.group == 3
    assert b"longer" in entry.frame


def test_what_is_to_be_gone_through_stands_behind_what_was():
    queue = Queue()
    for text in (b"1", b"22", b"333"):
        queue.append(frame(text))
    queue.begin_again()
    assert (len(queue.unfolded), bool(queue), queue.bytes) == (3, True, 6)
    taken = queue.take_unfolded()
    assert queue.bytes == 5
    queue.append_folded(taken)
    queue.append(frame(b"4444"))
    queue.begin_again()
    queue.check()
    assert [len(part) for part in (queue.entries, queue.unfolded)] == [1, 3]
    assert [one.frame for one in queue] == [b"1", b"22", b"333", b"4444"]
    queue.clear()
    assert (bool(queue), queue.message_count, queue.bytes) == (False, 0, 0)


def test_only_what_is_wanted_is_kept_wherever_it_stands():
    queue, gone = Queue(), single("1")
    for entry in (gone, frame(b"a"), frame(b"b"), frame(b"c")):
        queue.append(entry)
    queue.kill(gone)
    queue.begin_again()
    queue.take_unfolded()  # which says nothing any more
    for _ in range(2):
        queue.append_folded(queue.take_unfolded())
    queue.filter(lambda entry: entry.frame != b"b")
    assert [len(part) for part in (queue.entries, queue.unfolded)] == [1, 1]
    assert [one.frame for one in queue] == [b"a", b"c"]
    queue.check()


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_dropped_is_freed_at_once_and_waits_for_no_collector(begun):
    queue, membership = Queue(), ChannelEntries("sub")
    for entry in (single("dropped", membership=membership) for _ in range(3)):
        queue.append(entry)
    queue.pair(queue.entries[0], queue.entries[1])
    del entry
    if begun:
        queue.begin_again()
    gc.collect()
    queue.clear()
    queue.check()
    left = [one for one in gc.get_objects() if isinstance(one, QueuedUpdate)]
    assert [one for one in left if one.update.identity == "dropped"] == []


def test_a_check_finds_a_wrong_count():
    queue = Queue()
    queue.append(frame())
    queue.bytes += 1
    with pytest.raises(AssertionError):
        queue.check()
