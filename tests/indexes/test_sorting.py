"""Sorting in steps: rows by their keys, texts by rank, numbers of a column in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.indexes import sorting as module
from sow.indexes.sorting import Interval, Moved, SortedNumbers, TextOrder, picked, sorting
from tests.effort import examples

KEYS = st.lists(
    st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 1.0, 2.5, 7.0]), min_size=30, max_size=30),
    min_size=1,
    max_size=3,
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch) -> None:
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(module, "ROWS_AT_ONCE_MIN", 2)
    monkeypatch.setattr(module, "BOUNDS_MAX", 3)
    monkeypatch.setattr(module, "SAMPLES", 2)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 4)
    monkeypatch.setattr(module, "LATER_MAX", 3)
    monkeypatch.setattr(module, "MOVED_SPARE", 1)
    monkeypatch.setattr(module, "MERGE_ROWS", 2)


def keys(columns: list) -> list:
    arrays = [np.array(column) for column in columns]
    return [lambda rows, array=array: array[rows] for array in arrays]


@given(KEYS, st.permutations(range(30)))
@examples(48)
def test_rows_are_sorted_by_key_after_key_and_equal_ones_stay(columns: list, rows: list) -> None:
    found = run_to_completion(sorting(np.array(rows), keys(columns))).tolist()
    assert found == sorted(rows, key=lambda row: [column[row] for column in columns])


def test_no_rows_and_no_keys_are_sorted_too() -> None:
    assert run_to_completion(sorting(np.zeros(0, np.int64), keys([[1.0]]))).tolist() == []
    assert run_to_completion(sorting(np.arange(30)[::-1], [])).tolist() == [*range(30)][::-1]


def test_rows_that_are_all_equal_take_as_many_steps_as_others() -> None:
    column = [[1.0] * 1000, [float(at % 7) for at in range(1000)]]
    assert len(list(sorting(np.arange(1000), keys(column)))) < 4 * 1000 / 4


def test_keys_that_change_between_steps_leave_the_others_in_order() -> None:
    column = np.arange(200.0)[::-1].copy()
    steps, changing = sorting(np.arange(200), [lambda rows: column[rows]]), iter(range(0, 200, 3))
    while True:
        try:
            next(steps)
        except StopIteration as over:
            found = over.value
            break
        column[next(changing, 0)] = 100.5
    rest = [row for row in found.tolist() if row % 3]
    assert sorted(found.tolist()) == [*range(200)]
    assert rest == sorted(rest, reverse=True)


def test_places_of_a_column_are_picked_some_in_each_step(monkeypatch) -> None:
    monkeypatch.setattr(module, "PICKED_AT_ONCE", 3)
    column, rows = np.arange(10, dtype=np.int32) * 7, np.array([9, 0, 0, 5, 3, 8, 1])
    assert len(list(picked(column, rows))) == 3
    found = run_to_completion(picked(column, rows))
    assert found.dtype == np.int32
    assert found.tolist() == column[rows].tolist()
    assert run_to_completion(picked(column, rows[:0])).tolist() == []


def agree(order: TextOrder, texts: list[str]) -> None:
    ranks = order.ranks().tolist()
    assert [texts[code] for code in np.argsort(ranks[: len(texts)])] == sorted(texts)
    assert len(set(ranks)) == len(texts) + 1
    assert ranks[-1] == -np.inf


@given(st.lists(st.lists(st.text(max_size=3), max_size=9), max_size=6), st.booleans())
@examples(48)
def test_texts_rank_as_they_sort_however_they_came(additions: list, in_steps: bool) -> None:
    texts: list[str] = []
    order = TextOrder(texts)
    for more in additions:
        while in_steps and order.dirty_count:
            order.refresh(1)
        texts += [text for text in dict.fromkeys(more) if text not in texts]
        agree(order, texts)


def test_many_texts_are_sorted_in_steps_and_few_at_once() -> None:
    texts = [f"t{number * 7 % 40}" for number in range(40)]
    order = TextOrder(texts)
    steps = 0
    while order.dirty_count:
        order.refresh(1)
        steps += 1
    assert steps > 40 / 4
    texts += ["a", "b", "z"]
    assert order.dirty_count == 0
    agree(order, texts)


def test_texts_that_come_while_others_are_sorted_are_not_lost() -> None:
    texts = [f"t{number}" for number in range(40)]
    order = TextOrder(texts)
    for text in ("s", "u"):
        order.refresh(1)
        texts.append(text)
    while order.dirty_count:
        order.refresh(1)
    agree(order, texts)


def test_what_is_known_of_ranks_is_kept() -> None:
    order = TextOrder(["b", "a"])
    assert order.ranks() is order.ranks()


NUMBERS = st.sampled_from([float("nan"), -1.0, 0.0, 1.0, 2.0, 3.5])
INTERVALS = st.builds(
    Interval,
    st.sampled_from([-np.inf, 0.0, 1.0, 2.0]),
    st.sampled_from([0.0, 1.0, 3.5, np.inf]),
    st.booleans(),
    st.booleans(),
)


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
