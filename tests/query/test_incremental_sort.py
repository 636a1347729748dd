import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.indexes import sorting
from sow.query import incremental_sort
from sow.query.incremental_sort import IncrementalSort
from tests.effort import examples

ROWS = 12
VALUES = st.lists(st.integers(0, 3), min_size=ROWS, max_size=ROWS)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch) -> None:
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE", 2)
    monkeypatch.setattr(sorting, "ROWS_AT_ONCE_MIN", 1)
    monkeypatch.setattr(sorting, "PICKED_AT_ONCE", 3)
    monkeypatch.setattr(incremental_sort, "RANKED_AT_ONCE", 5)


class Sheet:
    """Two columns that change; of the records those are found whose first value is not 0."""

    def __init__(self, first: list[int], second: list[int]) -> None:
        self.columns = [np.array(first, np.float64), np.array(second, np.float64)]

    def found(self) -> np.ndarray:
        return np.flatnonzero(self.columns[0])

    def rankings(self) -> list:
        first, second = self.columns
        return [lambda: lambda slots: first[slots], lambda: lambda slots: -second[slots]]

    def with_births(self) -> list:
        return [*self.rankings(), lambda: lambda slots: slots.astype(np.float64)]

    def expected(self) -> list[int]:
        first, second = self.columns
        return sorted(self.found().tolist(), key=lambda slot: (first[slot], -second[slot], slot))


@given(VALUES, VALUES, st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, 3))))
@examples(48)
def test_what_changes_while_it_is_sorted_stands_where_it_belongs(first, second, changes) -> None:
    sheet = Sheet(first, second)
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    for slot, value in changes:
        arranged.refresh(1)
        sheet.columns[value % 2][slot] = value
        arranged.touch([slot, slot])
    arranged.refresh()
    assert arranged.dirty_count == 0
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == sheet.expected()


def test_it_is_dirty_until_all_is_sorted() -> None:
    sheet = Sheet([1] * ROWS, [*range(ROWS)])
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    steps = 0
    while arranged.dirty_count:
        assert arranged.refresh(1) == 1
        steps += 1
    assert steps > ROWS / 2
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == [*range(ROWS)][::-1]


def test_nothing_can_be_arranged() -> None:
    sheet = Sheet([0] * ROWS, [0] * ROWS)
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    arranged.refresh()
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() == []


def test_a_sort_that_misses_a_change_is_found_out(monkeypatch) -> None:
    monkeypatch.setattr(IncrementalSort, "touch", lambda *_: None)
    sheet = Sheet([1] * ROWS, [*range(ROWS)])
    arranged = IncrementalSort(sheet.found(), sheet.rankings())
    arranged.refresh()
    sheet.columns[1][0] = 99
    arranged.touch([0])
    assert arranged.of(sheet.found(), sheet.with_births()).tolist() != sheet.expected()
