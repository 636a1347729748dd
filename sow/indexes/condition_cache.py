"""Condition cache: for which records a condition is true, evaluated a few at a time.

For conditions that cannot be evaluated for all records in one step: they calculate, or no column
can answer them, and each record's body has to be read. A query makes one for itself, sets the
records it wants to know of, and evaluates them in steps. A record that changes meanwhile is
forgotten, so that cached results are always true.
"""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from sow.indexes.pending_rows import CHUNK_ROWS

Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ConditionCache:
    """By slot, whether a condition is true; `read` evaluates it for some slots.

    `cost` is the cost of a slot, as a multiple of reading one field of a body: it scales how many
    slots are evaluated at a time.
    """

    def __init__(self, read: Callable[[Slots], Mask], cost: float = 1) -> None:
        self._read = read
        self._cost = cost
        self._known = np.zeros(0, np.bool_)
        self._true = np.zeros(0, np.bool_)
        self._wanted = np.zeros(0, np.int64)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._known[[slot for slot in slots if slot < len(self._known)]] = False

    def want(self, slots: Slots) -> None:
        """The records of the next `of`, after `refresh`."""
        more = int(slots.max(initial=-1)) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
            self._true = np.concatenate([self._true, np.zeros(more, np.bool_)])
        self._wanted = slots[~self._known[slots]]

    @property
    def dirty_count(self) -> int:
        """The cost of the wanted records that are not evaluated yet, in notes."""
        return ceil(len(self._wanted) * self._cost)

    def refresh(self, limit: int | None = None) -> int:
        """Evaluate wanted records: all, or as many as cost what `limit` notes do."""
        count = len(self._wanted) if limit is None else max(1, int(limit / self._cost))
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._true[chunk] = self._read(chunk)
            self._known[chunk] = True
        return ceil(len(slots) * self._cost)

    def of(self, slots: Slots) -> Mask:
        """For which of these records, all wanted and evaluated, the condition is true."""
        mask: Mask = self._true[slots]
        return mask
