"""The table of operators, for both evaluators of the language.

An entry defines an operator once: its test of two values, its Python source, and the operators that
it turns into. Generated code (`sow.expressions.codegen`) calls the test or inlines the source;
numpy (`sow.indexes.vector_filter`, `sow.indexes.vector_arithmetic`) applies the same function to
arrays of numbers. NULL, texts against numbers and lists are handled by each evaluator before.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

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
