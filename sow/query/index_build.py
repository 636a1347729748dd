"""Index build: what a query needs is built first, in steps, and kept up to date.

A query is answered in one short step, as of the moment of that step. It cannot wait in it for a
column that takes seconds to build; so where an index has much to read yet the run is abandoned
(`Unready`), the index is built in steps of a millisecond or so between which anything may change,
and the query runs again. Its indexes are held meanwhile, and receive every change.

Sorting a million records by a few fields takes a second, too. So the matches of such a query are
sorted in steps (`IncrementalSort`), while changes are noted. An unchanged record neither enters the
answer nor leaves it, and keeps its order relative to all other unchanged ones. The answering step
takes changed records out, and inserts those that match now by binary search.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import SharedTask, Task
from sow.core.paths import Path
from sow.expressions import Filter, Node, OrderTerm
from sow.indexes import ComputedColumn, ConditionCache, Deferred, Indexes, MemoColumn, SortedNumbers
from sow.indexes.column_cache import Judge, PerValueCache
from sow.indexes.pending_rows import parts_cost
from sow.indexes.sorting import Moved, picked, sorting
from sow.indexes.vector_filter import Columns, ReadyTests, VectorFilter, cost_of_masks
from sow.store.columns import Mask, Slots

RANKED_AT_ONCE = 65_536
"""Records whose ranks one step looks up, in a millisecond."""

Ranks = NDArray[np.float64]
Ranked = Callable[[Slots], Ranks]
"""Numbers that sort as the values of these slots do; any number for slots changed since."""
Ranking = Callable[[], Ranked]
"""The numbers as of now."""


class IncrementalSort:
    """The records in `slots`, which are in order of first publication, sorted by `rankings`.

    Each ranking is called once, and its result for some slots in each step.
    """

    def __init__(self, slots: Slots, rankings: Sequence[Ranking]) -> None:
        self._slots = slots
        self._changed = Moved(int(slots.max(initial=-1)) + 1)
        self._sorting: SharedTask[Slots] | None = SharedTask(self._sorted(rankings))

    def _sorted(self, rankings: Sequence[Ranking]) -> Task[Slots]:
        keys: list[Ranks] = []
        for ranked in [ranking() for ranking in rankings]:
            keys.append(np.empty(len(self._slots)))
            for start in range(0, len(self._slots), RANKED_AT_ONCE):
                some = slice(start, start + RANKED_AT_ONCE)
                keys[-1][some] = ranked(self._slots[some])
                yield
        by = [lambda rows, key=key: key[rows] for key in keys]
        order = yield from sorting(np.arange(len(self._slots)), by)
        return (yield from picked(self._slots, order))

    @property
    def dirty_count(self) -> int:
        """How many records are not sorted yet: all, until they are."""
        return 0 if self._sorting is None else len(self._slots)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._changed.add(np.unique(np.array(slots, np.int64)))

    def refresh(self, limit: int | None = None) -> int:
        """Run a step, or all when `limit` is None; returns how many records that counts for."""
        done = 0
        while self._sorting is not None and (limit is None or not done):
            self._sorting.step()
            if self._sorting.is_over:
                self._slots, self._sorting = self._sorting.result(), None
            done += limit or 1
        return done

    def of(self, found: Slots, rankings: Sequence[Ranking]) -> Slots:
        """The current matches, in order of first publication, sorted by `rankings` as of now."""
        if not self._changed.count:
            return self._slots
        stand = self._slots[~self._changed.among(self._slots)]
        come = found[self._changed.among(found)]
        if not len(come):
            return stand
        by = [ranking() for ranking in rankings]
        ranks = [ranked(come) for ranked in by]
        order = np.lexsort(ranks[::-1])
        come, ranks = come[order], [of_term[order] for of_term in ranks]
        return np.insert(stand, _places(stand, by, ranks), come)


def _places(stand: Slots, by: Sequence[Ranked], ranks: Sequence[Ranks]) -> Slots:
    """Where records of these `ranks` belong among those that `stand` in order."""
    low = np.zeros(len(ranks[0]), np.int64)
    high = np.full(len(low), len(stand))
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        after = _follow(stand[middle], by, [of_term[open_] for of_term in ranks])
        low[open_[after]] = middle[after] + 1
        high[open_[~after]] = middle[~after]
    return low


def _follow(slots: Slots, by: Sequence[Ranked], ranks: Sequence[Ranks]) -> Mask:
    """Which of the records of these `ranks` come after the one in the slot beside them."""
    after = np.zeros(len(slots), np.bool_)
    equal = np.arange(len(slots))
    for ranked, of_term in zip(by, ranks, strict=True):
        theirs, ours = ranked(slots[equal]), of_term[equal]
        after[equal[ours > theirs]] = True
        equal = equal[ours == theirs]
        if not len(equal):
            break
    return after


NOTES_FEW = 2_000
"""Notes that the answering step itself may work off, in two milliseconds or so."""
STEPS_SPARE = 2
"""Times the work that there was at the start: under very many updates a column never has few notes,
and the query is answered all the same."""

OPERATIONS_A_NOTE = 256
"""Operations of numpy on one record of very many that take as long as a note."""

NOTHING: Slots = np.zeros(0, np.int64)


class Unready(Exception):
    """A query needs `lacking`, which have more to read than one step allows."""

    def __init__(self, lacking: Sequence[Deferred]) -> None:
        super().__init__(f"{len(lacking)} indexes have much to read yet")
        self.lacking = lacking


class IndexBuild:
    """The indexes that one query needs; to be closed when it is answered or cancelled."""

    def __init__(self, indexes: Indexes) -> None:
        self.indexes = indexes
        self.made: dict[Path, None] = {}
        """The fields that had no column before this query."""
        self._current: dict[Path, MemoColumn] = {}
        """Columns that are up to date in this run: nothing changes in the course of one."""
        self._notes_max: dict[Deferred, int] = {}
        """Indexes needed so far, and how many notes of each the answering step may work off."""
        self._by_bodies: ConditionCache | None = None
        self._sort_keys: dict[OrderTerm, MemoColumn] = {}
        self._calculated: dict[tuple[OrderTerm, bool], ComputedColumn] = {}
        self._sort: IncrementalSort | None = None
        self._per_value: dict[tuple[MemoColumn, object], PerValueCache] = {}
        self._by_columns: dict[Node, ConditionCache] = {}

    def begin(self) -> None:
        """A run begins: anything may have changed since the last one."""
        self._current.clear()

    def close(self) -> None:
        """Release the indexes."""
        self.indexes.release(list(self._notes_max))
        self._notes_max.clear()
        self._by_columns.clear()  # which refer back to this

    def columns(self, paths: Sequence[Path]) -> dict[Path, MemoColumn]:
        """The columns of these fields, up to date; raises Unready."""
        current = self._current
        lacking = [path for path in paths if path not in current]
        if lacking:
            self.made.update({path: None for path in lacking if not self.indexes.has_memo(path)})
            columns = {path: self.indexes.memo(path) for path in lacking}
            self.need(*columns.values())
            current.update(columns)
        return {path: current[path] for path in paths}

    def sort_keys(self, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
        """Columns of sort keys for each term, for values of any type, up to date for `found`;
        raises Unready."""
        for term in terms:
            if term.path is not None and term not in self._sort_keys:
                self._sort_keys[term] = self.indexes.sort_keys(term)
        plain = {term: self._sort_keys[term] for term in terms if term.path is not None}
        self.need(*plain.values())
        calculated = self._wanted(terms, found, as_keys=True)
        return [calculated[term] if term.path is None else plain[term] for term in terms]

    def sorted_by(self, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
        """The columns of the terms of an order, up to date for `found`; raises Unready."""
        plain = self.columns([term.path for term in terms if term.path is not None])
        if len(plain) == len(terms):
            return list(plain.values())
        calculated = self._wanted(terms, found)
        return [calculated[term] if term.path is None else plain[term.path] for term in terms]

    def _wanted(
        self, terms: Sequence[OrderTerm], found: Slots, as_keys: bool = False
    ) -> dict[OrderTerm, ComputedColumn]:
        """The columns of calculated terms."""
        columns: dict[OrderTerm, ComputedColumn] = {}
        for term in terms:
            if term.path is None:
                column = self._calculated.get((term, as_keys))
                if column is None:
                    column = self.indexes.computed_column(term, as_keys)
                    self._calculated[term, as_keys] = column
                column.want(found)
                columns[term] = column
        # The budget of the answering step is shared by all of them.
        self.need(*columns.values(), notes=NOTES_FEW // (len(columns) or 1))
        return columns

    def judged(self, column: MemoColumn, test: tuple[Node, bool], judge: Judge, cost: int) -> Mask:
        """By code, which texts of a column pass a test; raises Unready."""
        # Kept here too: a column forgets the tests of a query that has very many.
        cached = self._per_value.get((column, test))
        if cached is None:
            cached = self._per_value[column, test] = column.per_value_cache(test, judge, cost)
        self.need(cached)
        return cached.of_all()

    def holding(self, term: Node, columns: Columns, slots: Slots) -> Mask:
        """Which of these records a term certainly holds for, by `columns`, which are up to date;
        raises Unready."""
        # The texts first: no record is evaluated before they are known.
        VectorFilter(columns, NOTHING, 0, self.judged).where(term)
        cached = self._by_columns.get(term)
        if cached is None:
            cached = self._by_columns[term] = self._evaluating(term, columns)
        cached.want(slots)
        self.need(cached)
        return cached.of(slots)

    def _evaluating(self, term: Node, columns: Columns) -> ConditionCache:
        """Evaluates a term by its columns, in steps between which records change."""
        tests = ReadyTests()

        known: dict[tuple[int, int, bool], PerValueCache] = {}

        def judged(column: MemoColumn, test: tuple[Node, bool], *_: object) -> Mask:
            node, wanted = test
            at = id(column), id(node), wanted
            if at not in known:
                known[at] = self._per_value[column, test]
            return known[at].of_all()

        def read(slots: Slots) -> Mask:
            for column in columns.values():
                column.refresh()
            return VectorFilter(columns, slots, len(slots), judged, tests).where(term)

        return ConditionCache(read, cost_of_masks(term, columns) / OPERATIONS_A_NOTE)

    def in_order(self, column: MemoColumn) -> SortedNumbers:
        """The order of a column's numbers, ready for use; raises Unready."""
        order = column.in_order()
        if not order.serves:
            self.need(order)
        return order

    def passing(self, condition: Filter, slots: Slots) -> Mask:
        """Which of these records match the query's filter, by their bodies; raises Unready."""
        cost = 1 + parts_cost(condition.expression)
        if self._by_bodies is None and len(slots) * cost <= NOTES_FEW:
            return self.indexes.passing(condition, slots)
        if self._by_bodies is None:
            self._by_bodies = self.indexes.condition_cache(condition)
        self._by_bodies.want(slots)
        self.need(self._by_bodies)
        return self._by_bodies.of(slots)

    def sorted_rows(self, found: Slots, rankings: Sequence[Ranking]) -> Slots:
        """The matches sorted by rankings as of now, the last by first publication; raises
        Unready."""
        found = self.indexes.table.ordered(found)
        if self._sort is None:
            self._sort = IncrementalSort(found, rankings[:-1])
        self.need(self._sort)
        return self._sort.of(found, rankings)

    def need(self, *wanted: Deferred, notes: int | None = None) -> None:
        """Bring these up to date; raises Unready if one has more than `notes` notes, too many for
        one step."""
        for index in wanted:
            if index not in self._notes_max:
                self._notes_max[index] = max(1, NOTES_FEW if notes is None else notes)
                self.indexes.hold(index)
        lacking = [index for index in wanted if index.dirty_count > self._notes_max[index]]
        if lacking:
            raise Unready(lacking)
        for index in wanted:
            index.refresh()

    def steps(self, lacking: Sequence[Deferred]) -> Iterator[None]:
        """Build what is lacking, in steps between which anything may change."""
        notes = self.indexes.step_notes
        for index in lacking:
            spare = STEPS_SPARE * (index.dirty_count + notes)
            while spare > 0 and index.dirty_count > self._notes_max[index]:
                spare -= max(1, index.refresh(notes))
                yield
            self._notes_max[index] *= 2
