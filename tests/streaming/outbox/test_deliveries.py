"""Deliveries: what a channel sends at one time, made again or folded, and those held back."""

from sow.core.definitions import SessionSettings
from sow.protocol.replies import LINES
from sow.streaming.outbox import Delivery, HeldBack, updates_of
from sow.streaming.outbox.conflate import folded_alone
from sow.streaming.queue_memory import ENTRY_BYTES, QueueMemory
from sow.topic.batch import Update
from tests.streaming.making import unframed, wording
from tests.topic.making import body


def update(identity="1", seq=1):
    return Update(identity, False, body(id=int(identity)), seq, 0, seq, 0)


def delivery(*updates, lines=None):
    lines = lines or wording()
    rendered = [lines.line(one) for one in updates]
    return Delivery("sub", LINES, rendered, [(lines, one) for one in updates])


def test_a_frame_that_was_dropped_is_made_again_as_it_was():
    made = delivery(update("1"), update("2", 2))
    frame = made.frame
    assert made.strip() == made.frame == b""
    assert made.made() == frame
    assert made.size == len(frame)


def test_one_that_several_wait_for_keeps_its_frame():
    made = delivery(update())
    made.share()
    assert made.strip() == made.frame
    assert unframed(made.frame)


def test_lines_without_updates_cannot_be_made_again():
    made = Delivery("sub", LINES, [b"{}"], [])
    assert not made.can_be_made
    assert made.strip()


def test_it_is_folded_once_for_all_and_is_itself_where_no_record_comes_twice():
    single = delivery(update("1"), update("2", 2))
    assert single.folded(folded_alone) is single
    double = delivery(update(), update(seq=2))
    folded = double.folded(folded_alone)
    assert (double.message_count, folded.message_count) == (2, 1)
    assert double.folded(folded_alone) is folded


def test_columns_are_single_updates_of_their_records():
    columns = (["1", "2"], [b"{}", b"[]"], [4, 5], [6, 7])
    assert [(one.identity, one.new, one.seq) for one in updates_of(columns)] == [
        ("1", b"{}", 4), ("2", b"[]", 5)
    ]  # fmt: skip
    assert updates_of(update()) == (update(),)


def test_what_is_held_back_counts_until_it_is_taken_or_forgotten():
    queues, held = QueueMemory(), HeldBack()
    held.count_for(queues.share("one"))
    held.add(delivery(update()), 1)
    other = Delivery("other", LINES, [b"{}"], [])
    held.add(other, 2)
    assert queues.share("one").used > ENTRY_BYTES * 2
    assert held.exceeds(SessionSettings(queue_messages_max=1))
    assert not held.exceeds(SessionSettings(queue_messages_max=2))
    held.forget("sub")
    assert (held.of("sub"), held.of("other")) == ((), [(other, 2)])
    assert held.taken() == [(other, 2)]
    assert queues.used == held.message_count == held.bytes == 0
