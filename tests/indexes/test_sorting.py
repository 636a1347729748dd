import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.indexes import sorting as module
from sow.indexes.sorting import picked, sorting
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
