"""Pinned columns: what some rows of a table held at one moment, by reference.

A body is never changed, only replaced, so references pin a moment. Few rows are copied at once.
Copying those of a million rows takes a tenth of a second, so many are copied afterwards, in steps;
until then the rows are read in place, except those that have changed since, which the table keeps
(`sow.store.columns`). Columns have plain values only, so the cycle collector need not look at
them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task, untracked

Value = TypeVar("Value")

Rows = NDArray[np.int64]

PICKED_ROWS_MAX = 500
"""Rows that are copied when they are pinned: a tenth of a millisecond."""
SETTLED_AT_ONCE = 5_000
"""Rows copied in one step: a millisecond, in any order."""


class PinnedColumn(Generic[Value]):
    """A pinned column of rows. `places` are their places in `values`; None: one by one.

    `before` has what was in a place and was replaced. Negative places are those of `more`, from its
    start: -1 is the first.
    """

    __slots__ = ("_before", "_more", "_places", "_values")

    def __init__(
        self,
        values: list[Value],
        places: Rows | None = None,
        before: Mapping[int, Value] | None = None,
        more: Sequence[Value] = (),
    ) -> None:
        self._values = untracked(values)
        self._places = places
        self._before: Mapping[int, Value] = {} if before is None else before
        self._more = more

    @classmethod
    def take(
        cls, column: "list[Value]", slots: Rows, hold: Callable[[], Mapping[int, Value]]
    ) -> "PinnedColumn[Value]":
        """Pin what some slots of a column hold; `hold` gives what is replaced from now on."""
        if len(slots) <= PICKED_ROWS_MAX:
            return cls([column[slot] for slot in slots.tolist()])
        return cls(column, slots, hold())

    def __len__(self) -> int:
        return len(self._values) if self._places is None else len(self._places)

    def part(self, start: int, stop: int) -> list[Value]:
        """The values of the rows from `start` up to `stop`."""
        values, before, more = self._values, self._before, self._more
        if self._places is None:
            return values[start:stop]
        places = self._places[start:stop].tolist()
        if more:
            return [
                more[-1 - place] if place < 0 else before.get(place, values[place])
                for place in places
            ]
        if before:
            return [before[place] if place in before else values[place] for place in places]
        return [values[place] for place in places]

    def at(self, rows: Rows) -> "PinnedColumn[Value]":
        """Some of the rows, of the same values."""
        places = rows if self._places is None else self._places[rows]
        return PinnedColumn(self._values, places, self._before, self._more)

    def and_more(self, values: Sequence[Value]) -> "PinnedColumn[Value]":
        """The rows, followed by others."""
        more = [*self._more, *values]
        places = np.arange(len(self._values)) if self._places is None else self._places
        added = -1 - np.arange(len(self._more), len(more))
        both = np.concatenate([places, added])
        return PinnedColumn(self._values, both, self._before, untracked(more))

    def settle(self) -> Task[None]:
        """Release what is in no row."""
        if self._places is None:
            return
        settled: list[Value] = untracked([])
        for start in range(0, len(self._places), SETTLED_AT_ONCE):
            settled += self.part(start, start + SETTLED_AT_ONCE)
            yield
        self._values, self._places = settled, None
        self._before, self._more = {}, ()
