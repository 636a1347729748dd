"""What one query computes: for which records a condition is true, and the values of expressions.

A `ConditionCache` is for conditions that cannot be evaluated for all records in one step: they
calculate, or no column can answer them, and each record's body has to be read. A query makes one
for itself, sets the records it wants to know of, and evaluates them in steps. A record that changes
meanwhile is forgotten, so that cached results are always true.

An order by ``/qty * /px`` needs a value of each record that the query has found, and of no other.
So a `ComputedColumn` reads the wanted records only, and is otherwise a memo column: numbers and
texts, or sort keys, sorted like any other. It belongs to its query and receives changes while it is
held; a record that changes is read again when it is wanted again.

A memo column also cannot rank numbers beside texts, lists, or integers that no double equals. To
order by such a field a query makes a column of `SortKeys`: each value's sort key, each distinct one
once, as a memo column has texts.
"""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np

from sow.core.paths import Path
from sow.expressions import MessageColumns, OrderTerm
from sow.indexes.column_cache import Bodies, MemoColumn
from sow.indexes.pending_rows import CHUNK_ROWS, parts_cost
from sow.messages.base import Column, Decoder
from sow.store.columns import Mask, Slots


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


class ComputedColumn(MemoColumn):
    """The values of `term` by slot, or with `as_keys` their sort keys; `decoder` reads its paths,
    and `messages` gives the other attributes of the records in some slots."""

    def __init__(
        self,
        term: OrderTerm,
        decoder: Decoder,
        bodies: Bodies,
        messages: Callable[[Slots], MessageColumns],
        as_keys: bool = False,
    ) -> None:
        super().__init__(term.path or Path(()), decoder, bodies)
        self._term = term
        self._messages = messages
        self._key = term.key if as_keys else None
        self._cost = 1 + parts_cost(term.value)
        self._known = np.zeros(0, np.bool_)
        self._wanted: Slots = np.zeros(0, np.int64)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._known[[slot for slot in slots if slot < len(self._known)]] = False

    def want(self, slots: Slots) -> None:
        """The records that the query needs next, after `refresh`."""
        self._reserve(len(self._bodies))
        more = len(self.kinds) - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
        self._wanted = slots[~self._known[slots]]

    @property
    def dirty_count(self) -> int:
        """How much there is to read of wanted records, in notes."""
        return len(self._wanted) * self._cost

    def refresh(self, limit: int | None = None) -> int:
        """Read wanted records: all, or as many as cost what `limit` notes do."""
        count = len(self._wanted) if limit is None else max(1, limit // self._cost)
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._read(chunk.tolist())
            self._known[chunk] = True
        return len(slots) * self._cost

    def _values(self, slots: Slots, bodies: list[bytes]) -> Column:
        columns = self._decoder.columns(bodies) if self._term.paths else []
        if self._term.traits:
            columns = [*columns, *self._messages(slots).columns(self._term.traits)]
        return self._term.calculate(columns, len(bodies))

    def _store(self, where: Slots, values: Column) -> None:
        if self._key is None:
            super()._store(where, values)
        else:
            self._store_texts(where, list(map(self._key, values)))


class SortKeys(MemoColumn):
    """The sort keys of `term` by slot, in the place of texts; `decoder` reads its path alone."""

    def __init__(self, term: OrderTerm, decoder: Decoder, bodies: Bodies) -> None:
        super().__init__(term.path or Path(()), decoder, bodies)
        self._key = term.key

    def _store(self, where: Slots, values: Column) -> None:
        self._store_texts(where, list(map(self._key, values)))
