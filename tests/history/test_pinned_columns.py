"""What a column held stays what it was, however many rows of it are wanted."""

import numpy as np
import pytest

from sow.core.cooperative import run_to_completion
from sow.history import pinned_columns as module
from sow.history.pinned_columns import PinnedColumn
from sow.store.columns import CopyOnWrite


def slots(*found):
    return np.array(found, np.int64)


def all_of(held):
    return held.part(0, len(held))


class Column:
    """A column that tells its holds what is replaced."""

    def __init__(self, values):
        self.values, self.holds = list(values), CopyOnWrite()

    def put(self, slot, value):
        self.holds.save([slot], [self.values[slot]])
        self.values[slot] = value

    def take(self, wanted):
        return PinnedColumn.take(self.values, wanted, self.holds.take)


@pytest.mark.parametrize("few_rows", [0, 10], ids=["held", "picked"])
@pytest.mark.parametrize("wanted", [(), (3,), (3, 0, 1), (0, 1, 2, 3), (3, 2, 1, 0)])
def test_rows_are_as_they_were_before_and_after_they_are_settled(monkeypatch, few_rows, wanted):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", few_rows)
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 2)
    column = Column("abcd")
    held = column.take(slots(*wanted))
    was = ["abcd"[slot] for slot in wanted]
    backwards = np.arange(len(wanted))[::-1]

    def check():
        assert all_of(held) == was
        assert all_of(held.at(backwards)) == was[::-1]
        more = held.and_more(["e"]).and_more(["f"])
        assert all_of(more) == [*was, "e", "f"]
        assert all_of(more.at(np.arange(len(more))[::-1])) == ["f", "e", *was[::-1]]
        run_to_completion(more.settle())
        assert all_of(more) == [*was, "e", "f"]

    check()
    for slot, value in enumerate("wxyz"):
        column.put(slot, value)
        column.put(slot, value.upper())
        check()
    for step, _ in enumerate(held.settle()):
        column.put(0, str(step))
        check()
    column.put(3, "last")
    check()


def test_a_column_is_sent_no_more_when_it_is_settled_or_gone(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    column = Column("ab")
    held = [column.take(slots(0, 1)), column.take(slots(1))]
    assert column.holds.save([0], ["a"])
    run_to_completion(held[0].settle())
    assert column.holds.save([0], ["a"])
    held.pop()
    assert not column.holds.save([0], ["a"])


def test_what_is_in_no_row_is_let_go_when_it_is_settled(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    held = Column(range(1000)).take(slots(*range(500)))
    steps = held.settle()
    next(steps)
    assert all_of(held) == list(range(500)), "it can be read meanwhile"
    run_to_completion(steps)
    assert len(held._values) == 500


def test_a_step_settles_so_many_rows(monkeypatch):
    monkeypatch.setattr(module, "PICKED_ROWS_MAX", 0)
    monkeypatch.setattr(module, "SETTLED_AT_ONCE", 10)
    held = Column(range(100)).take(slots(*range(0, 100, 2)))
    assert sum(1 for _ in held.settle()) == 5
    assert sum(1 for _ in held.settle()) == 0
