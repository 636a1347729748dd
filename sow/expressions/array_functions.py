"""Functions that look at all values of a list; everything else takes the first of them.

What is no list counts as a list of one. Largest and smallest are by the rules of comparison:
numbers and texts that spell one by their number, other texts above all numbers.
"""

from functools import cmp_to_key

from sow.core.paths import Scalar, Value
from sow.expressions.function import Example, Function
from sow.expressions.values import ARITHMETIC, compare_scalars, elements, number


def _order(one: Scalar, other: Scalar) -> int:
    if compare_scalars("<", one, other):
        return -1
    return 1 if compare_scalars(">", one, other) else 0


_key = cmp_to_key(_order)


def _present(value: Value) -> list[Scalar]:
    return [one for one in elements(value) if one is not None and one != "" and one == one]


def _largest(value: Value) -> Value:
    return max(_present(value), key=_key, default=None)


def _smallest(value: Value) -> Value:
    return min(_present(value), key=_key, default=None)


def _count(value: Value) -> int:
    return sum(one is not None and one != "" for one in elements(value))


def _sum(value: Value) -> Value:
    total: Value = 0
    for one in map(number, elements(value)):
        total = total if one is None else ARITHMETIC["+"](total, one)
    return total


ARRAY_FUNCTIONS = {
    "ARRAY_COUNT": Function(
        "ARRAY_COUNT(list)",
        1,
        1,
        _count,
        "how many values it has",
        "0 if it has none; NULLs are not counted",
        (Example("ARRAY_COUNT(/list)", 3), Example("ARRAY_COUNT(/tags)", 2)),
    ),
    "ARRAY_MAX": Function(
        "ARRAY_MAX(list)",
        1,
        1,
        _largest,
        "the largest value",
        "NULL if it has none; NULLs are left out",
        (Example("ARRAY_MAX(/list)", 7),),
    ),
    "ARRAY_MIN": Function(
        "ARRAY_MIN(list)",
        1,
        1,
        _smallest,
        "the smallest value",
        "NULL if it has none; NULLs are left out",
        (Example("ARRAY_MIN(/list)", 2),),
    ),
    "ARRAY_SUM": Function(
        "ARRAY_SUM(list)",
        1,
        1,
        _sum,
        "its numbers added up",
        "0 if it has none; what is no number is left out",
        (Example("ARRAY_SUM(/list)", 14),),
    ),
}
"""By name."""
