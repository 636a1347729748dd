import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.indexes import sorted_numbers as module
from sow.indexes import sorting
from sow.indexes.sorted_numbers import Interval, Moved, SortedNumbers
from tests.effort import examples

NUMBERS = st.sampled_from([float("nan"), -1.0, 0.0, 1.0, 2.0, 3.5])
INTERVALS = st.builds(
    Interval,
    st.sampled_from([-np.inf, 0.0, 1.0, 2.0]),
    st.sampled_from([0.0, 1.0, 3.5, np.inf]),
    st.booleans(),
    st.booleans(),
)


@pytest.fixture(autouse=True)
def _small_merges(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOVED_SPARE", 1)
    monkeypatch.setattr(module, "MERGE_ROWS", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE_MIN", 1)


def inside(interval: Interval, number: float) -> bool:
    above = number > interval.low if interval.without_low else number >= interval.low
    return above and (number < interval.high if interval.without_high else number <= interval.high)


@given(INTERVALS, INTERVALS, st.lists(NUMBERS))
def test_an_interval_holds_the_same_numbers_sorted_or_not(one, other, numbers) -> None:
    both = one & other
    found = both.holds(np.array(numbers, np.float64)).tolist()
    assert found == [inside(one, number) and inside(other, number) for number in numbers]
    ascending = np.sort([number for number in numbers if number == number])
    span = both.span(ascending)
    assert ascending[span].tolist() == [number for number in ascending if inside(both, number)]


@given(
    st.lists(NUMBERS, max_size=12),
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 15), NUMBERS), st.integers(0, 3), INTERVALS, st.booleans()
        ),
        max_size=30,
    ),
)
@examples(60)
def test_the_order_is_that_of_the_numbers_whenever_it_is_requested(
    numbers: list, acts: list
) -> None:
    now = np.array(numbers, np.float64)
    order = SortedNumbers(now)
    for act in acts:
        match act:
            case (slot, number):
                more = max(0, slot + 1 - len(now))
                now = np.concatenate([now, np.full(more, np.nan)])
                now[slot] = number
                order.moved(np.array([slot]), now)
            case bool():
                agree_on_the_first(order, now, act)
            case Interval():
                found = sorted(order.slots(act).tolist())
                assert found == np.flatnonzero(act.holds(now)).tolist()
                assert len(found) <= order.estimate(act)
            case _:
                order.refresh(act * module.STEP_NOTES if act else None)
                if not act:
                    assert order.dirty_count == 0
        order.check(now)


def agree_on_the_first(order: SortedNumbers, now: np.ndarray, descending: bool) -> None:
    there = now[~np.isnan(now)].tolist()
    wanted = sorted(there, reverse=descending)[:2]
    found = order.first(2, descending)
    if found is None:
        return
    assert sorted(now[found].tolist(), reverse=descending)[:2] == wanted
    for number in wanted:
        assert (now[found] == number).sum() == there.count(number)


def test_the_first_are_found_once_there_is_an_order() -> None:
    order = SortedNumbers(np.arange(100.0))
    assert order.first(2, False) is None
    order.refresh()
    assert order.first(2, False).tolist() == [0, 1]
    assert order.first(2, True).tolist() == [98, 99]


def test_an_order_serves_while_few_have_moved() -> None:
    numbers = np.arange(100.0)
    order = SortedNumbers(numbers)
    assert not order.serves
    order.refresh()
    order.moved(np.arange(10), numbers)
    assert order.serves
    order.moved(np.arange(30), numbers)
    assert not order.serves


def test_a_merge_takes_steps_of_the_order_it_replaces() -> None:
    numbers = np.arange(100.0)
    order = SortedNumbers(numbers)
    order.refresh()
    order.moved(np.arange(10), numbers)
    steps = 0
    while order.dirty_count:
        assert order.refresh(1) == module.STEP_NOTES
        steps += 1
    assert steps > 100 / module.MERGE_ROWS


def test_an_unused_order_is_reported() -> None:
    numbers = np.arange(10.0)
    order = SortedNumbers(numbers)
    for turn in range(module.MERGES_UNUSED_MAX + 2):
        assert order.is_unused is (turn > module.MERGES_UNUSED_MAX)
        order.moved(np.arange(10), numbers)
        order.refresh()
    order.slots(Interval())
    assert not order.is_unused


def test_what_has_moved_counts_once() -> None:
    moved = Moved(2)
    moved.add(np.array([1]))
    moved.add(np.array([1, 5]))
    assert (moved.count, moved.slots().tolist()) == (2, [1, 5])
    assert moved.among(np.array([0, 1, 5, 99])).tolist() == [False, True, True, False]


def test_an_order_that_misses_what_moved_is_found_out(monkeypatch) -> None:
    numbers = np.arange(10.0)
    order = SortedNumbers(numbers)
    order.refresh()
    numbers[3] = 70.0
    with pytest.raises(AssertionError):
        order.check(numbers)
