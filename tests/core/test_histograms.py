"""A histogram counts each time in one place, and adds up."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from sow.core.containers import BOUNDS_S, Histogram

TIMES = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 1000)))


@given(TIMES)
def test_what_took_at_most_so_long_is_counted_at_each_bound(times):
    histogram = Histogram()
    for took_s, count in times:
        histogram.note(took_s, count)
    found = dict(histogram.cumulative())
    for bound in BOUNDS_S:
        assert found[str(bound)] == sum(count for took_s, count in times if took_s <= bound)
    assert found["+Inf"] == sum(count for _, count in times)
    assert abs(histogram.sum_s - sum(took_s * count for took_s, count in times)) < 1e-3


def test_bounds_grow():
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
    assert bisect_left(BOUNDS_S, 11.0) == len(BOUNDS_S)
