"""Windows: when they open, close and are released. Times in microseconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import OnDemand, PerKey, Tick

SECOND = 1_000_000

intervals = st.integers(min_value=100_000, max_value=120 * SECOND)
times = st.integers(min_value=0, max_value=10**15)


def released(schedule, now):
    return [(at, keys) for at, keys in schedule.close(now)]


def test_a_window_is_due_one_interval_after_it_opened():
    schedule = PerKey(SECOND)
    schedule.open(["a"], 0)
    assert schedule.due_us() == SECOND


def test_a_window_is_still_open_just_before_its_deadline():
    schedule = PerKey(SECOND)
    schedule.open(["a"], 0)
    assert released(schedule, SECOND - 1) == []


def test_a_window_closes_at_its_deadline():
    schedule = PerKey(SECOND)
    schedule.open(["a"], 0)
    assert released(schedule, SECOND) == [(SECOND, ["a"])]


def test_nothing_is_due_when_no_window_is_open():
    assert PerKey(SECOND).due_us() is None


@given(intervals, times)
def test_a_release_is_never_early_and_gathers_at_most_a_tenth_or_20_ms(interval, deadline):
    release = PerKey(interval).release_us(deadline)
    assert 0 <= release - deadline <= min(interval / 10, 20_000) + 1


@given(intervals, times, st.integers(min_value=0, max_value=10**7))
def test_deadlines_an_interval_apart_are_released_an_interval_apart(interval, deadline, later):
    schedule = PerKey(interval)
    first = schedule.release_us(deadline)
    second = schedule.release_us(deadline + interval + later)
    assert second - first >= interval


@pytest.mark.parametrize("schedule", [PerKey(SECOND), Tick(SECOND)])
def test_a_schedule_knows_whether_something_has_ended(schedule):
    assert not schedule.has_ended(0)
    schedule.open(["a"], 0)
    assert not schedule.has_ended(SECOND - 1)
    assert schedule.has_ended(SECOND)
    list(schedule.close(SECOND))
    assert not schedule.has_ended(SECOND)


@pytest.mark.parametrize("schedule", [PerKey(SECOND), Tick(SECOND), OnDemand()])
def test_another_schedule_with_the_same_windows_goes_its_own_way(schedule):
    schedule.open(["a"], 0)
    other = schedule.copied()
    other.open(["b"], 1)
    assert (list(schedule.keys()), list(other.keys())) == (["a"], ["a", "b"])
    assert (schedule.due_us(), schedule.opened_us()) == (other.due_us(), other.opened_us())
    list(schedule.close(SECOND))
    assert list(other.keys()) == ["a", "b"]


gaps = st.lists(st.integers(min_value=0, max_value=3 * SECOND), min_size=1, max_size=30)


@given(intervals, gaps)
def test_no_key_is_released_twice_within_an_interval_however_the_grid_begins(interval, gaps):
    schedule, now, waits, released_at = PerKey(interval), 0, False, None
    for gap in gaps:
        now += gap
        for at, _ in schedule.close(now):
            assert released_at is None or at - released_at >= interval
            released_at, waits = at, False
        if not waits:
            schedule.open(["a"], now)
            deadline, waits = now + interval, True
        assert 0 <= schedule.due_us() - deadline <= min(interval // 10 + 1, 20_000)


@given(intervals, times)
def test_what_comes_after_a_pause_is_released_at_its_deadline(interval, now):
    schedule = PerKey(interval)
    schedule.open(["a"], now)
    assert schedule.due_us() == now + interval
    assert released(schedule, now + interval) == [(now + interval, ["a"])]
    schedule.open(["a"], now + interval + 7)
    assert schedule.due_us() == now + 2 * interval + 7


def test_the_grid_stays_while_something_is_about_to_be_released():
    schedule = PerKey(SECOND)
    schedule.open(["a"], 0)
    schedule.open(["b"], 1)
    assert released(schedule, SECOND + 1) == [(SECOND, ["a"]), (SECOND + 20_000, ["b"])]
    schedule.open(["b"], SECOND + 2)
    assert schedule.due_us() == 2 * SECOND + 20_000
