"""Readiness: what a query needs of the indexes is made first, in steps, and kept up to date.

A query is answered in one short step, as of the moment of that step. It cannot wait in the middle
of it for a column that takes seconds to make; so where it meets something that has much to read yet
it gives up (`Unready`), that is made in steps of a millisecond or so between which anything may
change, and the query begins again. What it needs is held meanwhile, and hears of every change.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.paths import Path
from sow.expressions import Filter, Node, OrderTerm
from sow.indexes import (
    ComputedColumn,
    ConditionCache,
    Deferred,
    Indexes,
    MemoColumn,
    SortedNumbers,
)
from sow.indexes.pending_rows import parts_cost
from sow.indexes.per_value_cache import Judge, PerValueCache
from sow.indexes.vector_filter import Columns, ReadyTests, VectorFilter, cost_of_masks
from sow.query.incremental_sort import IncrementalSort, Ranking

NOTES_FEW = 2_000
"""Notes that are worked off within the answering step itself, in two milliseconds or so."""
STEPS_SPARE = 2
"""Times as much work as there was when it began: under very many updates a column never has few
notes, and the query is answered all the same."""

OPERATIONS_A_NOTE = 256
"""What a note is worth of what columns are asked, in operations of numpy on one of very many."""

Slots = NDArray[np.int64]
NOTHING: Slots = np.zeros(0, np.int64)
Mask = NDArray[np.bool_]


class Unready(Exception):
    """A query needs `lacking`, which have more to read than one step allows."""

    def __init__(self, lacking: Sequence[Deferred]) -> None:
        super().__init__(f"{len(lacking)} indexes have much to read yet")
        self.lacking = lacking


class IndexBuild:
    """What one query needs of `indexes`; to be closed when it is answered or given up."""

    def __init__(self, indexes: Indexes) -> None:
        self.indexes = indexes
        self.made: dict[Path, None] = {}
        """The fields that had no column before this query."""
        self._patience: dict[Deferred, int] = {}
        """Everything needed so far, and how many notes of it the answering step takes."""
        self._truths: ConditionCache | None = None
        self._sort_keys: dict[OrderTerm, MemoColumn] = {}
        self._calculated: dict[tuple[OrderTerm, bool], ComputedColumn] = {}
        self._arrangement: IncrementalSort | None = None
        self._verdicts: dict[tuple[MemoColumn, object], PerValueCache] = {}
        self._by_columns: dict[Node, ConditionCache] = {}

    def close(self) -> None:
        """Let go of what was needed."""
        self.indexes.release(list(self._patience))
        self._patience.clear()
        self._by_columns.clear()  # which refer back to this

    def columns(self, paths: Sequence[Path]) -> dict[Path, MemoColumn]:
        """The columns of these fields, up to date; raises Unready."""
        self.made.update({path: None for path in paths if not self.indexes.has_memo(path)})
        columns = {path: self.indexes.memo(path) for path in paths}
        self.need(*columns.values())
        return columns

    def sort_keys(self, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
        """What to sort by for each term, whatever the values of what was found are, up to date;
        raises Unready."""
        for term in terms:
            if term.path is not None and term not in self._sort_keys:
                self._sort_keys[term] = self.indexes.sort_keys(term)
        plain = {term: self._sort_keys[term] for term in terms if term.path is not None}
        self.need(*plain.values())
        calculated = self._wanted(terms, found, as_keys=True)
        return [calculated[term] if term.path is None else plain[term] for term in terms]

    def sorted_by(self, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
        """The columns of the terms of an order, up to date for what was found; raises Unready."""
        plain = self.columns([term.path for term in terms if term.path is not None])
        calculated = self._wanted(terms, found)
        return [calculated[term] if term.path is None else plain[term.path] for term in terms]

    def _wanted(
        self, terms: Sequence[OrderTerm], found: Slots, as_keys: bool = False
    ) -> dict[OrderTerm, ComputedColumn]:
        """Of those terms that are calculated, the columns."""
        columns: dict[OrderTerm, ComputedColumn] = {}
        for term in terms:
            if term.path is None:
                column = self._calculated.get((term, as_keys))
                if column is None:
                    column = self.indexes.wanted(term, as_keys)
                    self._calculated[term, as_keys] = column
                column.want(found)
                columns[term] = column
        # What the answering step may take is for all of them together.
        self.need(*columns.values(), notes=NOTES_FEW // (len(columns) or 1))
        return columns

    def judged(self, column: MemoColumn, test: tuple[Node, bool], judge: Judge, cost: int) -> Mask:
        """By code, which texts of a column pass a test; raises Unready."""
        # Kept here too: a column forgets the tests of a query that has very many.
        verdicts = self._verdicts.get((column, test))
        if verdicts is None:
            verdicts = self._verdicts[column, test] = column.verdicts(test, judge, cost)
        self.need(verdicts)
        return verdicts.of_all()

    def holding(self, term: Node, columns: Columns, slots: Slots) -> Mask:
        """Which of these records a term certainly holds for, by `columns`, which are up to date;
        raises Unready."""
        # The texts first: until they are known no record is asked.
        VectorFilter(columns, NOTHING, 0, self.judged).where(term)
        truths = self._by_columns.get(term)
        if truths is None:
            truths = self._by_columns[term] = self._asking(term, columns)
        truths.want(slots)
        self.need(truths)
        return truths.of(slots)

    def _asking(self, term: Node, columns: Columns) -> ConditionCache:
        """What asks the columns of a term, in steps between which records change."""
        tests = ReadyTests()

        known: dict[tuple[int, int, bool], PerValueCache] = {}

        def judged(column: MemoColumn, test: tuple[Node, bool], *_: object) -> Mask:
            node, wanted = test
            at = id(column), id(node), wanted
            if at not in known:
                known[at] = self._verdicts[column, test]
            return known[at].of_all()

        def read(slots: Slots) -> Mask:
            for column in columns.values():
                column.refresh()
            return VectorFilter(columns, slots, len(slots), judged, tests).where(term)

        return ConditionCache(read, cost_of_masks(term, columns) / OPERATIONS_A_NOTE)

    def in_order(self, column: MemoColumn) -> SortedNumbers:
        """The order of a column's numbers, fit to be used; raises Unready."""
        order = column.in_order()
        if not order.serves:
            self.need(order)
        return order

    def passing(self, condition: Filter, slots: Slots) -> Mask:
        """Which of these records match the query's filter, by their bodies; raises Unready."""
        cost = 1 + parts_cost(condition.expression)
        if self._truths is None and len(slots) * cost <= NOTES_FEW:
            return self.indexes.passing(condition, slots)
        if self._truths is None:
            self._truths = self.indexes.truths(condition)
        self._truths.want(slots)
        self.need(self._truths)
        return self._truths.of(slots)

    def arranged(self, found: Slots, rankings: Sequence[Ranking]) -> Slots:
        """What a query found sorted by rankings as of now, the last by birth; raises Unready."""
        found = self.indexes.table.ordered(found)
        if self._arrangement is None:
            self._arrangement = IncrementalSort(found, rankings[:-1])
        self.need(self._arrangement)
        return self._arrangement.of(found, rankings)

    def need(self, *wanted: Deferred, notes: int | None = None) -> None:
        """Have these up to date; raises Unready if that takes too long for one step, more than so
        many notes of each."""
        for index in wanted:
            if index not in self._patience:
                self._patience[index] = max(1, NOTES_FEW if notes is None else notes)
                self.indexes.hold(index)
        lacking = [index for index in wanted if index.dirty_count > self._patience[index]]
        if lacking:
            raise Unready(lacking)
        for index in wanted:
            index.refresh()

    def steps(self, lacking: Sequence[Deferred]) -> Iterator[None]:
        """Make what is lacking, in steps between which anything may change."""
        notes = self.indexes.step_notes
        for index in lacking:
            spare = STEPS_SPARE * (index.dirty_count + notes)
            while spare > 0 and index.dirty_count > self._patience[index]:
                spare -= max(1, index.refresh(notes))
                yield
            self._patience[index] *= 2
