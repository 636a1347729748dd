"""Conversion of values for calculation, and arithmetic.

Values are those of paths: text, numbers, booleans, None, or a list of these; all but the functions
of lists use its first element. Text that spells a number counts as one; NULL (None and the empty
text) makes the result NULL, and so does text that is no number. Integers stay integers: ``1 / 5``
is 0, and the remainder has the sign of the left side. Generated code calls these functions for all
arithmetic (`sow.expressions.codegen`).
"""

import math
from collections.abc import Callable
from typing import Any

from sow.core.paths import Scalar, Value
from sow.expressions.compare import as_number, as_text
from sow.expressions.operators import CALCULATIONS, Number

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
