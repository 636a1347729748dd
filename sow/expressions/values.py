"""Comparison and arithmetic of any two values, by one table of operators.

An entry of the table defines an operator once, for both evaluators of the language: its test of two
values, its Python source, and the operators that it turns into. Generated code
(`sow.expressions.codegen`) calls the test or inlines the source; numpy
(`sow.indexes.vector_filter`, `sow.indexes.vector_arithmetic`) applies the same function to arrays
of numbers. NULL, texts against numbers and lists are handled by each evaluator before.

Values are those of paths: text, numbers, booleans, None, or a list of these. NULL is None and the
empty text. Generated code handles the common cases inline and calls these functions for the rest.

A comparison has three outcomes: True, False or None (unknown). NULL makes it unknown, NaN makes it
false. Booleans are 1 and 0. Two strings compare as text; a string against a number is read as a
number, and one that cannot be read ranks above every number. A list is tested element by element:
the test is true if it is true of any.

Calculation takes the first element of a list. Text that spells a number counts as one; NULL makes
the result NULL, and so does text that is no number. Integers stay integers: ``1 / 5`` is 0, and the
remainder has the sign of the left side.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sow.core.paths import Scalar, Value

Number = int | float


class Comparison(NamedTuple):
    """An operator between two numbers or two texts."""

    holds: Callable[[Any, Any], Any]
    """Its test: a bool for two values, a mask for arrays of numbers; false for NaN."""
    source: str
    """The operator of Python that gives the same unless a side is NaN."""
    mirrored: str
    """The equivalent operator with its sides exchanged."""
    opposite: str
    """The operator that is true where this one is false, and false for NaN too."""
    of_lesser: bool
    """Whether it is true if the left side ranks below the right one."""


def _differs(one: Any, other: Any) -> Any:
    return (one < other) | (one > other)  # not `!=`, which is true of NaN


COMPARISONS = {
    "=": Comparison(operator.eq, "==", "=", "!=", of_lesser=False),
    "!=": Comparison(_differs, "!=", "!=", "=", of_lesser=True),
    "<": Comparison(operator.lt, "<", ">", ">=", of_lesser=True),
    "<=": Comparison(operator.le, "<=", ">=", ">", of_lesser=True),
    ">": Comparison(operator.gt, ">", "<", "<=", of_lesser=False),
    ">=": Comparison(operator.ge, ">=", "<=", "<", of_lesser=False),
}


class ArithmeticOperator(NamedTuple):
    """An arithmetic operator between two numbers."""

    run: Callable[[Any, Any], Any]
    """Its function of two numbers; gives None for NULL."""
    is_elementwise: bool
    """Whether `run` is Python's operator, which doubles may use inline, and applies to arrays."""


def _quotient(one: Number, other: Number) -> Number | None:
    if isinstance(one, int) and isinstance(other, int):
        # Towards zero, as AMPS divides.
        return (
            None if other == 0 else abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        )
    return one / other if other else math.nan


def _remainder(one: Number, other: Number) -> Number | None:
    if isinstance(one, int) and isinstance(other, int):
        return None if other == 0 else abs(one) % abs(other) * (-1 if one < 0 else 1)
    # The remainder of an infinity is none.
    return math.fmod(one, other) if other and not math.isinf(one) else math.nan


CALCULATIONS = {
    "+": ArithmeticOperator(operator.add, is_elementwise=True),
    "-": ArithmeticOperator(operator.sub, is_elementwise=True),
    "*": ArithmeticOperator(operator.mul, is_elementwise=True),
    "/": ArithmeticOperator(_quotient, is_elementwise=False),
    "%": ArithmeticOperator(_remainder, is_elementwise=False),
}


Outcome = bool | None

_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+(?P<fraction>\.[0-9]*)?|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?\Z"
)
# Longer integers are read as floats: reading them exactly takes quadratic time.
_INTEGER_DIGITS_MAX = 1000


def as_number(text: str) -> int | float | None:
    """The number that all of `text` spells in decimal, or None."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    digits = text.strip("+-").isdigit() and len(text) <= _INTEGER_DIGITS_MAX
    return int(text) if digits else float(text)


def as_text(value: str | int | float) -> str:
    """A value as LIKE and TEXT ordering see it; booleans are 1 and 0."""
    return value if isinstance(value, str) else repr(value + 0)


def any_of(outcomes: Iterable[Outcome]) -> Outcome:
    """SQL's OR over any number of outcomes; unknown when there are none (an empty array)."""
    result: Outcome = None
    for count, outcome in enumerate(outcomes):
        if outcome:
            return True
        result = outcome if count == 0 or outcome is None else result
    return result


def elements(value: Value) -> list[Scalar]:
    """The values of a list, or the one value."""
    return value if isinstance(value, list) else [value]


def compare(symbol: str, a: Value, b: Value) -> Outcome:
    """`a symbol b`, where symbol is a key of COMPARISONS."""
    if isinstance(a, list) or isinstance(b, list):
        return any_of(compare_scalars(symbol, x, y) for x in elements(a) for y in elements(b))
    return compare_scalars(symbol, a, b)


def compare_scalars(symbol: str, a: Scalar, b: Scalar) -> Outcome:
    """`a symbol b` for single values."""
    if a is None or b is None or a == "" or b == "":
        return None
    test: Callable[[Any, Any], bool] = COMPARISONS[symbol].holds
    if isinstance(a, str):
        return test(a, b) if isinstance(b, str) else test(*_as_numbers(a, b))
    return test(*reversed(_as_numbers(b, a))) if isinstance(b, str) else test(a, b)


def _as_numbers(text: str, number: int | float) -> tuple[int | float, int | float]:
    """A string and a number as two numbers that compare by the rules."""
    read = as_number(text)
    if read is not None:
        return read, number
    # Above every number, infinity included; NaN stays beyond comparison.
    return (1, 0) if number == number else (0, number)


def between(value: Value, low: Value, high: Value) -> Outcome:
    """Whether one element of `value` lies from `low` to `high`, both included."""
    return any_of(
        _and(compare_scalars(">=", x, y), compare_scalars("<=", x, z))
        for x in elements(value)
        for y in elements(low)
        for z in elements(high)
    )


def _and(a: Outcome, b: Outcome) -> Outcome:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def is_null(value: Value) -> bool:
    """Whether there is no value: None, '', or a list without one."""
    if isinstance(value, list):
        return all(item is None or item == "" for item in value)
    return value is None or value == ""


def is_nan(value: Value) -> bool:
    """Whether it, or an element of it, is the number that is none."""
    return any(one != one for one in elements(value))


def affixed(at_end: bool, value: Value, *members: Value) -> Outcome:
    """Whether an element of `value`, as text, begins or ends with one of `members`."""
    affixes = [one for member in members for one in elements(member)]
    return any_of(_affixed(at_end, one, affix) for one in elements(value) for affix in affixes)


def _affixed(at_end: bool, one: Scalar, affix: Scalar) -> Outcome:
    if one is None or one == "" or affix is None or affix == "":
        return None
    text, part = as_text(one), as_text(affix)
    return text.endswith(part) if at_end else text.startswith(part)


# IN with a list of literals: one lookup in a set instead of a chain of comparisons, with the same
# result, conversions between strings and numbers included: a number is looked up among the literals
# that are or spell numbers, a string among the string literals and, read as a number, among the
# number literals.


class Members:
    """The literals of one IN list."""

    def __init__(self, literals: Sequence[Scalar]) -> None:
        values = [value for value in literals if value is not None and value != ""]
        self.has_null = len(values) < len(literals)
        self.texts = frozenset(value for value in values if isinstance(value, str))
        self.numbers = frozenset(value for value in values if not isinstance(value, str))
        spelt = {as_number(text) for text in self.texts} - {None}
        self.all_numbers = self.numbers | spelt

    def contain(self, value: Value) -> Outcome:
        """Whether `value`, or an element of it, equals a member."""
        if isinstance(value, list):
            return any_of(map(self._contain_scalar, elements(value)))
        return self._contain_scalar(value)

    def _contain_scalar(self, value: Scalar) -> Outcome:
        if value is None or value == "":
            return None
        if isinstance(value, str):
            found = value in self.texts or (bool(self.numbers) and as_number(value) in self.numbers)
        else:
            found = value in self.all_numbers
        return found or (None if self.has_null else False)


DIGITS_MAX = 1000
"""Digits of a calculated integer; one with more becomes a double, since products of
products would take ever longer. No field of a message that is meant as a number has as many."""
_WHOLE_MAX = 10**DIGITS_MAX


def first(value: Value) -> Scalar:
    """The value, or the first of a list; the empty text is NULL."""
    one = value[0] if isinstance(value, list) and value else None if value == [] else value
    return None if one == "" or isinstance(one, list) else one


def number(value: Value) -> Number | None:
    """The number that a value is or spells; None for everything else."""
    one = first(value)
    if isinstance(one, bool):
        return int(one)
    return as_number(one) if isinstance(one, str) else one


def text(value: Value) -> str | None:
    """The value as text; None for NULL."""
    if value.__class__ is str:
        return value or None
    one = first(value)
    return None if one is None else as_text(one)


def arithmetic(run: Callable[[Any, Any], Number | None]) -> Callable[[Value, Value], Value]:
    """A function that applies `run` to any two values."""

    def calculated(left: Value, right: Value) -> Value:
        # Most values are numbers already: they are looked at no further.
        one = left if left.__class__ in _NUMBERS else number(left)
        other = right if right.__class__ in _NUMBERS else number(right)
        if one is None or other is None:
            return None
        try:
            result = run(one, other)
        except OverflowError:
            # A double among integers that are too large for one.
            result = run(_as_double(one), _as_double(other))
        if result.__class__ is int and not -_WHOLE_MAX < result < _WHOLE_MAX:
            return _as_double(result)
        return result

    return calculated


_NUMBERS = frozenset((int, float))


def _as_double(one: Any) -> float:
    try:
        return float(one)
    except OverflowError:
        return math.inf if one > 0 else -math.inf


ARITHMETIC = {symbol: arithmetic(one.run) for symbol, one in CALCULATIONS.items()}
"""The operators, each NULL where one of its sides is no number."""
