"""The records still in question: the same ones whether they are a mask or a list."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.query.candidates import LISTED_SHARE_MAX, Candidates
from sow.store.memory import Table

SLOTS = 64


@pytest.fixture
def table():
    return _table()


def _table(dropped=()):
    table = Table(None)
    names = [str(number) for number in range(SLOTS)]
    table.put(names, [b""] * SLOTS, range(1, SLOTS + 1), [0] * SLOTS)
    table.drop(map(str, dropped))
    return table


def mask(slots, size=SLOTS):
    return np.isin(np.arange(size), list(slots))


subsets = st.lists(st.frozensets(st.integers(0, SLOTS - 1)), max_size=4)


@given(st.frozensets(st.integers(0, SLOTS - 1), min_size=1), subsets)
def test_what_is_left_is_what_every_test_has_kept(there, tests):
    table = _table(set(range(SLOTS)) - there)
    candidates, left = Candidates(table), set(there)
    candidates.become(table.live())
    for kept in tests:
        listed = candidates.listed
        candidates.keep(mask(kept) if listed is None else np.isin(listed, list(kept)))
        left &= kept
        assert set(candidates.slots().tolist()) == left
        assert len(candidates) == len(left)


@given(subsets)
def test_masks_over_all_slots_narrow_down_too(tests):
    candidates, left = Candidates(_table()), set(range(SLOTS))
    for kept in tests:
        listed = candidates.listed
        one = mask(kept) if listed is None else np.isin(listed, list(kept))
        assert set(candidates.picked(one).tolist()) == left & kept
        candidates.keep(one)
        left &= kept
        assert set(candidates.slots().tolist()) == left


def test_at_first_all_are_in_question(table):
    candidates = Candidates(table)
    assert candidates.are_all
    assert len(candidates) == SLOTS
    candidates.keep(mask(range(SLOTS)))
    assert not candidates.are_all


def test_few_are_listed_and_many_are_not(table):
    few = int(SLOTS * LISTED_SHARE_MAX)
    for count, listed in ((few, True), (few + 1, False)):
        candidates = Candidates(table)
        candidates.keep(mask(range(count)))
        assert (candidates.listed is not None) == listed
        assert len(candidates) == count


def test_slots_that_were_freed_are_not_in_question():
    assert sorted(Candidates(_table({3, 4})).slots().tolist()) == sorted(set(range(SLOTS)) - {3, 4})
