"""Where windows begin and end, beside a loop that walks one key after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import windows
from conflated_topics.windows import cut

keys = st.lists(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=8), max_size=5
)


def columns(log):
    """Keys one after the other, each in the order of time: times, first records, openers."""
    rows = [
        (at, place == 0, opens)
        for key in log
        for place, (at, opens) in enumerate(sorted(key, key=lambda one: one[0]))
    ]
    times, leads, opens = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(times, np.int64), np.array(leads, bool), np.array(opens, bool)


def naive(times, leads, interval, opens):
    """What the rule says, record by record."""
    found, end_us = [], None
    for at, (time, lead) in enumerate(zip(times, leads, strict=True)):
        if lead:
            end_us = None
        if end_us is not None and time >= end_us:
            end_us = None
        if end_us is None and (opens is None or opens[at]):
            found.append([at, at])
            end_us = time + interval
        if end_us is not None:
            found[-1][1] = at + 1
    return found


@given(keys, st.integers(1, 40), st.booleans())
def test_windows_are_those_of_walking_record_by_record(log, interval, some_open):
    times, leads, opens = columns(log)
    chosen = opens if some_open else None
    starts, ends = cut(times, leads, interval, chosen)
    wanted = naive(times.tolist(), leads.tolist(), interval, chosen)
    assert starts.tolist() == [start for start, _ in wanted]
    # A window ends before the next record that it does not hold, whether that opens one or not.
    for (start, last), end in zip(wanted, ends.tolist(), strict=True):
        assert end >= last
        assert np.all(times[start:end] < times[start] + interval)
        assert not leads[start + 1 : end].any()


def test_a_record_at_the_end_of_a_window_opens_the_next():
    times = np.array([0, 9, 10, 19, 20], np.int64)
    leads = np.array([True, *[False] * 4])
    starts, ends = cut(times, leads, 10)
    assert starts.tolist() == [0, 2, 4]
    assert ends.tolist() == [2, 4, 5]


def test_nothing_has_no_windows():
    starts, ends = cut(np.array([], np.int64), np.array([], bool), 10)
    assert (len(starts), len(ends)) == (0, 0)


def test_nobody_may_open_a_window():
    starts, _ = cut(np.array([1], np.int64), np.array([True]), 10, np.array([False]))
    assert len(starts) == 0


@given(keys.filter(lambda log: len(log) > 1), st.integers(1, 40))
def test_a_line_that_is_cut_in_two_has_the_same_windows(log, interval):
    times, leads, _ = columns(log)
    whole = cut(times, leads, interval)
    with pytest.MonkeyPatch.context() as patch:
        longest = max(sum(np.diff(sorted(at for at, _ in key)), 0) for key in log)
        patch.setattr(windows, "LINE_US_MAX", interval + longest + 1)
        halves = cut(times, leads, interval)
    assert [part.tolist() for part in halves] == [part.tolist() for part in whole]


def test_times_that_lie_too_far_apart_are_refused():
    times = np.array([-(2**62), 2**62], np.int64)
    with pytest.raises(ValueError, match="73,000 years"):
        cut(times, np.array([True, False]), 10)


def test_an_interval_longer_than_all_time_is_one_window():
    starts, ends = cut(np.array([0, 5], np.int64), np.array([True, False]), 2**61)
    assert (starts.tolist(), ends.tolist()) == ([0], [2])


@pytest.mark.parametrize("interval", [1, 10**6, 2**61])
def test_positions_beyond_64_bits_are_halved(interval):
    # Each key spans 60,000 years, so that all of them end to end would not fit.
    pick = np.random.default_rng(4)
    times = np.sort(pick.integers(0, 2**60, (20, 50)), axis=1).ravel()
    leads = np.arange(1000) % 50 == 0
    starts, stops = cut(times, leads, interval)
    assert starts.tolist() == [first for first, _ in naive(times.tolist(), leads, interval, None)]
    assert stops.tolist() == [*starts.tolist()[1:], 1000]


@pytest.mark.parametrize("interval", [2**58, 2**59])
def test_long_intervals_over_long_times_are_cut_right(interval):
    times = np.sort(np.random.default_rng(5).integers(-(2**59), 2**59, (40, 30)), axis=1).ravel()
    leads = np.arange(1200) % 30 == 0
    starts, _ = cut(times, leads, interval)
    assert starts.tolist() == [first for first, _ in naive(times.tolist(), leads, interval, None)]


def test_times_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="73,000 years apart"):
        cut(np.array([-(2**62), 2**62]), np.array([True, False]), 10)
