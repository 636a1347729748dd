"""Truths: of which records a condition is true, found out a few at a time.

For what cannot be asked of all records in one step: a condition that calculates, or one that no
column can answer, for which each record's body has to be read. A query makes one for itself, has it
told which records it wants to know of, and has those asked in steps. A record that changes
meanwhile is forgotten, so that what is known is always true.
"""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from sow.indexes.pending_rows import CHUNK_ROWS

Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ConditionCache:
    """By slot, whether a condition is true; `read` says it of some slots.

    `cost` is what a slot takes, as a multiple of reading one field of a body: so many fewer slots,
    or more, are asked at a time.
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
        """The next question, after `refresh`, will be of these records."""
        more = int(slots.max(initial=-1)) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
            self._true = np.concatenate([self._true, np.zeros(more, np.bool_)])
        self._wanted = slots[~self._known[slots]]

    @property
    def dirty_count(self) -> int:
        """What the wanted records that wait to be asked take, in notes."""
        return ceil(len(self._wanted) * self._cost)

    def refresh(self, limit: int | None = None) -> int:
        """Ask of wanted records: all, or as many as cost what reading `limit` of one field does."""
        count = len(self._wanted) if limit is None else max(1, int(limit / self._cost))
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._true[chunk] = self._read(chunk)
            self._known[chunk] = True
        return ceil(len(slots) * self._cost)

    def of(self, slots: Slots) -> Mask:
        """Which of these records, all wanted and asked, the condition is true of."""
        mask: Mask = self._true[slots]
        return mask
