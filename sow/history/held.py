"""Held columns: what some rows of a table held at one moment, by reference.

A body is never changed, only replaced, so who holds references holds a moment. References are
copied all together within milliseconds, while picking those of a million rows one by one takes a
tenth of a second and more. So where many rows are wanted, the whole column is copied at once, and
what is wanted is picked from the copy afterwards, in steps; only until then does it hold more than
was asked for. What is held is plain values, so the collector of cycles has nothing to do with it.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sow.steps import Steps
from sow.untracked import untracked

Value = TypeVar("Value")

Rows = NDArray[np.int64]

FEW_PART = 32
"""One in so many of a column is picked at once: picking one by one in any order costs forty times
as much as copying all."""
SETTLED_AT_ONCE = 5_000
"""Rows picked in one step: a millisecond, in whichever order they stand."""


class HeldColumn(Generic[Value]):
    """A column of rows, held still. `places` say where in `values` they stand; None: one by one."""

    __slots__ = ("_places", "_values")

    def __init__(self, values: list[Value], places: Rows | None = None) -> None:
        self._values = untracked(values)
        self._places = places

    @classmethod
    def take(cls, column: "list[Value]", slots: Rows) -> "HeldColumn[Value]":
        """Take hold of what stands in some slots of a column."""
        if len(slots) * FEW_PART < len(column):
            return cls([column[slot] for slot in slots.tolist()])
        if len(slots) == len(column) and np.array_equal(slots, np.arange(len(slots))):
            return cls(column.copy())
        return cls(column.copy(), slots)

    def __len__(self) -> int:
        return len(self._values) if self._places is None else len(self._places)

    def part(self, start: int, stop: int) -> list[Value]:
        """What stands in the rows from `start` on, up to `stop`."""
        if self._places is None:
            return self._values[start:stop]
        values = self._values
        return [values[place] for place in self._places[start:stop].tolist()]

    def at(self, rows: Rows) -> "HeldColumn[Value]":
        """Some of the rows, of the same values."""
        return HeldColumn(self._values, rows if self._places is None else self._places[rows])

    def and_more(self, values: Sequence[Value]) -> "HeldColumn[Value]":
        """The rows, and after them others."""
        more = np.arange(len(self._values), len(self._values) + len(values))
        places = np.arange(len(self._values)) if self._places is None else self._places
        both = self._values.copy()
        both += values
        return HeldColumn(both, np.concatenate([places, more]))

    def settle(self) -> Steps[None]:
        """Let go of whatever is in no row."""
        if self._places is None:
            return
        settled: list[Value] = untracked([])
        for start in range(0, len(self._places), SETTLED_AT_ONCE):
            settled += self.part(start, start + SETTLED_AT_ONCE)
            yield
        self._values, self._places = settled, None
