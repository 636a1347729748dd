"""Truths: of which records a condition is true, as their bodies say.

For what no column can answer, such as `/bid > /ask`: each record's body has to be read. A query
makes one for itself, has it told which records it wants to know of, and has those read a few at a
time. A record that changes meanwhile is forgotten, so that what is known is always true.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.indexes.notes import CHUNK_ROWS

Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Truths:
    """By slot, whether a condition is true; `read` says it of some slots by their bodies.

    `fields` is how many fields that reads: with more of them it gets fewer slots at a time.
    """

    def __init__(self, read: Callable[[Slots], Mask], fields: int = 1) -> None:
        self._read = read
        self._fields = max(1, fields)
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
        """How many wanted records wait to be read."""
        return len(self._wanted)

    def refresh(self, limit: int | None = None) -> int:
        """Read wanted records: all, or as many as cost what `limit` of one field do."""
        count = len(self._wanted) if limit is None else max(1, limit // self._fields)
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._true[chunk] = self._read(chunk)
            self._known[chunk] = True
        return len(slots)

    def of(self, slots: Slots) -> Mask:
        """Which of these records, all wanted and read, the condition is true of."""
        mask: Mask = self._true[slots]
        return mask
