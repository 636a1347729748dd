"""The laws of conflation, on random logs under a clock that is moved by hand."""

from collections import defaultdict
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import Conflator, OnDemand, PerKey, Tick
from conflated_topics import conflator as conflators

INTERVAL = 1_000_000
GATHER = 20_000

keys = st.sampled_from("abcde")
steps = st.integers(min_value=0, max_value=700_000)
logs = st.lists(st.tuples(steps, keys), max_size=60)


def timed(log):
    """A log of (gap, key) as (time, key, value) with values that tell updates apart."""
    now, out = 0, []
    for value, (gap, key) in enumerate(log):
        now += gap
        out.append((now, key, value))
    return out


def run(log, take_at=()):
    """Offer a timed log, taking whenever due and at `take_at` besides; (time, key, value)."""
    conflator = Conflator(PerKey(INTERVAL))
    taken = []

    def take(now):
        taken.extend((now, key, value) for key, value in conflator.take(now).items())

    moments = sorted([(at, 0, None, None) for at in take_at] + [(t, 1, k, v) for t, k, v in log])
    for now, _, key, value in moments:
        while (due := conflator.due_us()) is not None and due <= now:
            take(due)
        if key is None:
            take(now)
        else:
            conflator.offer([key], [value], now)
    while (due := conflator.due_us()) is not None:
        take(due)
    assert len(conflator) == 0
    return taken


def test_the_first_update_waits_a_whole_interval():
    assert run([(0, "a", 1)]) == [(INTERVAL, "a", 1)]


def test_only_the_last_update_of_a_window_is_released():
    assert run([(0, "a", 1), (500_000, "a", 2), (999_999, "a", 3)]) == [(INTERVAL, "a", 3)]


def test_later_updates_do_not_reset_the_window():
    log = [(t, "a", t) for t in range(0, 3 * INTERVAL, 300_000)]
    assert [t for t, _, _ in run(log)] == [INTERVAL, 2 * INTERVAL + 200_000, 3 * INTERVAL + 400_000]


def test_an_update_at_exactly_the_deadline_opens_the_next_window():
    assert run([(0, "a", 1), (INTERVAL, "a", 2)]) == [(INTERVAL, "a", 1), (2 * INTERVAL, "a", 2)]


def test_a_closed_window_keeps_its_value_however_late_it_is_taken():
    conflator = Conflator(PerKey(INTERVAL))
    conflator.offer(["a"], [1], 0)
    conflator.offer(["a"], [2], INTERVAL + 5)
    assert conflator.take(INTERVAL + 5) == {"a": 1}


def test_a_key_offered_twice_in_one_batch_keeps_the_later_value():
    conflator = Conflator(PerKey(INTERVAL))
    conflator.offer(["a", "b", "a"], [1, 2, 3], 0)
    assert conflator.take(INTERVAL) == {"a": 3, "b": 2}


@given(logs)
def test_convergence_the_last_update_of_every_key_is_released_last(log):
    log = timed(log)
    assert {k: v for _, k, v in run(log)} == {k: v for _, k, v in log}


@given(logs, st.lists(st.integers(min_value=0, max_value=40_000_000), max_size=20))
def test_chunking_where_takes_fall_never_changes_what_comes_out(log, take_at):
    log = timed(log)
    assert [(k, v) for _, k, v in sorted(run(log, take_at))] == [
        (k, v) for _, k, v in sorted(run(log))
    ]


@given(logs)
def test_rate_no_key_is_released_twice_within_an_interval(log):
    times = defaultdict(list)
    for now, key, _ in run(timed(log)):
        times[key].append(now)
    for moments in times.values():
        assert all(b - a >= INTERVAL for a, b in pairwise(moments))


@given(logs)
def test_staleness_nothing_is_held_longer_than_interval_and_gathering(log):
    """Measured from the first value that a release stands for, which is the one that waited."""
    log, released = timed(log), {}
    for now, key, value in run(log):
        folded = [t for t, k, v in log if k == key and released.get(key, -1) < v <= value]
        assert now - min(folded) <= INTERVAL + GATHER
        released[key] = value


@given(logs)
def test_order_values_of_a_key_never_go_backwards(log):
    seen = defaultdict(list)
    for _, key, value in run(timed(log)):
        seen[key].append(value)
    assert all(values == sorted(values) for values in seen.values())


@given(logs)
def test_bound_never_more_entries_than_keys_while_takes_are_on_time(log):
    conflator = Conflator(PerKey(INTERVAL))
    offered = set()
    for now, key, value in timed(log):
        while (due := conflator.due_us()) is not None and due <= now:
            conflator.take(due)
        conflator.offer([key], [value], now)
        offered.add(key)
        # A key can wait twice for the length of one gathering: closed, and open again.
        assert len(conflator) <= 2 * len(offered)


@given(st.lists(st.tuples(steps, st.lists(keys, min_size=1, max_size=5)), max_size=30))
def test_a_batch_is_the_same_as_its_updates_one_by_one(batches):
    whole, single = Conflator(PerKey(INTERVAL)), Conflator(PerKey(INTERVAL))
    now = 0
    for gap, names in batches:
        now += gap
        values = [f"{now}:{at}" for at in range(len(names))]
        assert whole.take(now) == single.take(now)
        whole.offer(names, values, now)
        for name, value in zip(names, values, strict=True):
            single.offer([name], [value], now)
    assert whole.take(now + 2 * INTERVAL) == single.take(now + 2 * INTERVAL)


@given(logs, st.sampled_from([lambda: PerKey(INTERVAL), lambda: Tick(INTERVAL), OnDemand]))
def test_all_that_waits_is_taken_as_if_every_window_had_ended(log, schedule):
    early, late = (Conflator(schedule(), lambda one, other: [*one, *other]) for _ in "12")
    now = 0
    for now, key, value in timed(log):
        for conflator in (early, late):
            conflator.offer([key], [[value]], now)
            conflator.check()
    if isinstance(late.schedule, OnDemand):
        late.schedule.demand()
    taken = early.take_all()
    early.check()
    assert list(taken.items()) == list(late.take(now + 2 * INTERVAL).items())
    assert (len(early), early.due_us(), early.oldest_us()) == (0, None, None)


@given(logs, st.sampled_from([1, 30_000, 3 * INTERVAL]), st.booleans())
def test_another_schedule_releases_the_last_values_in_order_and_soon_enough(log, interval, ticks):
    conflator = Conflator(PerKey(INTERVAL))
    now, said = 0, {}
    for now, key, value in timed(log):
        conflator.offer([key], [value], now)
        said[key] = value
    waiting = dict(conflator.pending())
    conflator.reschedule(Tick(interval) if ticks else PerKey(interval), now)
    conflator.check()
    taken = {}
    while (due := conflator.due_us()) is not None:
        # What has ended is due at once, all else within one interval of the new kind.
        assert due <= now + interval + min(interval // 10, GATHER)
        taken |= conflator.take(max(now, due))
    assert taken == waiting == {key: said[key] for key in waiting}


def test_another_schedule_looks_at_nothing_that_waits():
    conflator = Conflator(PerKey(INTERVAL), fold=mock.Mock(side_effect=AssertionError))
    conflator.offer(range(1000), range(1000), 0)
    values = conflator.pending()
    conflator.reschedule(PerKey(3 * INTERVAL), 1)
    assert conflator.pending() is values
    assert conflator.due_us() == 3 * INTERVAL + 1


def test_check_finds_a_window_that_is_not_its_keys():
    conflator = Conflator(PerKey(INTERVAL))
    conflator.offer(["a"], [1], 0)
    conflator.check()
    conflator.schedule.open(["a"], 1)
    with pytest.raises(AssertionError, match="a window is not its key's"):
        conflator.check()


@pytest.mark.parametrize("make", [lambda: PerKey(INTERVAL), lambda: Tick(INTERVAL)])
@given(logs, st.lists(st.integers(1, 3 * INTERVAL), max_size=8), st.integers(1, 3))
def test_taking_some_at_a_time_releases_each_window_however_late(make, log, waits, count_max):
    """The same values as a receiver gets that takes each window when it is due."""
    prompt, late = Conflator(make(), max), Conflator(make(), max)
    in_time: dict[str, list[int]] = defaultdict(list)
    released: dict[str, list[int]] = defaultdict(list)
    log, takes = timed(log), []
    for wait in waits:
        takes.append((takes[-1] if takes else 0) + wait)
    moments = sorted([(at, 0, "", 0) for at in takes] + [(t, 1, k, v) for t, k, v in log])
    for now, offers, key, value in [*moments, (10**12, 0, "", 0)]:
        while (due := prompt.due_us()) is not None and due <= now:
            for one, taken in prompt.take(due).items():
                in_time[one].append(taken)
        if offers:
            prompt.offer([key], [value], now)
            late.offer([key], [value], now)
            continue
        while (due := late.due_us()) is not None and due <= now:
            some = late.take(now, count_max)
            assert 0 < len(some) <= count_max
            late.check()
            for one, taken in some.items():
                released[one].append(taken)
    assert released == in_time
    assert len(late) == 0


def test_what_waits_for_a_receiver_that_takes_nothing_is_bounded():
    conflator = Conflator(PerKey(INTERVAL))
    with mock.patch.object(conflators, "WINDOWS_MAX", 3):
        for at in range(6):
            conflator.offer(["a"], [at], at * INTERVAL)
        assert len(conflator) == 4
    conflator.check()
    found = [conflator.take(9 * INTERVAL, 1) for _ in range(5)]
    assert found == [{"a": 0}, {"a": 1}, {"a": 4}, {"a": 5}, {}]


def test_what_is_offered_between_two_parts_waits_for_its_own_window():
    conflator = Conflator(PerKey(INTERVAL))
    conflator.offer("abc", [1, 1, 1], 0)
    assert conflator.take(INTERVAL, 1) == {"a": 1}
    conflator.offer("ab", [2, 2], INTERVAL)
    assert conflator.take(INTERVAL, 5) == {"b": 1, "c": 1}
    assert conflator.take(2 * INTERVAL, 5) == {"a": 2, "b": 2}


def test_most_of_what_waits_ends_as_quickly_as_the_little_that_does_not():
    conflator = Conflator(PerKey(INTERVAL))
    conflator.offer(range(1000), range(1000), 0)
    conflator.offer([-1, -2], [7, 8], 1)
    assert conflator.take(INTERVAL) == {key: key for key in range(1000)}
    conflator.check()
    assert conflator.take(2 * INTERVAL) == {-1: 7, -2: 8}


def test_keys_that_wait_and_what_waits_for_one_whatever_its_windows():
    for fold, both in ((None, 2), (lambda old, new: old + new, 3)):
        conflator = Conflator(PerKey(10), fold)
        conflator.offer(("a", "b"), (1, 5), 0)
        conflator.offer(("a",), (2,), 20)
        assert conflator.has_closed
        assert conflator.keys() == ["a", "b", "a"]
        found = {key: conflator.folded(key) for key in "abc"}
        assert found == {**conflator.pending(), "c": None} == {"a": both, "b": 5, "c": None}
        taken = conflator.take_all()
        conflator.offer(("c",), (7,), 30)
        assert (taken, conflator.keys()) == ({"a": both, "b": 5}, ["c"])


@pytest.mark.parametrize("count_max", [1, 2, 100])
def test_a_turn_is_that_of_one_window_however_late_it_is(count_max):
    conflator = Conflator(PerKey(INTERVAL))
    for value in range(3):
        conflator.offer(["a", "b", "c"], [value] * 3, value * 2 * INTERVAL)
    now, turns = 9 * INTERVAL, {}
    while (turn_us := conflator.turn_us(now)) is not None:
        taken = conflator.take(now, count_max)
        assert 0 < len(taken) <= count_max
        turns.setdefault(turn_us, []).extend(taken.items())
    assert turns == {
        INTERVAL: [("a", 0), ("b", 0), ("c", 0)],
        3 * INTERVAL: [("a", 1), ("b", 1), ("c", 1)],
        5 * INTERVAL: [("a", 2), ("b", 2), ("c", 2)],
    }
    assert conflator.take(now, count_max) == {}
    conflator.check()
