"""Calculations: what an expression gives for many records at once, where their fields are numbers.

The same answer as the expression gives value by value (`sow.expressions.values`), by numpy: of each
part of it there are the numbers of all records, which of them are integers, and which are known at
all; others are NULL. Every number is a double here. So an integer is exact up to 2**53, and what
might be larger is `unsure`, as are fields that hold no number: the caller evaluates those records
value by value. Functions for which numpy promises no exact result run number by number too,
but the rest of the expression is not.

Knows columns, and nothing of texts, bodies or queries.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sow.core.paths import Path, Scalar
from sow.expressions import (
    FUNCTIONS,
    NUMERIC_FUNCTIONS,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Identifier,
    In,
    IsNan,
    IsNull,
    Literal,
    Node,
    Not,
    Or,
    walk,
)
from sow.expressions.values import CALCULATIONS, COMPARISONS
from sow.indexes.column_cache import EXACT_WHOLE_MAX, NULL, NUMBER, MemoColumn

Slots = NDArray[np.int64]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_] | np.bool_
"""By record, or one for all."""

QUOTIENT_MAX = 2**52
"""Integers up to here have a quotient that a double's is next to, and on the same side of its whole
part."""
ROUNDED_MAX = 2**40
"""Up to here a product with a power of ten is nearer than TIE to what it should be."""
TIE = 0.001
"""So near to the middle between two numbers Python's own rounding decides."""
ROUNDED_DIGITS_MAX = 15
"""Powers of ten that are exact doubles, with room."""
ONE_BY_ONE_COST = 64
"""The cost of a function that runs number by number, in operations of numpy."""
NO, YES = np.False_, np.True_


class Result(NamedTuple):
    """What a value is, by record: a number, an integer where `whole`; NULL where not `known`.

    Where `unsure` the other three are undefined.
    """

    numbers: Numbers | np.float64
    whole: Mask
    known: Mask
    unsure: Mask


class Outcome(NamedTuple):
    """What a condition is, by record: true, false, or else unknown; where `unsure` neither."""

    true: Mask
    false: Mask
    unsure: Mask


class Calculation:
    """A test that `can_calculate`, ready to run for some records after others."""

    def __init__(self, test: Node) -> None:
        self._test = test
        # The innermost first: nothing here recurs with the depth of the expression.
        self._parts = [part for part in reversed(list(walk(test))) if part is not test]

    def outcome(self, columns: Mapping[Path, MemoColumn], slots: Slots) -> Outcome:
        """What the test is for the records in these slots."""
        found = _Results(columns, slots)
        with np.errstate(all="ignore"):
            for part in self._parts:
                found.work_out(part)
            true, false, unsure = found.outcome(self._test)
        sure = ~unsure
        return Outcome(
            *[np.broadcast_to(one, len(slots)) for one in (true & sure, false & sure, unsure)]
        )


def can_calculate(test: Node) -> bool:
    """Whether everything in a test is numbers if its fields are."""
    return all(map(_is_of_numbers, walk(test)))


def cost_of(test: Node) -> int:
    """What a test that `can_calculate` costs a record, in operations of numpy."""
    return sum(
        ONE_BY_ONE_COST if isinstance(part, Call) and part.name not in _EXACT else 1
        for part in walk(test)
    )


def _is_of_numbers(node: Node) -> bool:
    match node:
        case Literal(value):
            return value is None or (not isinstance(value, str) and _is_double(value))
        case Call(name):
            return name in _EXACT or name in NUMERIC_FUNCTIONS
        case Compare() | Between() | In() | IsNull() | IsNan() | Not() | And() | Or():
            return True
    return isinstance(node, Identifier | Arithmetic)


def _is_double(value: float) -> bool:
    try:
        return float(value) == value or value != value
    except OverflowError:
        return False


class _Results:
    """What the parts of one test are, for the records in `slots`."""

    def __init__(self, columns: Mapping[Path, MemoColumn], slots: Slots) -> None:
        self._columns = columns
        self._slots = slots
        self._values: dict[int, Result] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._fields: dict[Path, Result] = {}

    def work_out(self, node: Node) -> None:
        """Find what a node gives, whose parts are known."""
        match node:
            case Literal(value):
                self._values[id(node)] = _literal(value)
            case Identifier(path):
                if path not in self._fields:
                    self._fields[path] = _field(self._columns[path], self._slots)
                self._values[id(node)] = self._fields[path]
            case Arithmetic(operator, left, right):
                one, other = self._value(left), self._value(right)
                self._values[id(node)] = _checked(_ARITHMETIC[operator](one, other))
            case Call(name, arguments):
                self._values[id(node)] = self._called(name, arguments)
            case _:
                self._outcomes[id(node)] = self.outcome(node)

    def outcome(self, node: Node) -> Outcome:
        """What a condition is, whose parts are known."""
        match node:
            case Compare(operator, left, right):
                return _compared(operator, self._value(left), self._value(right))
            case Between(operand, low, high):
                value = self._value(operand)
                return _all_of(
                    [
                        _compared(">=", value, self._value(low)),
                        _compared("<=", value, self._value(high)),
                    ]
                )
            case In(operand, members):
                value = self._value(operand)
                return _any_of([_compared("=", value, self._value(one)) for one in members])
            case IsNull(operand):
                value = self._value(operand)
                return Outcome(~value.known, value.known, value.unsure)
            case IsNan(operand):
                value = self._value(operand)
                nan = value.known & np.isnan(value.numbers)
                return Outcome(nan, ~nan, value.unsure)
            case Not(operand):
                true, false, unsure = self._condition(operand)
                return Outcome(false, true, unsure)
            case And(operands):
                return _all_of([self._condition(one) for one in operands])
            case Or(operands):
                return _any_of([self._condition(one) for one in operands])
        raise AssertionError(f"{node} is no condition")

    def _value(self, node: Node) -> Result:
        found = self._values.get(id(node))
        if found is None:
            true, false, unsure = self._outcomes[id(node)]
            found = Result(np.where(true, 1.0, 0.0), YES, true | false, unsure)
        return found

    def _condition(self, node: Node) -> Outcome:
        found = self._outcomes.get(id(node))
        return _compared("!=", self._values[id(node)], _literal(0)) if found is None else found

    def _called(self, name: str, arguments: Sequence[Node]) -> Result:
        if name == "IF":
            condition, then, otherwise = arguments
            return _chosen(self._condition(condition), self._value(then), self._value(otherwise))
        values = [self._value(one) for one in arguments]
        if name == "ROUND" and (digits := _literal_digits(arguments)) is not None:
            return _rounded(values[0], digits)
        if name in _EXACT and name != "ROUND":
            return _EXACT[name](*values)
        return _one_by_one(name, values, len(self._slots))


def _literal(value: Scalar) -> Result:
    if value is None:
        return Result(np.float64(0), NO, NO, NO)
    assert not isinstance(value, str)
    return Result(np.float64(value), np.bool_(not isinstance(value, float)), YES, NO)


def _field(column: MemoColumn, slots: Slots) -> Result:
    kinds = column.kinds[slots]
    known = _same(kinds == NUMBER)
    unsure = NO if known is YES else _same(kinds > NULL) & ~known
    return Result(column.numbers[slots], _same(column.whole[slots]), known, unsure)


def _same(mask: NDArray[np.bool_]) -> Mask:
    """The mask, as one for all where it is the same for all: that is quicker to go on with."""
    if mask.all():
        return YES
    return mask if mask.any() else NO


# Arithmetic.


def _simple(run: Callable[[Any, Any], Any]) -> Callable[[Result, Result], Result]:
    def calculated(one: Result, other: Result) -> Result:
        return Result(
            run(one.numbers, other.numbers),
            one.whole & other.whole,
            one.known & other.known,
            one.unsure | other.unsure,
        )

    return calculated


def _divided(one: Result, other: Result) -> Result:
    whole, known, unsure = (
        one.whole & other.whole,
        one.known & other.known,
        one.unsure | other.unsure,
    )
    by_zero = other.numbers == 0
    quotient = np.where(by_zero, np.nan, np.divide(one.numbers, other.numbers))
    if np.any(whole):
        # Towards zero; of nothing there is none.
        quotient = np.where(whole, np.trunc(quotient), quotient)
        known = known & ~(whole & by_zero)
        unsure = unsure | (whole & (np.abs(one.numbers) > QUOTIENT_MAX))
    return Result(quotient, whole, known, unsure)


def _remainder(one: Result, other: Result) -> Result:
    whole = one.whole & other.whole
    known = one.known & other.known & ~(whole & (other.numbers == 0))
    # The remainder keeps the sign of the left side; of doubles by 0 it is NaN.
    remainder = np.fmod(one.numbers, other.numbers)
    return Result(remainder, whole, known, one.unsure | other.unsure)


_ARITHMETIC: dict[str, Callable[[Result, Result], Result]] = {
    **{symbol: _simple(one.run) for symbol, one in CALCULATIONS.items() if one.is_elementwise},
    "/": _divided,
    "%": _remainder,
}
assert _ARITHMETIC.keys() == CALCULATIONS.keys()


def _checked(result: Result) -> Result:
    """The same, unsure where an integer may differ from its double."""
    if not np.any(result.whole):
        return result
    large = result.whole & result.known & (np.abs(result.numbers) >= EXACT_WHOLE_MAX)
    return result._replace(unsure=result.unsure | large)


# Functions.


def _absolute(one: Result) -> Result:
    return one._replace(numbers=np.abs(one.numbers))


def _sign(one: Result) -> Result:
    numbers = np.where(one.numbers > 0, 1.0, np.where(one.numbers < 0, -1.0, 0.0))
    return one._replace(numbers=numbers, whole=YES)


def _to_whole(run: Callable[[Any], Any]) -> Callable[[Result], Result]:
    def rounded(one: Result) -> Result:
        # NaN and the infinities have nothing to be rounded.
        whole = one.whole | np.isfinite(one.numbers)
        return one._replace(numbers=run(one.numbers), whole=whole)

    return rounded


def _root(one: Result) -> Result:
    known = one.known & ~(one.numbers < 0)
    return Result(np.sqrt(one.numbers), NO, known, one.unsure)


def _literal_digits(arguments: Sequence[Node]) -> int | None:
    """The places to which is rounded, where they are written and not too many."""
    match arguments:
        case [_]:
            return 0
        case [_, Literal(int(digits))] if 0 <= digits <= ROUNDED_DIGITS_MAX:
            return int(digits)
    return None


def _rounded(one: Result, digits: int) -> Result:
    if not digits:
        return one._replace(numbers=np.rint(one.numbers))
    numbers, whole, known = np.broadcast_arrays(one.numbers, one.whole, one.known)
    power = 10.0**digits
    scaled = numbers * power
    nearest = np.rint(scaled)
    apart = (np.abs(scaled) < ROUNDED_MAX) & (np.abs(np.abs(scaled - nearest) - 0.5) > TIE)
    # An exact integer by an exact power of ten is what the decimal reads as.
    rounded = np.atleast_1d(np.where(whole, numbers, nearest / power))
    for at in np.flatnonzero(known & ~whole & ~apart).tolist():
        rounded[at] = round(float(np.atleast_1d(numbers)[at]), digits)
    return one._replace(numbers=rounded)


def _furthest(further: Callable[[Any, Any], Any]) -> Callable[..., Result]:
    def found(*values: Result) -> Result:
        numbers, whole, known, unsure = _numbers_of(values[0])
        for value in values[1:]:
            other = _numbers_of(value)
            better = other.known & (~known | further(other.numbers, numbers))
            numbers = np.where(better, other.numbers, numbers)
            whole = np.where(better, other.whole, whole)
            known, unsure = known | other.known, unsure | other.unsure
        return Result(numbers, whole, known, unsure)

    return found


def _numbers_of(value: Result) -> Result:
    """The value where it is a number: NaN is none."""
    return value._replace(known=value.known & ~np.isnan(value.numbers))


def _first_known(*values: Result) -> Result:
    numbers, whole, known, unsure = values[0]
    for value in values[1:]:
        numbers = np.where(known, numbers, value.numbers)
        whole = np.where(known, whole, value.whole)
        unsure = unsure | (~known & value.unsure)
        known = known | value.known
    return Result(numbers, whole, known, unsure)


def _chosen(condition: Outcome, then: Result, otherwise: Result) -> Result:
    chosen = [
        np.where(condition.true, one, other) for one, other in zip(then, otherwise, strict=True)
    ]
    return Result(chosen[0], chosen[1], chosen[2], chosen[3] | condition.unsure)


_EXACT: dict[str, Callable[..., Result]] = {
    "ABS": _absolute,
    "CEILING": _to_whole(np.ceil),
    "COALESCE": _first_known,
    "FLOOR": _to_whole(np.floor),
    "GREATEST": _furthest(np.greater),
    "IF": _chosen,
    "LEAST": _furthest(np.less),
    "ROUND": _rounded,
    "SIGN": _sign,
    "SQRT": _root,
}
"""Functions whose exact results numpy gives."""


def _one_by_one(name: str, values: Sequence[Result], count: int) -> Result:
    """The results of a function of numbers, called for each record."""
    run = FUNCTIONS[name].run
    assert run is not None
    given = [_scalars(value, count) for value in values]
    results = list(map(run, *given))
    unsure: Mask = np.logical_or.reduce([np.broadcast_to(one.unsure, count) for one in values])
    large = [isinstance(one, int) and not _is_double(one) for one in results]
    known = np.array([one is not None for one in results], np.bool_)
    whole = np.array([isinstance(one, int) for one in results], np.bool_)
    numbers = np.array(
        [0.0 if one is None or unfit else one for one, unfit in zip(results, large, strict=True)],
        np.float64,
    )
    return Result(numbers, whole, known, unsure | np.array(large, np.bool_))


def _scalars(value: Result, count: int) -> list[float | None]:
    """The values as Python has them; None too where they are not sure."""
    usable = np.broadcast_to(value.known & ~value.unsure, count)
    numbers = np.broadcast_to(value.numbers, count)
    scalars: list[float | None] = numbers.tolist()
    for at in np.flatnonzero(usable & value.whole).tolist():
        scalars[at] = int(numbers[at])
    for at in np.flatnonzero(~usable).tolist():
        scalars[at] = None
    return scalars


# Conditions.


def _compared(operator: str, one: Result, other: Result) -> Outcome:
    known = one.known & other.known
    holds = COMPARISONS[operator].holds(one.numbers, other.numbers)
    return Outcome(known & holds, known & ~holds, one.unsure | other.unsure)


def _all_of(outcomes: Sequence[Outcome]) -> Outcome:
    """True if all are; one that is false decides, whatever is unsure."""
    true, false, unsure = outcomes[0]
    false = false & ~unsure
    for one in outcomes[1:]:
        true, false, unsure = (
            true & one.true,
            false | (one.false & ~one.unsure),
            unsure | one.unsure,
        )
    return Outcome(true, false, unsure & ~false)


def _any_of(outcomes: Sequence[Outcome]) -> Outcome:
    """False if all are; one that is true decides."""
    true, false, unsure = _all_of(
        [Outcome(false, true, unsure) for true, false, unsure in outcomes]
    )
    return Outcome(false, true, unsure)
