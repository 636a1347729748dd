"""Queries, the indexes that find their records, and their answers.

An answer has the plan by which it was found: plain data, like the query.

An access path finds the records that satisfy some of a filter's terms: a hash index those that
equal literals, a sorted column with only numbers those within an interval. The search
(`sow.query.answers`) compares their estimates; this module does not choose.

The *candidates* of a query are all records of the topic at first. While many are left they are a
mask over all slots, so that one more test costs one more numpy operation; once few are left they
are a list of their slots, and later tests look at these only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import and_
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import kept
from sow.core.humanize import counted
from sow.core.paths import Path, Scalar
from sow.errors import ClientError
from sow.expressions import Filter, Node, OrderTerm, pinned, sow_keys_in
from sow.indexes import HashIndex, MemoColumn, SortedNumbers
from sow.indexes.sorting import Interval
from sow.indexes.vector_filter import effort_of, interval_of, is_columnar
from sow.query.index_build import IndexBuild
from sow.store.columns import Mask, Slots
from sow.store.memory import Table

SCAN = "scan"
NAMES_KEPT_MAX = 256
"""Names of indexes that are kept: each answer has one, and making its text takes microseconds."""


@kept(NAMES_KEPT_MAX)
def name_of(kind: str, paths: tuple[Path, ...]) -> str:
    """What an index is called, such as ``hash(/symbol)``."""
    return f"{kind}({', '.join(map(str, paths))})"


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one topic. With both `filter` and `keys` a record must satisfy both.

    `keys` are SowKeys as text. `top_n` limits how many records are returned after the first
    `skip_n`; None is no limit. Raises ClientError for negative counts.
    """

    filter: Filter | None = None
    keys: tuple[str, ...] | None = None
    order_by: tuple[OrderTerm, ...] = ()
    top_n: int | None = None
    skip_n: int = 0

    def __post_init__(self) -> None:
        for name, count in (("top_n", self.top_n), ("skip_n", self.skip_n)):
            if count is not None and count < 0:
                raise ClientError(f"{name} is {count}; write 0 or a positive number of records")

    def at(self, now_us: int) -> "Query":
        """The query as of one moment: all records are evaluated at the same time."""
        if self.filter is None or self.filter.deterministic:
            return self
        return replace(self, filter=self.filter.at(now_us))

    @property
    def end(self) -> int | None:
        """How many records, from the first in order, the answer needs; None: all."""
        return None if self.top_n is None else self.skip_n + self.top_n


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Terms of the query, what served them, and how many records were left after them."""

    terms: Sequence[object]
    index: str
    rows: int

    @property
    def expression(self) -> str:
        """The terms as text; empty for none."""
        return " AND ".join(map(str, self.terms))


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """`slots` in their final order, of `matches` records before paging.

    `read` are the slots of the records whose bodies had to be read to decide.
    """

    slots: NDArray[np.int64]
    matches: int
    steps: tuple[PlanStep, ...]
    read: NDArray[np.int64]
    advice: str

    @property
    def index(self) -> str:
        """Which indexes served the query, such as ``hash(/symbol), memo(/px)``, or ``scan``."""
        used = dict.fromkeys(step.index for step in self.steps if step.index != SCAN)
        return ", ".join(used) or SCAN

    @property
    def kind(self) -> str:
        """The kind of the query's first index, `scan`, or `all` without conditions."""
        first = self.steps[0]
        return first.index.partition("(")[0] if first.terms else "all"

    @property
    def explain(self) -> dict[str, object]:
        """How the query was answered, as `explain=true` shows it."""
        terms = [
            {"expression": step.expression, "index": step.index, "rows": step.rows}
            for step in self.steps
        ]
        touched = self._touched
        return {
            "terms": terms,
            "rows_touched": touched,
            "advice": self.advice,
            "why": [*self._sentences(touched)],
        }

    def _sentences(self, touched: int) -> Iterator[str]:
        """The same as sentences."""
        for at, step in enumerate(self.steps):
            left = counted(step.rows, "record")
            if not step.expression:
                yield f"all records match: {left}"
            elif step.index == SCAN and at == 0:
                yield f"{step.expression}: no index served it: all records were read; {left} left"
            elif step.index == SCAN:
                yield f"{step.expression}: what was left of the records was read; {left} left"
            else:
                yield f"{step.expression}: served by {step.index}; {left} left"
        yield f"read to decide or to answer: {counted(touched, 'record')}"
        if self.advice:
            yield self.advice

    @property
    def explain_guarded(self) -> dict[str, object]:
        """The same for a client that may see some records only: without counts of others that were
        read or ruled out."""
        return {
            "terms": [{"expression": "", "index": self.index, "rows": self.matches}],
            "rows_touched": self.matches,
            "advice": "",
            "why": [
                f"served by {self.index}; {counted(self.matches, 'record')} left of those that "
                "you may see"
            ],
        }

    @property
    def _touched(self) -> int:
        """How many records were read to decide or to answer, each once."""
        last = max(found.max(initial=-1) for found in (self.read, self.slots))
        last = max(found.max(initial=-1) for found in (self.read, self.slots))
        touched = np.zeros(1 + last, np.bool_)
        touched[self.read] = touched[self.slots] = True
        return int(np.count_nonzero(touched))


# Up to this share of the slots, a list is faster than a mask.
LISTED_SHARE_MAX = 1 / 16


class Candidates:
    """Records of `table`. A mask handed in is over `listed`, or over all slots if that is None."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._mask: Mask | None = None
        self.listed: Slots | None = None

    def __len__(self) -> int:
        if self.listed is not None:
            return len(self.listed)
        return len(self._table) if self._mask is None else int(np.count_nonzero(self._mask))

    @property
    def are_all(self) -> bool:
        """Whether nothing has been ruled out yet."""
        return self.listed is None and self._mask is None

    def become(self, slots: Slots) -> None:
        """Only these are candidates now."""
        self.listed, self._mask = slots, None

    def keep(self, mask: Mask) -> None:
        """Rule out what the mask leaves out."""
        if self.listed is not None:
            self.listed = self.listed[mask]
            return
        self._mask = mask = mask if self._mask is None else self._mask & mask
        if np.count_nonzero(mask) <= len(mask) * LISTED_SHARE_MAX:
            self.become(np.flatnonzero(mask))

    def picked(self, mask: Mask) -> Slots:
        """The slots of those in the mask, which stay candidates."""
        if self.listed is not None:
            return self.listed[mask]
        return np.flatnonzero(mask if self._mask is None else mask & self._mask)

    def slots(self) -> Slots:
        """Their slots, in no particular order."""
        if self.listed is not None:
            return self.listed
        return self._table.live() if self._mask is None else np.flatnonzero(self._mask)


SORTED_ROWS_MIN = 10_000
"""A smaller topic's numbers are scanned in some microseconds, without an order."""


class PlannedTerm:
    """A condition that must hold, and what a search reads from it: known with the filter, however
    many queries have it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.paths = node.contents.paths
        self.is_constant = not self.paths and not node.contents.traits
        """It holds for all records or for none."""
        self.sow_keys = sow_keys_in(node)
        self.pinned: Path | None = None
        """The field that it pins to literals."""
        self.literals: Sequence[Scalar] = ()
        if equality := pinned(node):
            self.pinned, self.literals = equality
        self.is_columnar = is_columnar(node)
        self.is_quick, self.dear_tests = effort_of(node)

    @cached_property
    def interval(self) -> tuple[Path, Interval] | None:
        """The field that it restricts to an interval."""
        return interval_of(self.node)

    def __str__(self) -> str:
        return str(self.node)


def terms_of(condition: Filter) -> tuple[PlannedTerm, ...]:
    """The terms of a filter that must all hold, each once."""
    return tuple(map(PlannedTerm, dict.fromkeys(condition.conjuncts)))


def pins_of(terms: Sequence[PlannedTerm]) -> dict[Path, PlannedTerm]:
    """For each field that a term pins to literals, the term that has the fewest."""
    pins: dict[Path, PlannedTerm] = {}
    for term in terms:
        path = term.pinned
        if path is not None and (path not in pins or len(term.literals) < len(pins[path].literals)):
            pins[path] = term
    return pins


class AccessPath(Protocol):
    """Finds the records that satisfy `terms`, by the fields `paths` of an index of `kind`."""

    kind: str

    @property
    def terms(self) -> tuple[PlannedTerm, ...]:
        """The terms that need no further look."""
        ...

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields of the index."""
        ...

    def estimate(self) -> int:
        """About how many records it finds."""
        ...

    def is_selective(self) -> bool:
        """Whether they are so few that `slots` is faster than `among` all."""
        ...

    def slots(self) -> Slots:
        """These records, each once, in no particular order."""
        ...

    def among(self, listed: Slots | None) -> Mask:
        """Which of these slots, or of all when None, it finds."""
        ...


class HashAccessPath:
    """By a hash index, under some of its codes."""

    kind = "hash"

    def __init__(self, terms: tuple[PlannedTerm, ...], index: HashIndex, codes: list[int]) -> None:
        self.terms = terms
        self.paths = index.paths
        self._index = index
        self._codes = codes

    def estimate(self) -> int:
        """About how many records it finds."""
        return self._index.estimate(self._codes)

    def is_selective(self) -> bool:
        """Whether they are so few that `slots` is faster than `among` all."""
        return self._index.is_selective(self._codes)

    def slots(self) -> Slots:
        """These records, each once, in no particular order."""
        return self._index.slots(self._codes)

    def among(self, listed: Slots | None) -> Mask:
        """Which of these slots, or of all when None, it finds."""
        return self._index.among(listed, self._codes)


class IntervalAccessPath:
    """By a sorted column with only numbers, of `size` used slots."""

    kind = "memo"

    def __init__(
        self,
        terms: tuple[PlannedTerm, ...],
        column: MemoColumn,
        order: SortedNumbers,
        interval: Interval,
        size: int,
    ) -> None:
        self.terms = terms
        self.paths = (column.path,)
        self._numbers = column.numbers[:size]
        self._order = order
        self._interval = interval

    def estimate(self) -> int:
        """About how many records it finds, or more."""
        return self._order.estimate(self._interval)

    def is_selective(self) -> bool:
        """Whether they are so few that `slots` is faster than `among` all."""
        return self.estimate() <= len(self._numbers) * LISTED_SHARE_MAX

    def slots(self) -> Slots:
        """These records, each once, in no particular order."""
        return self._order.slots(self._interval)

    def among(self, listed: Slots | None) -> Mask:
        """Which of these slots, or of all when None, it finds."""
        return self._interval.holds(self._numbers if listed is None else self._numbers[listed])


def hash_access_paths(
    indexes: Sequence[HashIndex], pins: Mapping[Path, PlannedTerm]
) -> Iterator[HashAccessPath]:
    """One for each index whose fields are all pinned."""
    for index in indexes:
        if all(path in pins for path in index.paths):
            codes = index.look_up([pins[path].literals for path in index.paths])
            if codes is not None:
                yield HashAccessPath(tuple([pins[path] for path in index.paths]), index, codes)


def interval_access_paths(
    ready: IndexBuild, terms: Sequence[PlannedTerm]
) -> Iterator[IntervalAccessPath]:
    """One for each numeric field that terms restrict to an interval; raises Unready.

    A topic of few records has none.
    """
    size = len(ready.indexes.table.bodies)
    restricting: dict[Path, list[tuple[PlannedTerm, Interval]]] = {}
    for term in terms if size >= SORTED_ROWS_MIN else ():
        if (found := term.interval) is not None:
            restricting.setdefault(found[0], []).append((term, found[1]))
    for path, column in ready.columns(list(restricting)).items():
        if column.is_numeric:
            served, intervals = zip(*restricting[path], strict=True)
            order = ready.in_order(column)
            yield IntervalAccessPath(served, column, order, reduce(and_, intervals), size)
