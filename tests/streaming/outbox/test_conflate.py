"""What waits becomes less: updates of one record become one, and none overtakes another."""

import gc
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Merge
from sow.protocol.replies import LINES
from sow.streaming.outbox import Delivery, conflate
from sow.streaming.outbox.conflate import MESSAGE_BYTES, Queue, folded_alone
from sow.streaming.outbox.entries import Membership, Queued, QueuedDelivery, QueuedUpdate
from sow.streaming.queue_memory import QueueMemory
from sow.streaming.session_memory import QueueCount
from sow.topic.batch import Update
from sow.topic.queue_policy import queue_policy
from tests.streaming.making import wording
from tests.topic.making import ORDERS, body


class Waiting:
    """A queue that folds; what is said of a record is the number of its update."""

    def __init__(self, definition=ORDERS, released=0):
        self.lines = wording(definition)
        self.released = released
        self.queue = Queue(lambda: self.released)
        self.membership = Membership("sub")
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
            self.queue.spread(self.membership, delivery, group, 0)
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
        while self.queue.go_on(passage, policies, at_once):
            self.queue.check()
        self.queue.remove_dead()
        self.queue.check()

    def leave(self):
        """Everything is durable, and leaves: (record, newest value, bookmark), in order."""
        self.released, left = float("inf"), []
        for entry in self.queue:
            if entry.lives:
                self.queue.complete(entry, self.released)
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
        waiting.queue.spread(waiting.membership, waiting.delivery(update), group, 0)
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
        waiting.queue.go_on(1, ("conflate",), 1)
    waiting.released = 4
    waiting.queue.complete(next(iter(waiting.queue)), released=4)
    parts = waiting.queue.entries, waiting.queue.unfolded
    living, unfolded = ([entry for entry in part if entry.lives] for part in parts)
    waiting.membership.check(living, unfolded, passage=1)
    while waiting.queue.go_on(1, ("conflate",), 1):
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
        waiting.queue.go_on(1, ("conflate",), at_once)
    for one in (waiting, whole):
        one.wait("a", "b")
    while waiting.queue.go_on(1, ("conflate",), at_once):
        waiting.queue.check()
    waiting.fold(passage=2, at_once=at_once)
    whole.fold()
    assert waiting.says() == whole.says()


def test_a_step_goes_through_so_many_messages_and_no_more():
    waiting = Waiting()
    waiting.wait(*"abcdef")
    waiting.queue.begin_again()
    assert waiting.queue.go_on(1, ("conflate",), 4)
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
    waiting.queue.complete(older, released=3)
    assert waiting.says() == [("a", 3)]
    waiting.queue.check()


def test_a_pair_waits_on_while_its_newer_one_is_not_durable():
    waiting = Waiting(released=0)
    waiting.spread("a", group=1)
    waiting.spread("a", group=2)
    waiting.released = 1
    (older, _) = waiting.queue
    waiting.queue.complete(older, released=1)
    assert waiting.says() == [("a", 1), ("a", 2)]


def test_who_comes_back_begins_another_membership():
    waiting = Waiting()
    waiting.spread("a")
    waiting.membership = Membership("sub")
    waiting.spread("a")
    assert waiting.says() == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(("identities", "left"), [("aab", [("a", 2), ("b", 3)]), ("ab", None)])
def test_a_delivery_folds_by_itself_as_in_an_empty_queue(identities, left):
    waiting = Waiting()
    delivery = waiting.delivery(*(waiting.update(identity) for identity in identities))
    found = [(one.identity, json.loads(one.new)["v"]) for _, one in folded_alone(delivery)]
    assert found == (left or [("a", 1), ("b", 2)])


def counted():
    """A queue that counts, and has been folded once."""
    waiting = Waiting()
    waiting.wait("A", "B", "A")
    waiting.queue.count_for(QueueMemory().share("client"))
    waiting.fold()
    waiting.queue.end_passage()
    return waiting


def test_the_next_passage_goes_on_behind_what_was_folded():
    """A client that does not read costs others what is sent to it, not what waits for it."""
    waiting = counted()
    waiting.wait("B", "C")
    before = [entry for entry in waiting.queue if isinstance(entry, QueuedUpdate)]
    assert not waiting.queue.begin_again()
    assert len(waiting.queue.unfolded) == 2
    waiting.fold()
    waiting.queue.end_passage()
    assert [*waiting.queue][:2] == before, "these stand where they stood"
    assert not waiting.queue.begin_again(), "nothing has come"
    assert not waiting.queue.unfolded
    assert waiting.leave() == [("A", 3, 1), ("B", 4, 2), ("C", 5, 5)]


@pytest.mark.parametrize("change", ["left", "spread", "kept whole", "counted anew"])
def test_a_passage_goes_through_all_where_what_stands_there_was_not_folded_in_order(change):
    waiting = counted()
    if change == "left":
        while waiting.queue:
            waiting.queue.pop()
    elif change == "spread":
        waiting.wait("B")
        waiting.spread("C")
    elif change == "kept whole":
        waiting.wait("B")
        waiting.fold(policies=())
        waiting.queue.end_passage()
    else:
        waiting.queue.count_for(QueueMemory().share("another"))
    waiting.wait("B")
    assert waiting.queue.begin_again()
    assert not waiting.queue.entries


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
    while waiting.queue.go_on(1, ("conflate",), 20):
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


WORDING = wording()


def frame(text=b"x", since_us=0, count=1):
    return Queued(0, since_us, text, count)


def single(identity="1", since_us=0, membership=None, **fields):
    lines = WORDING
    membership = membership or Membership("sub")
    update = Update(identity, False, body(id=1, **fields), 1, 0, 1, 0)
    entry = QueuedUpdate(membership, lines, (lines.queue_policy, (identity,)), update, 0, since_us)
    membership.enter(entry)
    return entry


@given(st.lists(st.tuples(st.sampled_from(["append", "prepend", "pop"]), st.integers(0, 9))))
def test_what_goes_in_comes_out_in_order_and_is_counted(steps):
    queue, model = Queue(int), []
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
    queue = Queue(int)
    for first, since_us in entries:
        (queue.prepend if first else queue.append)(frame(since_us=since_us))
    waits = [entry.since_us for entry in queue]
    assert waits == sorted(waits)
    assert queue.oldest_us() == (waits[0] if waits else None)


def test_what_was_folded_away_says_nothing_and_leaves_when_it_is_at_the_head():
    queue, entry, other = Queue(int), single("1"), single("2", since_us=7)
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
    monkeypatch.setattr(conflate, "DEAD_MIN", 2)
    queue, entries = Queue(int), [single(str(at)) for at in range(5)]
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
    queue, membership = Queue(int), Membership("sub")
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
    queue, entry = Queue(int), single()
    queue.append(entry)
    queue.append(frame(b"four"))
    queue.rewrite(entry, entry.update._replace(new=body(id=1, text="longer")), group=3)
    queue.reframe(queue.entries[-1], b"sixteen")
    queue.check()
    queue.rewrite(entry, entry.update, group=2)
    assert entry.group == 3
    assert entry.frame == b"", "it is made when it leaves"
    assert b"longer" in entry.line


def test_what_is_to_be_gone_through_stands_behind_what_was():
    queue = Queue(int)
    for text in (b"1", b"22", b"333"):
        queue.append(frame(text))
    queue.begin_again()
    assert (len(queue.unfolded), bool(queue), queue.bytes) == (3, True, 6)
    taken = queue.pop(unfolded=True)
    assert queue.bytes == 5
    queue.append(taken, folded=True)
    queue.append(frame(b"4444"))
    queue.begin_again()
    queue.check()
    assert [len(part) for part in (queue.entries, queue.unfolded)] == [1, 3]
    assert [one.frame for one in queue] == [b"1", b"22", b"333", b"4444"]
    queue.clear()
    assert (bool(queue), queue.message_count, queue.bytes) == (False, 0, 0)


def test_only_what_is_wanted_is_kept_wherever_it_stands():
    queue, gone = Queue(int), single("1")
    for entry in (gone, frame(b"a"), frame(b"b"), frame(b"c")):
        queue.append(entry)
    queue.kill(gone)
    queue.begin_again()
    queue.pop(unfolded=True)  # which says nothing any more
    for _ in range(2):
        queue.append(queue.pop(unfolded=True), folded=True)
    queue.filter(lambda entry: entry.frame in b"bc", lambda entry: entry.frame == b"c")
    assert [len(part) for part in (queue.entries, queue.unfolded)] == [1, 1]
    assert [one.frame for one in queue] == [b"a", b"c"]
    queue.check()


def test_what_a_filter_does_not_concern_is_not_counted_anew(monkeypatch):
    queue, counted = Queue(int), []
    for text in (b"a", b"b", b"c"):
        queue.append(frame(text))
    queue.count_for(QueueMemory().share("client"))
    for name in ("add", "remove"):
        count = getattr(QueueCount, name)
        monkeypatch.setattr(
            QueueCount, name, lambda *one, f=count: counted.append(one[1].frame) or f(*one)
        )
    queue.filter(lambda entry: entry.frame == b"b", lambda _entry: True)
    assert counted == [b"b", b"b"]
    assert [one.frame for one in queue] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_dropped_is_freed_at_once_and_waits_for_no_collector(begun):
    queue, membership = Queue(int), Membership("sub")
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


def test_what_a_long_queue_took_is_freed_in_steps(monkeypatch):
    monkeypatch.setattr(conflate, "FREED_AT_ONCE", 2)
    told = []
    memory = QueueMemory(on_over=lambda: told.append(1))
    queue, membership = Queue(int), Membership("sub")
    for identity in "12345":
        queue.append(single(identity, membership=membership))
    queue.pair(queue.entries[0], queue.entries[1])
    queue.count_for(memory.share("client"))
    all_of_it = memory.used
    queue.clear()
    assert not queue
    queue.check()
    assert (told, memory.settle()) == ([1], True)
    left = [memory.used, *(memory.used for _ in memory.stepping())]
    assert all_of_it > left[0] > left[1] > 0
    assert len(left) == 2
    assert memory.used == 0
    assert not memory.settle()
    queue.append(single("6"))
    queue.count_for(memory.share("client"))
    queue.clear()
    assert (told, memory.used) == ([1], 0)


def test_a_check_finds_a_wrong_count():
    queue = Queue(int)
    queue.append(frame())
    queue.bytes += 1
    with pytest.raises(AssertionError):
        queue.check()
