"""Answering: runs queries over indexes that are ready for them, and sorts and pages what they find.

One run narrows the topic down (`Search`), then sorts and pages the rest (`arrange`), all in one
step. Before that the indexes of a query are built, in steps between which anything may change, and
are held until it is answered (`sow.query.index_build`). Several queries as of one moment
(`ConsistentBatch`) are prepared one by one, then all run in one step; if so much has changed that
one is not ready any more, there is no answer yet, and its indexes are refreshed first.

Without `order_by` records are in order of first publication, which also decides between equal ones.
Many records are ranked by their memo columns, if a field has only numbers or only texts, else by
sort keys. The first few of a whole topic are at one end of a sorted column of numbers; for those of
very many matches, a bound that enough of them lie within leaves a handful to sort. Very many are
sorted in steps, few by their bodies.

The search goes from a filter to the slots of the records that match it. Each term of the filter's
topmost AND narrows down what the terms before it have left. First the most selective access path
(`sow.query.query`): SowKeys, key fields, or the hash index or interval of numbers with the fewest
candidates. Then memo columns, for many records at once. What no index can decide the filter itself
reads from the bodies of the remaining records; so indexes never change an answer. Where an index
has to be built first, the run ends with Unready, and another one starts when it is built.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from sow.core.cooperative import SharedTask, Task
from sow.core.paths import Path
from sow.expressions import OrderTerm
from sow.indexes import MEMO_COLUMNS_MAX, Indexes
from sow.indexes.column_cache import ABSENT, NULL, NUMBER, OTHER, TEXT, MemoColumn
from sow.indexes.vector_filter import Columns, VectorFilter, compiled
from sow.query import query as access
from sow.query.index_build import IndexBuild, Ranked, Ranking, Ranks, Unready
from sow.query.query import (
    SCAN,
    AccessPath,
    Candidates,
    PlannedTerm,
    PlanStep,
    Query,
    QueryAnswer,
    hash_access_paths,
    interval_access_paths,
    name_of,
    pins_of,
    terms_of,
)
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


SAMPLE_EVERY = 64
"""One rank in so many is sampled to bound the first few: finding the bound costs little then, and
leaves little more than the page."""

RANKS_AT_ONCE = 100_000
"""Ranks that are sorted in the answering step: up to 20 ms. More are arranged in steps before."""


def arrange(ready: IndexBuild, found: Slots | None, query: Query) -> tuple[Slots, PlanStep | None]:
    """The page of a query, in order, from the records found (None: all), and how it was sorted.

    Raises Unready.
    """
    indexes = ready.indexes
    page = slice(query.skip_n, query.end)
    if not query.order_by and query.end == 0:
        return np.empty(0, np.int64), None  # only the count is needed
    if not query.order_by:
        table = indexes.table
        return (table.live() if found is None else table.ordered(found))[page], None
    matches = len(indexes.table) if found is None else len(found)
    if found is None:
        found = _all(ready, query)
    columns = _columns(ready, query.order_by, found)
    if columns:
        pairs = zip(columns, query.order_by, strict=True)
        used = [_used(column, term) for column, term in pairs]
        names = ", ".join(dict.fromkeys(used))
        rankings = _rankings(ready, columns, query.order_by, found)
        found = _by_rankings(ready, rankings, found, query.end)
    else:
        names = SCAN
        found = _by_values(indexes, query.order_by, indexes.table.ordered(found))
    return found[page], PlanStep((Ordering(query.order_by),), names, matches)


def _by_rankings(
    ready: IndexBuild, rankings: Sequence[Ranking], found: Slots, end: int | None
) -> Slots:
    """The matches in order, the first `end` at least; raises Unready."""
    table = ready.indexes.table
    foremost = found if end is None or len(found) <= FEW_ROWS else _foremost(found, rankings, end)
    if _are_few(foremost, rankings):
        foremost = table.ordered(foremost)
        return foremost[np.lexsort([ranking()(foremost) for ranking in reversed(rankings)])]
    # Equal ones keep the order of first publication; reused slots have changed.
    rankings = [*rankings, lambda: lambda slots: table.order[slots].astype(np.float64)]
    return ready.sorted_rows(found, rankings)


def _are_few(slots: Slots, terms: Sequence[object]) -> bool:
    """Whether records are sorted in one step by so many terms."""
    return len(slots) * len(terms) <= RANKS_AT_ONCE


def _all(ready: IndexBuild, query: Query) -> Slots:
    """All records that can be in the answer; from a column, if there is one."""
    table, term = ready.indexes.table, query.order_by[0]
    if len(table) <= FEW_ROWS:
        return table.live()
    if term.path is None:
        return table.live()
    column = ready.columns([term.path])[term.path]
    if query.end and len(table) >= access.SORTED_ROWS_MIN and _has_ends(column, term):
        foremost = ready.in_order(column).first(query.end, term.descending)
        # A sort in steps must include records that become one of the first meanwhile.
        if foremost is not None and _are_few(foremost, query.order_by):
            return foremost
    return np.flatnonzero(column.kinds != ABSENT)


def _has_ends(column: MemoColumn, term: OrderTerm) -> bool:
    """Whether the order of its numbers has the first ones of all at one end."""
    return column.is_numeric and not term.text and (term.descending or not column.counts[NULL])


def _columns(ready: IndexBuild, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
    """The columns to sort by, or none if it costs less to read so few bodies."""
    paths, has_memo = [term.path for term in terms], ready.indexes.has_memo
    if len(found) > FEW_ROWS or all(path and has_memo(path, len(found)) for path in paths):
        return ready.sorted_by(terms, found)
    return []


def _used(column: MemoColumn, term: OrderTerm) -> str:
    """The index that has served a term."""
    if term.path is None or not _can_rank(column, term):
        return SCAN
    return name_of("memo", (term.path,))


def _foremost(found: Slots, rankings: Sequence[Ranking], end: int) -> Slots:
    """Records that can be among the first `end`, and perhaps some more."""
    if not end:
        return found[:0]
    sure: list[Slots] = []
    for ranking in rankings:
        if end >= len(found):
            break
        ranks = ranking()(found)
        bound = _bound(ranks, end)
        sure.append(found[ranks < bound])
        end -= len(sure[-1])
        # Of those at the bound, the next ranking decides.
        found = found[ranks == bound]
    return np.concatenate([*sure, found])


def _bound(ranks: Ranks, count: int) -> float:
    """The smallest rank that at least `count` are no larger than."""
    sample = ranks[::SAMPLE_EVERY]
    if count < len(sample):
        # As many of the sample alone are within this, and so of all.
        ranks = ranks[ranks <= np.partition(sample, count - 1)[count - 1]]
    return float(np.partition(ranks, count - 1)[count - 1])


def _rankings(
    ready: IndexBuild, columns: Sequence[MemoColumn], terms: Sequence[OrderTerm], found: Slots
) -> list[Ranking]:
    """How to rank the matches by each term; raises Unready."""
    pairs = list(zip(columns, terms, strict=True))
    mixed = [term for column, term in pairs if not _can_rank(column, term)]
    if mixed:
        by_keys = dict(zip(mixed, ready.sort_keys(mixed, found), strict=True))
        pairs = [(by_keys.get(term, column), term) for column, term in pairs]
    ready.need(*[column.text_order for column, _ in pairs if column.counts[TEXT]])
    return [_ranking(*pair) for pair in pairs]


def _can_rank(column: MemoColumn, term: OrderTerm) -> bool:
    """Whether numbers can sort as the values do: not where there are numbers and texts."""
    # Decided by all records of the topic: counting the matches would cost as much as sorting.
    counts = column.counts
    return not (counts[OTHER] or (counts[NUMBER] and (counts[TEXT] or term.text)))


def _ranking(column: MemoColumn, term: OrderTerm) -> Ranking:
    sign = -1.0 if term.descending else 1.0

    def of_texts() -> Ranked:
        ranks, codes = column.text_order.ranks(), column.codes
        # A changed record may have a text that is not among them; -1, of none, is the last.
        return lambda slots: sign * ranks.take(codes[slots], mode="wrap")

    def of_numbers() -> Ranked:
        numbers = column.numbers

        def ranked(slots: Slots) -> Ranks:
            ranks = numbers[slots]
            ranks[np.isnan(ranks)] = -np.inf
            return np.multiply(ranks, sign, out=ranks)

        return ranked

    return of_texts if column.counts[TEXT] else of_numbers


def _by_values(indexes: Indexes, terms: Sequence[OrderTerm], found: Slots) -> Slots:
    """The same by the values in the bodies, whatever they are."""
    paths = tuple(dict.fromkeys(path for term in terms for path in term.paths))
    columns = dict(zip(paths, indexes.columns(paths, found), strict=True))
    order = list(range(len(found)))
    for term in reversed(terms):
        fields = [columns[path] for path in term.paths]
        more = indexes.messages(found).columns(term.traits) if term.traits else []
        values = term.calculate([*fields, *more], len(found))
        keys = list(map(term.key, values))
        order.sort(key=keys.__getitem__, reverse=term.descending)
    return found[np.array(order, np.int64)]


class Ordering(NamedTuple):
    """The order of an answer, as a plan shows it; text only where the plan is shown."""

    terms: Sequence[OrderTerm]

    def __str__(self) -> str:
        written = [f"{term.value}{' DESC' * term.descending}" for term in self.terms]
        return f"ORDER BY {', '.join(written)}"


TopicQuery = tuple[Indexes, Query]


def answer(ready: IndexBuild, query: Query) -> QueryAnswer:
    """The answer as of now; raises Unready where something has to be made first."""
    ready.begin()
    search = Search(ready, query)
    found = search.run()
    if ready.indexes.hidden:
        found = _shown(ready.indexes, found)
    matches = len(ready.indexes.table) if found is None else len(found)
    page, step = arrange(ready, found, query)
    steps = (*search.steps, *([step] if step else []))
    return QueryAnswer(page, matches, steps, search.read, search.advice)


def _shown(indexes: Indexes, found: Slots | None) -> Slots:
    """Those that are not hidden."""
    found = indexes.table.live() if found is None else found
    hidden = np.fromiter(indexes.hidden, np.int64, len(indexes.hidden))
    return found[~np.isin(found, hidden)]


def answering(indexes: Indexes, query: Query) -> Task[QueryAnswer]:
    """The answer to `query` from the topic that `indexes` belong to.

    Each step takes a millisecond or so, the last one a few more. The answer is that of the moment
    at which it is returned, and its slots are valid until the next change.
    """
    ready = IndexBuild(indexes)
    try:
        while True:
            try:
                return answer(ready, query)
            except Unready as unready:
                lacking = unready.lacking
            yield from ready.steps(lacking)
    finally:
        ready.close()


def answering_current(indexes: Callable[[], Indexes], query: Query) -> Task[QueryAnswer]:
    """The same of a topic that a reload may give other indexes meanwhile: then from the start."""
    while True:
        current = indexes()
        run = SharedTask(answering(current, query))
        while indexes() is current:
            run.step()
            if run.is_over:
                return run.result()
            yield


class ConsistentBatch:
    """Holds the indexes of queries, from their first run until it is closed."""

    def __init__(self) -> None:
        self._ready: dict[TopicQuery, IndexBuild] = {}

    def make_ready(self, queries: Iterable[TopicQuery]) -> Task[None]:
        """Build the indexes of each query, in steps of a millisecond or so."""
        for topic_query in queries:
            while (lacking := self._try(topic_query)[1]) is not None:
                yield from self._ready[topic_query].steps(lacking.lacking)
            yield

    def answers(self, queries: Iterable[TopicQuery]) -> dict[TopicQuery, QueryAnswer] | None:
        """The answers as of now, with slots that are valid until the next change; None if one of
        the queries needs `make_ready` first."""
        found: dict[TopicQuery, QueryAnswer] = {}
        for topic_query in dict.fromkeys(queries):
            answered, _ = self._try(topic_query)
            if answered is None:
                return None
            found[topic_query] = answered
        return found

    def _try(self, topic_query: TopicQuery) -> tuple[QueryAnswer | None, Unready | None]:
        indexes, query = topic_query
        ready = self._ready.get(topic_query)
        if ready is None:
            ready = self._ready[topic_query] = IndexBuild(indexes)
        try:
            return answer(ready, query), None
        except Unready as lacking:
            return None, lacking

    def close(self) -> None:
        """Release the indexes."""
        for ready in self._ready.values():
            ready.close()
        self._ready.clear()
