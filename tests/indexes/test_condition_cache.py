import numpy as np

from sow.indexes import condition_cache
from sow.indexes.condition_cache import ConditionCache


class Evens:
    """A condition that holds for even values; counts what it reads."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)
        self.read: list[int] = []

    def __call__(self, slots):
        self.read.extend(slots.tolist())
        return np.array([self.values[slot] % 2 == 0 for slot in slots])


def wanted(known: ConditionCache, *slots: int) -> list[bool]:
    known.want(np.array(slots, np.int64))
    known.refresh()
    return known.of(np.array(slots, np.int64)).tolist()


def test_only_what_is_wanted_is_read_and_only_once() -> None:
    evens = Evens(0, 1, 2, 3)
    known = ConditionCache(evens)
    assert wanted(known, 2, 1) == [True, False]
    assert wanted(known, 1, 2, 3) == [False, True, False]
    assert evens.read == [2, 1, 3]


def test_what_has_changed_is_read_again() -> None:
    evens = Evens(0, 1)
    known = ConditionCache(evens)
    wanted(known, 0, 1)
    evens.values[0] = 7
    known.touch([0, 5])
    assert wanted(known, 0, 1) == [False, False]
    assert evens.read == [0, 1, 0]


def test_nothing_may_be_wanted() -> None:
    assert wanted(ConditionCache(Evens())) == []


def test_reading_goes_in_steps() -> None:
    evens = Evens(*range(10))
    known = ConditionCache(evens)
    known.want(np.arange(10))
    assert [(known.refresh(4), known.dirty_count) for _ in range(4)] == [
        (4, 6),
        (4, 2),
        (2, 0),
        (0, 0),
    ]


def test_a_condition_of_many_fields_reads_fewer_records_in_a_step() -> None:
    known = ConditionCache(Evens(*range(10)), cost=4)
    known.want(np.arange(10))
    assert (known.refresh(8), known.dirty_count) == (2 * 4, 8 * 4)
    known = ConditionCache(Evens(*range(10)), cost=400)
    known.want(np.arange(10))
    assert (known.refresh(8), known.dirty_count) == (400, 9 * 400)


def test_values_are_read_a_chunk_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(condition_cache, "CHUNK_ROWS", 3)
    assert wanted(ConditionCache(Evens(*range(7))), *range(7)) == [True, False] * 3 + [True]
