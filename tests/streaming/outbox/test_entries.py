"""Entries of a queue, and the membership within which updates are folded."""

import pytest

from sow.protocol.replies import LINES
from sow.streaming.outbox import Delivery
from sow.streaming.outbox.entries import (
    Membership,
    Queued,
    QueuedDelivery,
    QueuedFrames,
    QueuedUpdate,
)
from sow.topic.batch import Update
from tests.streaming.making import unframed, wording
from tests.topic.making import allow, body


def entered(membership, identity="1", place=None, seq=1, lines=None, **fields):
    """A single update at the end of a membership."""
    lines = lines or wording()
    update = Update(identity, False, body(id=1, **fields), seq, 0, seq, 0)
    place = place or (lines.queue_policy, (identity,))
    entry = QueuedUpdate(membership, lines, place, update, 0, 0)
    membership.enter(entry)
    return entry


def test_a_frame_and_frames_to_be_made_are_not_to_be_touched():
    assert Queued(0, 0, b"x", 1).policy == "off"
    frames = QueuedFrames(0, 0, iter([]))
    assert (frames.policy, frames.message_count, frames.frame) == ("off", 0, b"")


def test_a_delivery_says_what_its_topics_allowed_when_it_was_said():
    lines = wording()
    update = Update("1", False, body(id=1), 1, 0, 1, 0)
    delivery = Delivery("sub", LINES, [lines.line(update)], [(lines, update)])
    entry = QueuedDelivery(Membership("sub"), delivery, 3, 4)
    allow(lines.topic, "off")
    assert (entry.policy, entry.group, entry.since_us) == ("conflate", 3, 4)
    assert (entry.message_count, entry.frame) == (1, delivery.frame)


def test_an_update_says_what_its_topic_allows_now():
    entry = entered(Membership("sub"))
    allow(entry.encoder.topic, "off")
    assert entry.policy == "off"


def test_a_membership_knows_the_newest_of_each_place_and_record():
    membership, lines = Membership("sub"), wording()
    first, second = entered(membership, "1", lines=lines), entered(membership, "2", lines=lines)
    assert membership.newest[first.place] is first
    assert membership.last(lines, first.update) == first.number < second.number
    assert membership.last(lines, first.update._replace(identity="3")) == 0
    membership.forget(first)
    assert first.place not in membership.newest
    assert membership.last(lines, first.update) == 0
    assert membership.last(lines, second.update) == second.number
    membership.check([second])


def test_when_the_newer_one_is_given_up_the_older_one_is_the_newest_again():
    membership, lines = Membership("sub"), wording()
    older = entered(membership, lines=lines)
    newer = entered(membership, lines=lines, seq=2)
    newer.older, older.newer = older, newer
    membership.give_up(newer)
    assert membership.newest[older.place] is older
    membership.give_up(older)
    assert membership.newest == {}


def test_nothing_is_folded_into_what_stands_behind_a_closed_place():
    membership = Membership("sub")
    entry = entered(membership)
    membership.newest.clear()
    assert membership.newest == {}
    membership.restart()
    assert entered(membership).number == entry.number


def test_frames_that_are_always_conflated_are_counted():
    lines, membership = wording(), Membership("sub")
    allow(lines.topic, "always")
    update = Update("1", False, body(id=1), 1, 0, 1, 0)
    delivery = Delivery("sub", LINES, [lines.line(update)], [(lines, update)])
    membership.add(delivery)
    assert membership.eager == 1
    membership.check([QueuedDelivery(membership, delivery, 0, 0)])
    membership.remove(delivery)
    assert membership.eager == 0
    assert unframed(delivery.frame)


def test_a_check_finds_a_record_that_goes_backwards():
    membership, lines = Membership("sub"), wording()
    policy = lines.queue_policy
    entries = [
        entered(membership, place=(policy, (at,)), seq=seq, lines=lines)
        for at, seq in enumerate((5, 4))
    ]
    with pytest.raises(AssertionError, match="goes backwards"):
        membership.check(entries)
