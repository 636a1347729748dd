"""Windows: when they open, close and are released. Times in microseconds."""

from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import PerKey

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
