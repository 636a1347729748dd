"""Pending rows: notes of the records that an index has still to read.

Most indexes are refreshed later than the records: a publish only notes the slots that it touched,
and the next query that needs the index reads those records' bodies again. A new index has
everything still to read, and is no special case: it may be read a few thousand records at a time,
while others change, since changes of records that it has read are noted like any other. This module
only keeps the notes; each index does the reading.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Protocol

import numpy as np

from sow.core.cooperative import untracked
from sow.expressions import Node

CHUNK_ROWS = 8192
"""Records read at a time: enough that the loop around them costs nothing, and few enough that their
values stay in the cache."""
PARTS_OF_A_NOTE = 4
"""Parts of an expression that take as long as reading a field of a message."""
TOUCHED_SPARE = 1024
"""Notes that may gather before duplicates are removed."""
SIFTED_FACTOR = 8
"""Notes that are sifted for each slot touched meanwhile: all are done long before as many have
gathered again, and no touch takes much longer than its own slots."""
SIFTED_MIN = 2048
"""At least so many, a tenth of a millisecond: those of a small table are sifted at once, so that a
query that waits for few notes does not wait longer."""

LOOKED_THROUGH_MAX = 10_000
"""With more notes `may_have` does not search them: that takes half a millisecond."""


def parts_cost(expression: Node) -> int:
    """The cost to evaluate an expression for a record, in notes."""
    return expression.contents.parts // PARTS_OF_A_NOTE


class Deferred(Protocol):
    """An index that is refreshed later, in any number of steps."""

    @property
    def dirty_count(self) -> int:
        """How many notes wait to be worked off; a slot may count more than once."""
        ...

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        ...

    def refresh(self, limit: int | None = None) -> int:
        """Work off up to `limit` notes, all of them when None; returns how many."""
        ...


class PendingRows:
    """The slots that are to be read: those never read yet, and those touched since they were.

    When many were touched they become the *old* ones, and every touch sifts a few times its own
    number of these: duplicates are removed.
    """

    __slots__ = ("_old", "_read_to", "_sifted", "_touched", "_touched_max")

    def __init__(self) -> None:
        self._read_to = 0
        """No slot from here on was ever read."""
        self._touched: list[int] = untracked([])
        self._touched_max = TOUCHED_SPARE
        self._old: list[int] = untracked([])
        self._sifted = bytearray()
        """By slot, whether it was found among the old ones."""

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        read_to = self._read_to
        if not read_to:
            return
        self._touched.extend([slot for slot in slots if slot < read_to])
        if not self._old and len(self._touched) > self._touched_max:
            self._old, self._touched = self._touched, untracked([])
            self._sifted = bytearray(read_to)
        if self._old:
            self._sift(max(SIFTED_MIN, SIFTED_FACTOR * len(slots)))

    def _sift(self, count: int) -> None:
        """Note `count` of the old slots again, unless they are noted already."""
        start = max(0, len(self._old) - count)
        some = self._old[start:]
        del self._old[start:]
        sifted, note = self._sifted, self._touched.append
        for slot in some:
            if not sifted[slot]:
                sifted[slot] = True
                note(slot)
        if not self._old:
            self._sifted = bytearray()
            self._touched_max = 2 * len(self._touched) + TOUCHED_SPARE

    def copy(self) -> "PendingRows":
        """The same notes, which others do not change."""
        made = copy(self)
        made._touched, made._old = untracked(self._touched[:]), untracked(self._old[:])
        made._sifted = self._sifted[:]
        return made

    def pass_over(self, size: int) -> None:
        """All slots of a table of `size` slots were read by other means."""
        self._read_to = size

    def count(self, size: int) -> int:
        """How many there are in a table of `size` slots; one may count more than once."""
        return size - self._read_to + len(self._touched) + len(self._old)

    def is_filled(self, size: int) -> bool:
        """Whether each of `size` slots was read once."""
        return self._read_to == size

    def may_have(self, start: int, stop: int) -> bool:
        """Whether a slot from `start` up to `stop` is noted; True also where there are so many
        notes that the search would take long."""
        if stop > self._read_to or len(self._touched) + len(self._old) > LOOKED_THROUGH_MAX:
            return True
        noted = np.array([*self._touched, *self._old], np.int64)
        return bool(np.any((noted >= start) & (noted < stop)))

    def slots(self, size: int) -> set[int]:
        """The slots that are noted, in a table of `size` slots."""
        return {*range(self._read_to, size), *self._touched, *self._old}

    def take(self, size: int, limit: int) -> list[int]:
        """Up to `limit` notes, which are then gone: their slots, each once; those never read first.

        Slots that were never read come in order, so that a column is filled from its start.
        """
        start = self._read_to
        if start < size:
            self._read_to = min(start + limit, size)
            return list(range(start, self._read_to))
        noted = self._touched or self._old
        taken = noted[-limit:]
        del noted[-limit:]
        return list(set(taken))

    def work_off(self, size: int, limit: int | None, read: Callable[[list[int]], None]) -> int:
        """Hand up to `limit` notes, all when None, to `read` in portions; returns how many."""
        before = self.count(size)
        least = 0 if limit is None else max(0, before - limit)
        while (left := self.count(size)) > least:
            read(self.take(size, min(CHUNK_ROWS, left - least)))
        return max(0, before - least)
