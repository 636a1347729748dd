"""What is held for intervals is found by any value in them, whatever came and went before."""

from hypothesis import given
from hypothesis import strategies as st

from sow.streaming import intervals as module
from sow.streaming.intervals import Intervals

numbers = st.integers(-5, 5) | st.sampled_from([0.5, 10**400, float("inf"), -0.0])
bounds = st.tuples(st.none() | numbers, st.none() | numbers)


def touches(interval, low, high):
    begin, end = interval
    return (begin is None or begin <= high) and (end is None or end >= low)


@given(st.lists(bounds, max_size=20), st.data(), numbers, numbers)
def test_what_is_found_is_what_touches(every, data, one, other):
    intervals, held = Intervals(), dict(enumerate(every))
    for key, (low, high) in held.items():
        intervals.add(key, low, high, key)
    for key in data.draw(
        st.lists(st.sampled_from(range(len(every))), unique=True) if every else st.just([])
    ):
        intervals.remove(key, *held.pop(key))
        intervals.check()
    low, high = sorted((one, other))
    assert sorted(intervals.touching(low, high)) == [
        key for key, interval in held.items() if touches(interval, low, high)
    ]
    intervals.check()
    assert sorted(intervals.all()) == list(held)
    assert len(intervals) == len(held)


def test_what_is_remembered_is_forgotten_when_somebody_comes_or_goes(monkeypatch):
    intervals = Intervals()
    for number in range(3):
        intervals.add(number, 0, 10, number)
        assert intervals.touching(5, 5) is intervals.touching(6, 6)
        assert sorted(intervals.touching(5, 5)) == list(range(number + 1))
    intervals.remove(1, 0, 10)
    assert sorted(intervals.touching(5, 5)) == [0, 2]
    monkeypatch.setattr(module, "KNOWN_MAX", 1)
    intervals.remove(2, 0, 10)
    intervals.add(3, 7, None, 3)
    assert (sorted(intervals.touching(8, 8)), intervals.touching(6, 6)) == ([0, 3], [0])
    assert len(intervals._known) == 1


def test_places_that_were_left_are_taken_again():
    intervals = Intervals()
    for number in range(1000):
        intervals.add(number, number, number + 1, str(number))
        if number:
            intervals.remove(number - 1, number - 1, number)
    assert intervals.touching(999.5, 999.5) == ["999"]
    assert intervals._lows.size <= 16


def test_texts_are_an_order_like_numbers():
    intervals = Intervals()
    intervals.add("a", "2026-01-01", "2026-02-01", "January")
    intervals.add("b", "2026-02-01", None, "later")
    assert intervals.touching("2026-01-31", "2026-01-31") == ["January"]
    assert sorted(intervals.touching("2026-02-01", "2026-02-01")) == ["January", "later"]
