"""Sorting and paging: the last stage of a query.

Without `order_by` records stand in order of first publication, which also decides between equal
ones. Many records are sorted by their memo columns: fields that hold only numbers, or only
texts, beside NULLs, turn into numpy ranks. The first few of a whole topic stand at one end of a
column of numbers that is kept in order; for those of very many found, a bound that enough of them
lie within leaves a handful to be sorted. Everything else is sorted by values read from
the bodies, with the sort keys of `sow.expressions`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sow.expressions import OrderTerm
from sow.indexes import Indexes
from sow.indexes.memo import ABSENT, NULL, NUMBER, OTHER, TEXT, MemoColumn
from sow.query import ways
from sow.query.query import SCAN, PlanStep, Query
from sow.query.readiness import Readiness
from sow.query.search import FEW_ROWS

SAMPLE_EVERY = 64
"""One rank in so many bounds the first few of all: finding the bound costs little then, and leaves
little more than what is asked for."""

Slots = NDArray[np.int64]
Ranks = NDArray[np.float64]


def arrange(ready: Readiness, found: Slots | None, query: Query) -> tuple[Slots, PlanStep | None]:
    """The page of a query, in order, from the records found (None: all), and how it was sorted.

    Raises Unready.
    """
    indexes = ready.indexes
    page = slice(query.skip_n, query.end)
    if not query.order_by:
        table = indexes.table
        return (table.live() if found is None else table.ordered(found))[page], None
    matches = len(indexes.table) if found is None else len(found)
    if found is None:
        found = _all(ready, query)
    columns = _columns(ready, query.order_by, found)
    if columns and query.end is not None:
        found = _foremost(found, columns[0], query.order_by[0], query.end)
    found = indexes.table.ordered(found)
    order = _order_of_ranks(columns, query.order_by, found) if columns else None
    names = ", ".join([f"memo({column.path})" for column in columns])
    if order is None:
        order, names = _order_of_values(indexes, query.order_by, found), SCAN
    return found[order][page], PlanStep(f"ORDER BY {_text(query.order_by)}", names, matches)


def _all(ready: Readiness, query: Query) -> Slots:
    """All records that can be in the answer; from a column, if there will be one."""
    table, term = ready.indexes.table, query.order_by[0]
    if len(table) <= FEW_ROWS:
        return table.live()
    column = ready.columns([term.path])[term.path]
    if query.end and len(table) >= ways.SORTED_ROWS_MIN and _has_ends(column, term):
        foremost = ready.in_order(column).first(query.end, term.descending)
        if foremost is not None:
            return foremost
    return np.flatnonzero(column.kinds != ABSENT)


def _has_ends(column: MemoColumn, term: OrderTerm) -> bool:
    """Whether the order of its numbers has the first ones of all at one end."""
    return column.is_numeric and not term.text and (term.descending or not column.counts[NULL])


def _columns(ready: Readiness, terms: Sequence[OrderTerm], found: Slots) -> list[MemoColumn]:
    """The columns to sort by, or none if it costs less to read so few bodies."""
    paths, has_memo = [term.path for term in terms], ready.indexes.has_memo
    if len(found) > FEW_ROWS or all(has_memo(path, len(found)) for path in paths):
        columns = ready.columns(paths)
        return [columns[path] for path in paths]
    return []


def _foremost(found: Slots, column: MemoColumn, term: OrderTerm, end: int) -> Slots:
    """Those that can be among the first `end`, and perhaps some more."""
    ranks = _ranks(column, term, found) if 0 < end < len(found) else None
    return found if ranks is None else found[ranks <= _bound(ranks, end)]


def _bound(ranks: Ranks, count: int) -> float:
    """The smallest rank that at least `count` are no larger than."""
    sample = ranks[::SAMPLE_EVERY]
    if count < len(sample):
        # As many of the sample alone are within this, and so of all.
        ranks = ranks[ranks <= np.partition(sample, count - 1)[count - 1]]
    return float(np.partition(ranks, count - 1)[count - 1])


def _order_of_ranks(
    columns: Sequence[MemoColumn], terms: Sequence[OrderTerm], found: Slots
) -> Slots | None:
    """The places of `found` in order, stable; None if a column cannot rank them."""
    keys = []
    for column, term in zip(columns, terms, strict=True):
        ranks = _ranks(column, term, found)
        if ranks is None:
            return None
        keys.append(ranks)
    order: Slots = np.lexsort(keys[::-1])
    return order


def _ranks(column: MemoColumn, term: OrderTerm, found: Slots) -> Ranks | None:
    """Numbers that sort as the values do, or None if they are too mixed for that."""
    # Judged by all records of the topic: counting those of `found` would cost as much as sorting.
    counts = column.counts
    if counts[OTHER] or (counts[NUMBER] and (counts[TEXT] or term.text)):
        return None
    if counts[TEXT]:
        # The code -1, of what is NULL, leads to the last place.
        ranks = np.append(column.text_ranks(), -np.inf)[column.codes[found]]
    else:
        ranks = column.numbers[found]
        if counts[NULL]:
            ranks[np.isnan(ranks)] = -np.inf
    return np.negative(ranks, out=ranks) if term.descending else ranks


def _order_of_values(indexes: Indexes, terms: Sequence[OrderTerm], found: Slots) -> Slots:
    """The same by the values in the bodies, whatever they are."""
    columns = indexes.columns(tuple(dict.fromkeys(term.path for term in terms)), found)
    paths = list(dict.fromkeys(term.path for term in terms))
    order = list(range(len(found)))
    for term in reversed(terms):
        keys = [term.key(value) for value in columns[paths.index(term.path)]]
        order.sort(key=keys.__getitem__, reverse=term.descending)
    return np.array(order, np.int64)


def _text(terms: Sequence[OrderTerm]) -> str:
    return ", ".join([f"{term.path}{' DESC' * term.descending}" for term in terms])
