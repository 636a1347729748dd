"""What waits becomes less: updates of one record become one, and none overtakes another."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Merge
from sow.protocol.encodings import LINES
from sow.streaming.outbox.conflate import MESSAGE_BYTES, Folding, folded_alone
from sow.streaming.outbox.entries import ChannelEntries, QueuedDelivery
from sow.streaming.outbox.queue import Queue
from sow.streaming.update_encoder import Delivery
from sow.topic.queue_policy import queue_policy
from sow.topic.updates import Update
from tests.streaming.making import wording
from tests.topic.making import ORDERS, body


class Waiting:
    """A queue with its folding; what is said of a record is the number of its update."""

    def __init__(self, definition=ORDERS, released=0):
        self.lines = wording(definition)
        self.queue = Queue()
        self.released = released
        self.folding = Folding(self.queue, lambda: self.released)
        self.membership = ChannelEntries("sub")
        self.seq = 0

    def update(self, identity, known=False, gone=False):
        self.seq += 1
        new = None if gone else body(id=identity, v=self.seq)
        reason = "deleted" if gone else None
        return Update(
            identity, known, new, self.seq, 0, self.seq, 0, reason, old=b"{}" if known else None
        )

    def delivery(self, *updates):
        rendered = [self.lines.shortest_line(update) for update in updates]
        return Delivery("sub", LINES, rendered, [(self.lines, update) for update in updates])

    def spread(self, *identities, group=0, **how):
        for identity in identities:
            delivery = self.delivery(self.update(identity, **how))
            self.folding.spread(self.membership, delivery, group, 0)
            self.queue.check()

    def wait(self, *identities):
        """Queue frames as they are."""
        for identity in identities:
            delivery = self.delivery(self.update(identity))
            entry = QueuedDelivery(self.membership, delivery, 0, 0)
            self.membership.add(delivery)
            self.queue.append(entry)

    def fold(self, passage=1, at_once=1_000_000, policies=("conflate",)):
        """Go through the whole queue, `at_once` messages in a step."""
        self.queue.begin_again()
        while self.folding.go_on(passage, policies, at_once):
            self.queue.check()
        self.queue.compact(always=True)
        self.queue.check()

    def leave(self):
        """Everything is durable, and leaves: (record, newest value, bookmark), in order."""
        self.released, left = float("inf"), []
        for entry in self.queue:
            if entry.lives:
                self.folding.complete(entry, self.released)
            if entry.lives:
                self.queue.part(entry)
                self.membership.forget(entry)
                said = entry.update
                left.append((said.identity, json.loads(said.new)["v"], said.first_seq))
        return left

    def says(self):
        """What waits: (record, newest value), in order."""
        return [
            (entry.update.identity, json.loads(entry.update.new)["v"])
            for entry in self.queue
            if entry.lives
        ]


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_one_update_of_each_record_waits_where_the_first_one_stood(log):
    waiting = Waiting()
    waiting.spread(*log)
    newest = {identity: seq for seq, identity in enumerate(log, 1)}
    assert waiting.says() == [(identity, newest[identity]) for identity in dict.fromkeys(log)]


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_placed_at_the_end_the_last_comes_last(log):
    waiting = Waiting(replace(ORDERS, placement="append"))
    waiting.spread(*log[:8])  # fewer than may be moved before they keep their place
    newest = {identity: seq for seq, identity in enumerate(log[:8], 1)}
    assert waiting.says() == sorted(newest.items(), key=lambda one: one[1])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_frames_that_are_taken_apart_fold_as_if_they_had_come_so(log):
    waiting, at_once = Waiting(), Waiting()
    waiting.wait(*log)
    waiting.fold()
    at_once.spread(*log)
    assert waiting.says() == at_once.says()
    assert waiting.membership.eager == 0


CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.booleans(), st.integers(0, 20)),
    max_size=30,
)
"""Changes: the record, the value that Match reads, whether it is in another commit group than the
one before, and how many groups are durable when it comes."""


def folded_with(definition, changes, durable_at_once):
    """What leaves of changes in the end, which waited all the time."""
    waiting, group = Waiting(definition), 1
    for identity, sym, apart, durable in changes:
        group += apart
        waiting.released = max(waiting.released, min(durable, group - 1))
        if durable_at_once:
            waiting.released = group
        update = waiting.update(identity)
        update = update._replace(new=body(id=identity, sym=sym, v=update.seq))
        waiting.folding.spread(waiting.membership, waiting.delivery(update), group, 0)
        waiting.queue.check()
        waiting.membership.check([entry for entry in waiting.queue if entry.lives])
    return waiting.leave()


@given(
    st.sampled_from(["replace", "append"]),
    st.sampled_from([(), (Merge("/v", "sum"),), (Merge("/v", "first"),)]),
    CHANGES,
)
def test_what_leaves_and_in_which_order_does_not_depend_on_the_disk(placement, merges, changes):
    definition = replace(ORDERS, placement=placement, merges=merges)
    at_once, later = (folded_with(definition, changes, prompt) for prompt in (True, False))
    assert later == at_once


@pytest.mark.parametrize("placement", ["replace", "append"])
@pytest.mark.parametrize("gone_through", [1, 2, 3])
def test_a_pair_of_which_a_passage_has_met_the_older_one_alone_becomes_one(placement, gone_through):
    waiting = Waiting(replace(ORDERS, placement=placement), released=0)
    for group, identity in enumerate("abac", 1):
        waiting.spread(identity, group=group)
    waiting.queue.begin_again()
    for _ in range(gone_through):
        waiting.folding.go_on(1, ("conflate",), 1)
    waiting.released = 4
    waiting.folding.complete(next(iter(waiting.queue)), released=4)
    parts = waiting.queue.entries, waiting.queue.unfolded
    living, unfolded = ([entry for entry in part if entry.lives] for part in parts)
    waiting.membership.check(living, unfolded, passage=1)
    while waiting.folding.go_on(1, ("conflate",), 1):
        waiting.queue.check()
    waiting.spread("a", group=5)
    waiting.membership.check([entry for entry in waiting.queue if entry.lives])
    expected = {"replace": [("a", 5), ("b", 2), ("c", 4)], "append": [("b", 2), ("c", 4), ("a", 5)]}
    assert waiting.says() == expected[placement]


SAID = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), max_size=8)


def long_queue(placement, first, second):
    """Frames that were folded, and frames behind them that were not; some is on its way."""
    waiting = Waiting(replace(ORDERS, placement=placement), released=1)
    for group, frames in enumerate((first, second)):
        for identities in frames:
            updates = [waiting.update(one, gone=one == "d") for one in identities]
            delivery = waiting.delivery(*updates)
            waiting.membership.add(delivery)
            waiting.queue.append(QueuedDelivery(waiting.membership, delivery, 2 * group, 0))
        if not group:
            waiting.fold(passage=1)
    return waiting


def state(waiting):
    """Everything that waits, and by what it would be found."""
    newest = {place[2]: entry.number for place, entry in waiting.membership.newest.items()}
    entries = [
        (one.frame, one.group, one.number, one.moved, one.apart, one.older and one.older.number)
        for one in waiting.queue
    ]
    reached = {identity: at for (_, identity), at in waiting.membership.reached.items()}
    return entries, newest, reached, waiting.queue.message_count, waiting.queue.bytes


@given(st.sampled_from(["replace", "append"]), SAID, SAID, st.integers(1, 6))
def test_a_queue_that_is_folded_in_slices_is_what_it_would_be_at_once(
    placement, first, second, at_once
):
    sliced, whole = (long_queue(placement, first, second) for _ in range(2))
    sliced.fold(passage=2, at_once=at_once)
    whole.fold(passage=2)
    assert state(sliced) == state(whole)


@given(SAID, st.integers(1, 4), st.integers(0, 6))
def test_what_comes_while_a_queue_is_folded_stands_behind_all_of_it(frames, at_once, after):
    waiting, whole = Waiting(), Waiting()
    for one in (waiting, whole):
        for identities in frames:
            one.wait(*identities)
    waiting.queue.begin_again()
    for _ in range(after):
        waiting.folding.go_on(1, ("conflate",), at_once)
    for one in (waiting, whole):
        one.wait("a", "b")
    while waiting.folding.go_on(1, ("conflate",), at_once):
        waiting.queue.check()
    waiting.fold(passage=2, at_once=at_once)
    whole.fold()
    assert waiting.says() == whole.says()


def test_a_step_goes_through_so_many_messages_and_no_more():
    waiting = Waiting()
    waiting.wait(*"abcdef")
    waiting.queue.begin_again()
    assert waiting.folding.go_on(1, ("conflate",), 4)
    assert (len(waiting.queue.entries), len(waiting.queue.unfolded)) == (2, 4)
    waiting.queue.check()


def test_what_came_and_went_unseen_is_gone():
    waiting = Waiting()
    waiting.spread("a", "b")
    waiting.spread("a", gone=True)
    assert waiting.says() == [("b", 2)]


def test_what_is_on_its_way_to_the_disk_is_not_held_up():
    waiting = Waiting(released=0)
    waiting.spread("a", group=1)
    waiting.spread("a", group=2)
    waiting.spread("a", group=3)
    assert waiting.says() == [("a", 1), ("a", 3)]
    assert waiting.queue.message_count == 1
    waiting.released = 3
    (older, _) = waiting.queue
    waiting.folding.complete(older, released=3)
    assert waiting.says() == [("a", 3)]
    waiting.queue.check()


def test_a_pair_waits_on_while_its_newer_one_is_not_durable():
    waiting = Waiting(released=0)
    waiting.spread("a", group=1)
    waiting.spread("a", group=2)
    waiting.released = 1
    (older, _) = waiting.queue
    waiting.folding.complete(older, released=1)
    assert waiting.says() == [("a", 1), ("a", 2)]


def test_who_comes_back_begins_another_membership():
    waiting = Waiting()
    waiting.spread("a")
    waiting.membership = ChannelEntries("sub")
    waiting.spread("a")
    assert waiting.says() == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(("identities", "left"), [("aab", [("a", 2), ("b", 3)]), ("ab", None)])
def test_a_delivery_folds_by_itself_as_in_an_empty_queue(identities, left):
    waiting = Waiting()
    delivery = waiting.delivery(*(waiting.update(identity) for identity in identities))
    found = [(one.identity, json.loads(one.new)["v"]) for _, one in folded_alone(delivery)]
    assert found == (left or [("a", 1), ("b", 2)])


def test_a_large_message_counts_as_several():
    """To say it as a delta it is read, in the same step."""
    waiting = Waiting()
    for number in range(6):
        new = body(id="A", v=number, text="x" * 10 * MESSAGE_BYTES)
        update = waiting.update("A")._replace(new=new)
        delivery = waiting.delivery(update)
        waiting.membership.add(delivery)
        waiting.queue.append(QueuedDelivery(waiting.membership, delivery, 0, 0))
    waiting.queue.begin_again()
    left = []
    while waiting.folding.go_on(1, ("conflate",), 20):
        left.append(len(waiting.queue.unfolded))
        waiting.queue.check()
    assert left == [4, 2], "two in a step of twenty"
    assert waiting.queue.message_count == 1


def test_an_update_is_not_taken_behind_one_of_its_record_that_waits_under_another_policy():
    """While a queue is gone through its topic's policy may change to another one and back."""
    waiting = Waiting()
    topic, usual = waiting.lines.topic, waiting.lines.topic.folding
    waiting.spread("a")
    changed = replace(ORDERS, conflation_policy="always", placement="append")
    topic.folding = queue_policy(changed, topic.message_type)
    waiting.spread("a", known=True, gone=True)
    topic.folding = usual
    waiting.spread("a")
    said = [entry.update for entry in waiting.queue if entry.lives]
    assert [(one.known, one.new is not None) for one in said] == [
        (False, True), (True, False), (False, True),
    ]  # fmt: skip
