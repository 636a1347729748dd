"""A conflated topic's focus: what enters, changes and leaves the copy.

The rules are 1 and 2 of docs/semantics.md.
"""

import gc
import json

from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import FocusedConflator, Offered, PerKey, Removal, Tick
from conflated_topics.topic import GOES

INTERVAL = 1_000_000


class Copy:
    """A conflated topic with the copy it keeps."""

    def __init__(self):
        self.records = {}
        self.topic = FocusedConflator(PerKey(INTERVAL), self.records.__contains__)
        self.said = []

    def publish(self, now, key, value, passes=True):
        self.advance(now)
        self.topic.offer([key], [value], now, [passes])

    def remove(self, now, key, value=None, reason="deleted"):
        self.advance(now)
        self.topic.remove([key], [value], reason, now)

    def advance(self, now):
        while (due := self.topic.due_us()) is not None and due <= now:
            updates, removals = self.topic.take(due)
            for key, value in updates:
                self.records[key] = value
                self.said.append((due, "p", key, value))
            for removal in removals:
                del self.records[removal.key]
                self.said.append((due, removal.reason, removal.key))


def test_a_record_enters_at_the_end_of_its_window():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.advance(INTERVAL)
    assert copy.said == [(INTERVAL, "p", "a", 1)]


def test_a_record_that_stops_matching_leaves_at_the_end_of_its_window():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.publish(INTERVAL, "a", 2, passes=False)
    copy.advance(3 * INTERVAL)
    assert copy.said == [(INTERVAL, "p", "a", 1), (2 * INTERVAL, "match", "a")]


def test_a_record_that_came_and_went_within_one_window_is_never_seen():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.remove(10, "a")
    copy.advance(3 * INTERVAL)
    assert copy.said == []


def test_what_takes_back_a_pending_record_counts_beside_one_that_was_never_there():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.topic.offer(["b", "a"], [2, 3], 10, [False, False])
    copy.advance(3 * INTERVAL)
    assert copy.said == []


def test_a_record_that_never_matched_opens_no_window():
    copy = Copy()
    copy.publish(0, "a", 1, passes=False)
    assert copy.topic.due_us() is None


def test_a_record_deleted_and_published_again_within_one_window_is_one_update():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.remove(INTERVAL + 10, "a")
    copy.publish(INTERVAL + 20, "a", 2)
    copy.advance(3 * INTERVAL)
    assert copy.said[1:] == [(copy.said[1][0], "p", "a", 2)]


def test_a_delete_is_said_with_its_reason():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.remove(INTERVAL, "a", reason="expired")
    copy.advance(2 * INTERVAL)
    assert copy.said[-1] == (2 * INTERVAL, "expired", "a")


def test_the_ratio_is_updates_in_for_each_one_out():
    copy = Copy()
    for value in range(10):
        copy.publish(value, "a", value)
    copy.advance(INTERVAL)
    assert copy.topic.ratio == 10.0


def test_what_waits_goes_on_waiting_at_another_interval_from_its_change_on():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.topic.reschedule(PerKey(INTERVAL // 4), 100_000)
    copy.advance(INTERVAL)
    ((due, *said),) = copy.said
    assert (due < INTERVAL, said) == (True, ["p", "a", 1])


def test_a_batch_may_hold_a_record_that_enters_and_leaves():
    copy = Copy()
    copy.topic.offer(["a", "b", "a"], [1, 2, 3], 0, [True, True, False])
    copy.advance(INTERVAL)
    assert copy.records == {"b": 2}


events = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=600_000),
        st.sampled_from("abc"),
        st.sampled_from(["in", "out", "delete"]),
    ),
    max_size=50,
)


@given(events)
def test_exact_focus_the_copy_ends_as_the_filtered_original(log):
    copy, original, now = Copy(), {}, 0
    for value, (gap, key, kind) in enumerate(log):
        now += gap
        if kind == "delete":
            if key in original:
                copy.remove(now, key)
            original.pop(key, None)
        else:
            original[key] = (value, kind)
            copy.publish(now, key, (value, kind), passes=kind == "in")
    copy.advance(now + 2 * INTERVAL)
    assert copy.records == {k: v for k, v in original.items() if v[1] == "in"}


@given(events)
def test_exact_focus_leaving_is_said_only_of_what_was_sent(log):
    copy, now = Copy(), 0
    for value, (gap, key, kind) in enumerate(log):
        now += gap
        if kind == "delete":
            copy.remove(now, key)
        else:
            copy.publish(now, key, value, passes=kind == "in")
    copy.advance(now + 2 * INTERVAL)
    seen = set()
    for _, what, key, *_ in copy.said:
        assert what == "p" or key in seen
        seen = seen | {key} if what == "p" else seen - {key}


def test_what_a_filter_says_is_worked_out_once():
    offered = Offered(["a", "b"], [1, 2], [True, False])
    assert offered.entries == [1, (GOES, 2, "match")]
    assert offered.entries is offered.entries
    assert offered.counts == [True, False]
    everything = Offered(["a", "a"], [1, 2], [True, True])
    assert (everything.entries, everything.passes) == ([1, 2], None)


def test_what_comes_after_an_update_that_passes_counts_too():
    offered = Offered("abaab", range(5), [False, False, True, False, False])
    assert offered.counts == [False, False, True, True, False]
    copy = Copy()
    copy.topic.take_in(offered, 0)
    copy.advance(INTERVAL)
    assert (copy.said, copy.topic.updates_in) == ([], 2)


def test_one_batch_may_be_taken_in_by_many():
    fast, slow = Copy(), FocusedConflator(PerKey(2 * INTERVAL), set().__contains__)
    offered = Offered(["a", "b"], [1, 2], [True, False])
    fast.topic.take_in(offered, 0)
    slow.take_in(offered, 0)
    assert slow.take(2 * INTERVAL) == ([("a", 1)], [])
    fast.advance(INTERVAL)
    assert fast.said == [(INTERVAL, "p", "a", 1)]


def test_which_keys_wait_is_known_in_whatever_window():
    copy = Copy()
    copy.publish(0, "a", 1)
    copy.topic.offer(["b"], [2], INTERVAL + 1, None)
    assert copy.topic.waiting_among({"a", "b", "c"}) == {"a", "b"}
    assert not copy.topic.is_idle
    copy.advance(3 * INTERVAL)
    assert copy.topic.waiting_among({"a", "b", "c"}) == set()
    assert copy.topic.is_idle


def test_another_one_goes_on_with_the_same_windows_and_its_own_copy():
    copy, records = Copy(), {"gone": 0}
    copy.records["gone"] = 0
    copy.publish(0, "a", 1)
    copy.topic.remove(["gone"], [5], "deleted", 1)
    copy.topic.offer(["b"], [2], INTERVAL + 1, None)
    other = copy.topic.copied(records.__contains__, None)
    other.check()
    copy.topic.offer(["a"], [3], INTERVAL + 2, None)
    updates, removals = other.take(3 * INTERVAL)
    assert (updates, removals) == ([("a", 1), ("b", 2)], [Removal("gone", 5, "deleted")])
    assert (other.updates_in, other.updates_out) == (3, 3)
    assert copy.topic.pending == 4


def test_the_collector_finds_out_that_what_leaves_is_in_no_circle():
    conflator = FocusedConflator(PerKey(INTERVAL), lambda _key: True)
    keys = [str(at) for at in range(100)]
    offered = Offered(keys, [(b"body", at, at) for at in range(100)], [False] * 100, "deleted")
    conflator.take_in(offered, 0)
    waiting = offered.entries
    for _ in range(2):  # the values first, and then what they are in
        gc.collect()
    assert not any(map(gc.is_tracked, waiting))
    assert conflator.take(INTERVAL)[1] == [
        Removal(key, (b"body", at, at), "deleted") for at, key in enumerate(keys)
    ]


def test_a_value_that_looks_like_it_is_no_removal():
    conflator = FocusedConflator(PerKey(INTERVAL), lambda _key: True)
    values = [(object(), 1, "deleted"), (), ("leaves", 2, "match")]
    conflator.offer(["a", "b", "c"], values, 0, None)
    assert conflator.take(INTERVAL) == (list(zip("abc", values, strict=True)), [])


def test_one_goes_on_from_the_state_of_another_under_every_schedule():
    for schedule in (PerKey, Tick):
        one, held = FocusedConflator(schedule(10), {"b": 1}.__contains__), {"b": 1}
        one.offer(["a", "b"], [(b"1", 1), (b"2", 2)], 3, [True, False])
        one.offer(["c"], [(b"3", 3)], 14, [True])
        state = json.loads(json.dumps(one.state(), default=bytes.decode))
        other = FocusedConflator(schedule(10), held.__contains__)
        for _ in other.go_on_from(state):
            pass
        other.check()
        assert other.due_us() == one.due_us()
        for now_us in (14, 30):
            updates, removals = one.take(now_us)
            texts = [(key, (body.decode(), at)) for key, (body, at) in updates]
            gone = [(key, (body.decode(), at), why) for key, (body, at), why in removals]
            assert other.take(now_us) == (texts, gone)
