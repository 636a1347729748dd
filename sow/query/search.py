"""Search: from a filter to the slots of the records that match it.

Each term of the filter's topmost AND narrows down what the terms before it have left. First the
most selective access path (`access_paths`): SowKeys, key fields, or the hash index or interval of
numbers with the fewest candidates. Then memo columns, for many records at once. What no index can
decide the filter itself reads from the bodies of the remaining records; so indexes never change an
answer. Where an index has to be built first, the run ends with Unready, and another one starts when
it is built.
"""

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from sow.core.paths import Path
from sow.indexes import MEMO_COLUMNS_MAX
from sow.indexes.column_cache import OTHER
from sow.indexes.vector_filter import (
    Columns,
    VectorFilter,
    compiled,
)
from sow.query.access_paths import (
    AccessPath,
    Candidates,
    PlannedTerm,
    hash_access_paths,
    interval_access_paths,
    pins_of,
    terms_of,
)
from sow.query.index_build import IndexBuild
from sow.query.query import SCAN, PlanStep, Query, name_of
from sow.store.columns import Mask, Slots

TERMS_BY_COLUMNS_MAX = 32
"""Terms of an AND that columns answer: whenever an index has to be built first, all of them are
evaluated again."""
DEAR_TESTS_MAX = 32
"""Tests that cost about as much for a few records as for hundreds: with so many of them, on a few
records in each step, columns take longer than bodies do."""
FEW_ROWS = 250
"""Reading so many bodies takes a quarter of a millisecond: no reason to make a column."""
ADVISE_ROWS = 1_000
"""A smaller topic takes about a millisecond on any access path."""

NOTHING: Slots = np.zeros(0, np.int64)
_IS_QUICK = attrgetter("is_quick")


class Search:
    """One run of a query over the indexes of a topic, as far as they are `ready`."""

    def __init__(self, ready: IndexBuild, query: Query) -> None:
        self._ready = ready
        self._indexes = ready.indexes
        self._query = query
        self._left = Candidates(self._indexes.table)
        self._doubtful = NOTHING
        """Records that a column could not decide."""
        self._terms = [] if query.filter is None else [*query.filter.planned(terms_of)]
        self.read = NOTHING
        """Records whose bodies were read."""
        self.steps: list[PlanStep] = []
        self.advice = ""

    def run(self) -> Slots | None:
        """The matching records, each once, in no particular order; None: all of the topic.

        Raises Unready.
        """
        if self._query.filter is None and self._query.keys is None:
            self._step((), SCAN)
            return None
        self._by_sow_keys()
        self._by_constants()
        if self._left.listed is not None or not self._by_key_fields():
            self._by_access_paths()
            self._by_columns()
        self._by_bodies()
        if not self.steps:
            self._step((), SCAN)
        return None if self._left.are_all else self._left.slots()

    def _step(self, terms: Sequence[object], index: str) -> None:
        rows = len(self._left) + len(self._doubtful)
        self.steps.append(PlanStep(terms, index, rows))

    def _served(self, terms: Sequence[PlannedTerm], index: str) -> None:
        served = set(terms)
        self._terms = [term for term in self._terms if term not in served]
        self._step(terms, index)

    # Access paths.

    def _by_sow_keys(self) -> None:
        """By the SowKeys of the query and those of its terms."""
        requested = [] if self._query.keys is None else [self._query.keys]
        for term in list(self._terms):
            named = term.sow_keys
            if named is not None:
                requested.append(named)
                self._terms.remove(term)
        if not requested:
            return
        keys = set(requested[0]).intersection(*requested[1:])
        self._ready.need(self._indexes.sow_keys)
        found = map(self._indexes.table.find, keys)
        self._left.become(np.array([*{slot for slot in found if slot is not None}], np.int64))
        self._step((f"{len(keys)} SowKeys",), "key")

    def _by_constants(self) -> None:
        """Terms without fields hold for all records or for none."""
        for term in [one for one in self._terms if one.is_constant]:
            if not compiled(term.node, True).matches([], 1)[0]:
                self._left.become(NOTHING)
            self._served([term], SCAN)

    def _by_key_fields(self) -> bool:
        key, pins = self._indexes.key, pins_of(self._terms)
        if key is None or not all(path in pins for path in key.paths):
            return False
        literals = [pins[path].literals for path in key.paths]
        if key.needs_refresh(literals):
            self._ready.need(key)
        slots = key.find(literals)
        if slots is None:
            return False
        self._left.become(np.array(slots, np.int64))
        pinning = [pins[path] for path in key.paths]
        # A key lookup may find too much: the terms stay, and are checked by the bodies.
        self._step(pinning, name_of("hash", key.paths))
        return True

    def _by_access_paths(self) -> None:
        """The one with the fewest candidates first; others then filter these."""
        paths: list[AccessPath] = [*hash_access_paths(self._indexes.hashes, pins_of(self._terms))]
        if not paths:
            self._advise()
        if all(path.estimate() > FEW_ROWS for path in paths):
            served = {term for path in paths for term in path.terms}
            terms = [term for term in self._terms if term not in served]
            paths += interval_access_paths(self._ready, terms)
        for path in sorted(paths, key=lambda path: path.estimate()):
            if self._left.are_all and path.is_selective():
                self._left.become(path.slots())
            else:
                self._left.keep(path.among(self._left.listed))
            if len(self._left) <= FEW_ROWS:
                self._left.become(self._left.slots())
            if path.kind == "memo":
                self._advise_on_made(path.paths)
            self._served(path.terms, name_of(path.kind, path.paths))

    def _advise(self) -> None:
        pinned = [str(path) for path in pins_of(self._terms)]
        if pinned and len(self._indexes.table) >= ADVISE_ROWS:
            self.advice = f"a HashIndex on {', '.join(pinned)} would serve this"

    # Narrowing down.

    def _by_columns(self) -> None:
        # The first ones leave few records, which are checked by their bodies.
        dear = 0
        for term in sorted(self._terms, key=_IS_QUICK, reverse=True)[:TERMS_BY_COLUMNS_MAX]:
            if dear + term.dear_tests > DEAR_TESTS_MAX:
                continue
            if term.is_columnar and self._columns_pay(term):
                dear += term.dear_tests
                self._by_column(term)

    def _columns_pay(self, term: PlannedTerm) -> bool:
        """Whether to use the columns of a term, rather than read the remaining bodies."""
        paths = term.paths
        if self._left.listed is None or len(self._left) > FEW_ROWS:
            return len(paths) <= MEMO_COLUMNS_MAX
        return all(self._indexes.has_memo(path, len(self._left)) for path in paths)

    def _by_column(self, term: PlannedTerm) -> None:
        paths = term.paths
        columns = self._ready.columns(paths)
        self._advise_on_made(paths)
        true, unsure = (self._at_once if term.is_quick else self._in_steps)(term, columns)
        if unsure is not None:
            doubtful = self._left.picked(unsure & ~true)
            self._doubtful = np.concatenate([self._doubtful, doubtful])
        self._left.keep(true)
        self._served([term], ", ".join([name_of("memo", (path,)) for path in paths]))

    def _at_once(self, term: PlannedTerm, columns: Columns) -> tuple[Mask, Mask | None]:
        """Where a term holds among the candidates, and where it is unsure."""
        size = len(self._indexes.table.bodies)
        judge = VectorFilter(columns, self._left.listed, size, self._ready.judged)
        return judge.where(term.node), judge.unsure

    def _in_steps(self, term: PlannedTerm, columns: Columns) -> tuple[Mask, Mask | None]:
        """The same for a term that is evaluated for some records in each step; raises Unready."""
        slots = self._left.slots()
        holds = self._ready.holding(term.node, columns, slots)
        unsure: Mask = np.zeros(len(slots), np.bool_)
        for column in columns.values():
            if column.counts[OTHER]:
                unsure |= column.kinds[slots] == OTHER
        if self._left.listed is not None:
            return holds, unsure
        masks = np.zeros((2, len(self._indexes.table.bodies)), np.bool_)
        masks[0, slots], masks[1, slots] = holds, unsure
        return masks[0], masks[1]

    def _advise_on_made(self, paths: tuple[Path, ...]) -> None:
        made = [str(path) for path in paths if path in self._ready.made]
        if made and not self.advice and len(self._indexes.table) >= ADVISE_ROWS:
            self.advice = f"the column of {', '.join(made)} was made just now; the next use is fast"

    def _by_bodies(self) -> None:
        """Read the undecided records: all candidates if a term is left, else the doubtful ones."""
        condition = self._query.filter
        if condition is None:
            return
        decided, undecided = NOTHING, self._doubtful
        if self._terms:
            undecided = np.concatenate([self._left.slots(), undecided])
        elif len(undecided):
            decided = self._left.slots()
        if len(undecided):
            passing = undecided[self._ready.passing(condition, undecided)]
            self._left.become(np.concatenate([decided, passing]))
            self._doubtful, self.read = NOTHING, undecided
        if self._terms:
            self._served(list(self._terms), SCAN)
