"""What a column held stays what it was, however many rows of it are wanted."""

import numpy as np
import pytest

from sow.history import held as module
from sow.history.held import HeldColumn
from sow.steps import at_once


def slots(*found):
    return np.array(found, np.int64)


def all_of(held):
    return held.part(0, len(held))


@pytest.mark.parametrize("few_part", [1, 10**6], ids=["picked", "copied"])
@pytest.mark.parametrize("wanted", [(), (3,), (3, 0, 1), (0, 1, 2, 3), (3, 2, 1, 0)])
def test_rows_are_as_they_were_before_and_after_they_are_settled(monkeypatch, few_part, wanted):
    monkeypatch.setattr(module, "FEW_PART", few_part)
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 2)
    column = list("abcd")
    held = HeldColumn.take(column, slots(*wanted))
    column[:] = "wxyz"
    was = ["abcd"[slot] for slot in wanted]
    backwards = np.arange(len(wanted))[::-1]
    for _ in range(2):
        assert all_of(held) == was
        assert all_of(held.at(backwards)) == was[::-1]
        assert all_of(held.and_more(["e"])) == [*was, "e"]
        at_once(held.settle())


def test_what_is_in_no_row_is_let_go_when_it_is_settled():
    held = HeldColumn.take(list(range(1000)), slots(*range(500)))
    steps = held.settle()
    next(steps)
    assert all_of(held) == list(range(500)), "it can be read meanwhile"
    at_once(steps)
    assert len(held._values) == 500


def test_a_step_settles_so_many_rows(monkeypatch):
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 10)
    held = HeldColumn.take(list(range(100)), slots(*range(0, 100, 2)))
    assert sum(1 for _ in held.settle()) == 5
    assert sum(1 for _ in held.settle()) == 0
