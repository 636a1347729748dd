"""Vectorised filter: which records pass a test, from memo columns, for many records at once.

A condition is evaluated for where it is *true*, or, below a NOT, where it is *false*; unknown is
neither. AND, OR and NOT pass this down to tests of a single field, each answered from its column:
numbers by numpy, texts once per distinct text by the compiled test itself. A test that calculates,
or reads several fields, is evaluated by numpy where all of them are numbers
(`vector_arithmetic`), and for other records by the compiled test over the values of the columns.
Where a column cannot decide, the result is `unsure`; those records, unless the answer no longer
depends on them, are decided by their bodies. So the answer is always that of the filter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import Cache
from sow.core.paths import Path, Scalar
from sow.expressions import (
    Affix,
    And,
    Between,
    Compare,
    Filter,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    as_number,
    compile_term,
    paths_in,
)
from sow.expressions.values import COMPARISONS
from sow.indexes.column_cache import ABSENT, NULL, NUMBER, OTHER, Judge, MemoColumn
from sow.indexes.equal_values import number_forms
from sow.indexes.sorting import Interval
from sow.indexes.vector_arithmetic import Calculation, can_calculate, cost_of
from sow.store.columns import Mask, Slots

Numbers = NDArray[np.float64]
Columns = Mapping[Path, MemoColumn]


class Unanswerable(Exception):
    """A column cannot answer this test for its numbers."""


Judged = Callable[[MemoColumn, tuple[Node, bool], Judge, int], Mask]


def judged_at_once(column: MemoColumn, test: tuple[Node, bool], judge: Judge, cost: int) -> Mask:
    """By code, which texts of a column pass a test."""
    return column.per_value_cache(test, judge, cost).of_all()


def _of_each(matches: Callable[..., list[bool]], texts: list[str]) -> list[bool]:
    return matches([texts], len(texts))


class ReadyTests:
    """The tests of one condition, each made ready once.

    A test is identified by `id`, not by its contents: comparing two takes longer than running them.
    """

    def __init__(self) -> None:
        self._filters: dict[tuple[int, bool], Filter] = {}
        self._calculations: dict[int, Calculation | None] = {}

    def filter(self, test: Node, wanted: bool) -> Filter:
        """A filter that is true where the outcome of `test` is `wanted`."""
        found = self._filters.get((id(test), wanted))
        if found is None:
            found = self._filters[id(test), wanted] = compiled(test, wanted)
        return found

    def calculation(self, test: Node) -> Calculation | None:
        """How numpy works a test out; None if it does not."""
        if id(test) not in self._calculations:
            self._calculations[id(test)] = Calculation(test) if can_calculate(test) else None
        return self._calculations[id(test)]


class VectorFilter:
    """Answers for `slots`, or for all `size` slots when None, and keeps its doubts.

    `columns` has one, up to date, for each path of the conditions. `judged` returns which texts of
    a column pass a test, or raises. `tests` are those of a condition that is evaluated for some
    records after others: then only values that a column does not have are in doubt.
    """

    def __init__(
        self,
        columns: Columns,
        slots: Slots | None,
        size: int,
        judged: Judged = judged_at_once,
        tests: ReadyTests | None = None,
    ) -> None:
        self._columns = columns
        self._size = size
        self._slots = slots
        self._judged = judged
        self._tests = tests
        self.unsure: Mask | None = None
        """Where some test could not be answered; it was then taken as unknown."""

    def where(self, node: Node, wanted: bool = True) -> Mask:
        """Where the outcome of `node` is certainly `wanted`."""
        match node:
            case Not(operand):
                return self.where(operand, not wanted)
            case And(operands) | Or(operands):
                masks = [self.where(operand, wanted) for operand in operands]
                every = isinstance(node, And) is wanted
                join = np.logical_and if every else np.logical_or
                mask: Mask = join.reduce(masks)
                return mask
        if paths := paths_in(node):
            if is_plain(node):
                return self._test(node, self._columns[paths[0]], wanted)
            return self._test_of_values(node, paths, wanted)
        return self._constant(self._filter(node, wanted).matches([], 1)[0])

    def _constant(self, outcome: bool) -> Mask:
        """The same outcome for every record there is."""
        kinds = self._at(next(iter(self._columns.values())).kinds)
        mask: Mask = (kinds != ABSENT) & outcome
        return mask

    def _test(self, node: Node, column: MemoColumn, wanted: bool) -> Mask:
        if column.counts[OTHER]:
            self._doubt(self._at(column.kinds) == OTHER)
        if isinstance(node, IsNull):
            kinds = self._at(column.kinds)
            null: Mask = kinds == NULL
            return null if wanted else (kinds > NULL) & (kinds != OTHER)
        mask = self._of_numbers(node, column, wanted)
        if column.texts:
            mask |= self._of_texts(node, column, wanted)
        return mask

    def _of_numbers(self, node: Node, column: MemoColumn, wanted: bool) -> Mask:
        numbers = self._at(column.numbers)
        try:
            return number_mask(node, numbers, wanted)
        except Unanswerable:
            are_numbers: Mask = self._at(column.kinds) == NUMBER
            if self._tests is not None:
                return self._of_values(node, [column], wanted, are_numbers)
            self._doubt(are_numbers)
            return np.zeros(len(numbers), np.bool_)

    def _of_texts(self, node: Node, column: MemoColumn, wanted: bool) -> Mask:
        codes = self._at(column.codes)
        if wanted and (text := _plain_text(node)) is not None:
            code = column.text_code(text)
            same: Mask = codes == (len(column.texts) if code is None else code)
            return same
        condition = self._filter(node, wanted)
        matches, cost = condition.matches, condition.search_cost
        judge = partial(_of_each, matches)
        passing = self._judged(column, (node, wanted), judge, cost)
        # The code of what is no text is -1.
        mask: Mask = passing[codes] & (codes >= 0)
        return mask

    def _test_of_values(self, node: Node, paths: Sequence[Path], wanted: bool) -> Mask:
        """A test of several fields, or of what is calculated."""
        columns = [self._columns[path] for path in paths]
        slots = np.arange(self._size) if self._slots is None else self._slots
        left: Mask = columns[0].kinds[slots] != ABSENT
        for column in columns:
            if column.counts[OTHER]:
                left &= column.kinds[slots] != OTHER
                self._doubt(column.kinds[slots] == OTHER)
        passing = np.zeros(len(slots), np.bool_)
        tests = self._tests or ReadyTests()
        if (calculation := tests.calculation(node)) is not None:
            true, false, unsure = calculation.outcome(self._columns, slots)
            passing = (true if wanted else false) & left
            left &= unsure
        if len(columns) == 1:
            left = self._of_single(node, columns[0], wanted, left, passing)
        return passing | self._of_values(node, columns, wanted, left)

    def _of_values(
        self, node: Node, columns: Sequence[MemoColumn], wanted: bool, where: Mask
    ) -> Mask:
        """A test of these records, by the values that the columns hold."""
        passing = np.zeros(len(where), np.bool_)
        if len(rows := np.flatnonzero(where)):
            slots = rows if self._slots is None else self._slots[rows]
            values = [column.values(slots) for column in columns]
            passing[rows] = self._filter(node, wanted).matches(values, len(rows))
        return passing

    def _filter(self, node: Node, wanted: bool) -> Filter:
        return compiled(node, wanted) if self._tests is None else self._tests.filter(node, wanted)

    def _of_single(
        self, node: Node, column: MemoColumn, wanted: bool, left: Mask, passing: Mask
    ) -> Mask:
        """Add to `passing` where a test of one field holds that has a text, or none; returns what
        is left to evaluate."""
        if column.texts:
            is_text = left & (self._at(column.codes) >= 0)
            passing |= is_text & self._of_texts(node, column, wanted)
            left = left & ~is_text
        nulls: Mask = left & (self._at(column.kinds) == NULL)
        if nulls.any():
            passing |= nulls & self._filter(node, wanted).matches([[None]], 1)[0]
        rest: Mask = left & ~nulls
        return rest

    def _at(self, values: NDArray[Any]) -> NDArray[Any]:
        return values[: self._size] if self._slots is None else values[self._slots]

    def _doubt(self, where: Mask) -> None:
        self.unsure = where if self.unsure is None else self.unsure | where


def tests(node: Node) -> Iterator[Node]:
    """The tests that AND, OR and NOT join to a condition; not recursive."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, And | Or | Not):
            waiting.extend(current.children)
        else:
            yield current


TESTS_MAX = 256
"""Tests of a condition that masks are made of: each takes some twenty microseconds for however few
records, so with more of them it takes less to test each record by its body."""


def is_columnar(node: Node) -> bool:
    """Whether masks can be made of a condition: it reads fields, and depends on nothing else."""
    contents = node.contents
    return bool(contents.paths) and not contents.traits and contents.tests <= TESTS_MAX


def is_plain(test: Node) -> bool:
    """Whether a test is of one field as it is: what is calculated of a field may have a value where
    the field has none."""
    if isinstance(test, IsNan) or len(test.contents.paths) > 1 or _may_hold_of_none(test):
        return False
    return _PLAIN.issuperset([part.__class__ for part in test.children])


_PLAIN = frozenset({Identifier, Literal})
"""Parts of a plain test."""


ROW_COST = 64
"""The cost to test a record by its values, in operations of numpy on one of very many."""
PART_COST = 16
"""The same for each part of the test."""


def effort_of(node: Node) -> tuple[bool, int]:
    """Whether a condition takes some milliseconds for a million records, since it has few tests and
    these are plain; and how many of its tests are evaluated again for each few records."""
    plain = [is_plain(test) for test in tests(node)]
    dear_tests = plain.count(False)
    return not dear_tests and len(plain) <= QUICK_TESTS_MAX, dear_tests


QUICK_TESTS_MAX = 8
"""Tests of a column for all records in one step: a millisecond each for a million."""


def cost_of_masks(node: Node, columns: Columns) -> int:
    """The cost to test a record, in operations of numpy on one of very many."""
    return sum(_cost(test, [columns[path] for path in paths_in(test)]) for test in tests(node))


def _cost(test: Node, columns: Sequence[MemoColumn]) -> int:
    if not columns:
        return 1  # of no field: one answer for all records
    if is_plain(test) and not (isinstance(test, Like | Affix) and columns[0].counts[NUMBER]):
        return 2
    if can_calculate(test) and all(column.is_numeric for column in columns):
        return cost_of(test)
    return ROW_COST + PART_COST * test.contents.parts


def _may_hold_of_none(test: Node) -> bool:
    """Whether a test may be true or false where its field has no value: it tests a literal, and
    ``2 IN (2, /a)`` is true whatever the field is."""
    match test:
        case In(Literal()) | Between(Literal()) | Affix(Literal()):
            return bool(paths_in(test))
    return False


COMPILED_MAX = 50_000
"""Parts of nodes whose filters are kept, some 100 bytes each, with `FILTER_PARTS`."""
FILTER_PARTS = 16
"""What a filter takes, however few parts it has."""
_compiled: Cache[tuple[Node, bool], Filter] = Cache(COMPILED_MAX)


def compiled(node: Node, wanted: bool) -> Filter:
    """A filter that is true where the outcome of `node` is `wanted`."""
    found = _compiled.get((node, wanted))
    if found is None:
        found = compile_term(node if wanted else Not(node))
        _compiled.keep((node, wanted), found, FILTER_PARTS + node.contents.parts)
    return found


def _plain_text(node: Node) -> str | None:
    """The literal of ``path = 'text'``, which only that very text equals among texts."""
    match node:
        case Compare("=", Identifier(), Literal(str(text))):
            return text
    return None


def number_mask(node: Node, numbers: Numbers, wanted: bool) -> Mask:
    """Where a test of one field is `wanted`, for numbers; NaN stands for none and is nowhere."""
    match node:
        case Compare(symbol, Identifier(), Literal(value)):
            return _compare(symbol, numbers, value, wanted)
        case Compare(symbol, Literal(value), Identifier()):
            return _compare(COMPARISONS[symbol].mirrored, numbers, value, wanted)
        case Between(Identifier(), Literal(low), Literal(high)):
            above = _compare(">=", numbers, low, wanted)
            below = _compare("<=", numbers, high, wanted)
            return above & below if wanted else above | below
        case In(Identifier(), members) if all(isinstance(member, Literal) for member in members):
            return _member(numbers, [m.value for m in members if isinstance(m, Literal)], wanted)
        case Like() | Affix() | Compare() | Between() | In():
            raise Unanswerable
    raise AssertionError(f"{node} is no test")


def _compare(symbol: str, numbers: Numbers, literal: Scalar, wanted: bool) -> Mask:
    if literal is None or literal == "":
        return np.zeros(len(numbers), np.bool_)
    comparison = COMPARISONS[symbol]
    if not wanted:
        comparison = COMPARISONS[comparison.opposite]
    number = as_number(literal) if isinstance(literal, str) else literal
    if number is None:
        # A text that is no number ranks above every number.
        return _is_number(numbers) & comparison.of_lesser
    mask: Mask = comparison.holds(numbers, _double(number))
    return mask


def interval_of(node: Node) -> tuple[Path, Interval] | None:
    """The field that a test restricts to an interval, if among numbers it does no more than that.

    So it does for none but numbers: texts and lists are to be judged otherwise.
    """
    try:
        match node:
            case Compare(symbol, Identifier(path), Literal(value)):
                return _restricted(path, symbol, value)
            case Compare(symbol, Literal(value), Identifier(path)):
                return _restricted(path, COMPARISONS[symbol].mirrored, value)
            case Between(Identifier(path), Literal(low), Literal(high)):
                above, below = _restricted(path, ">=", low), _restricted(path, "<=", high)
                return (path, above[1] & below[1]) if above and below else None
    except Unanswerable:
        pass
    return None


def _restricted(path: Path, symbol: str, literal: Scalar) -> tuple[Path, Interval] | None:
    number = as_number(literal) if isinstance(literal, str) else literal
    if number is None:
        return None
    bound = _double(number)
    match symbol:
        case "=":
            return path, Interval(bound, bound)
        case ">" | ">=":
            return path, Interval(low=bound, without_low=symbol == ">")
        case "<" | "<=":
            return path, Interval(high=bound, without_high=symbol == "<")
    return None


def _member(numbers: Numbers, literals: list[Scalar], wanted: bool) -> Mask:
    """IN: a NULL among the members leaves what is not found unknown."""
    values = [value for value in literals if value is not None and value != ""]
    read = [as_number(value) if isinstance(value, str) else value for value in values]
    found = np.isin(numbers, [_double(number) for number in read if number is not None])
    if wanted:
        return found
    known = len(values) == len(literals)
    return _is_number(numbers) & ~found & known


def _is_number(numbers: Numbers) -> Mask:
    mask: Mask = ~np.isnan(numbers)
    return mask


def _double(number: int | float) -> float:
    """The number as the double that equals it; Unanswerable if there is none."""
    doubles = [form for form in number_forms(number) if isinstance(form, float)]
    if not doubles:
        raise Unanswerable
    return doubles[0]
