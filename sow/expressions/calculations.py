"""What field constructions compute with: arithmetic and functions over values.

Values are those of paths: text, numbers, booleans, None, or a list of these, of which everything
but the array functions takes the first. Text that spells a number counts as one; NULL (None and
the empty text) makes NULL of whatever it is calculated with, and so does text that is no number.
Integers stay integers: ``1 / 5`` is 0, and the remainder has the sign of the left side.

A function is one entry of CALCULATIONS with its example, which is documentation and test at once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sow.expressions.compare import as_number, as_text, elements
from sow.paths import Scalar, Value

Number = int | float
ANY = 99
"""As many arguments as there are."""


@dataclass(frozen=True, slots=True)
class Calculation:
    """A function: how many arguments it takes, and an example with its result."""

    least: int
    most: int
    run: Callable[..., Value]
    example: str
    result: Value
    about: str


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
    one = first(value)
    return None if one is None else as_text(one)


def calculate(symbol: str, left: Value, right: Value) -> Value:
    """`left symbol right` for ``+ - * / %``."""
    one, other = number(left), number(right)
    if one is None or other is None:
        return None
    try:
        return _ARITHMETIC[symbol](one, other)
    except OverflowError:
        return math.inf


def _divide(one: Number, other: Number) -> Number | None:
    if isinstance(one, int) and isinstance(other, int):
        # Towards zero, as AMPS divides.
        return (
            None if other == 0 else abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
        )
    return one / other if other else math.nan


def _remainder(one: Number, other: Number) -> Number | None:
    if isinstance(one, int) and isinstance(other, int):
        return None if other == 0 else abs(one) % abs(other) * (-1 if one < 0 else 1)
    return math.fmod(one, other) if other else math.nan


_ARITHMETIC: dict[str, Callable[[Any, Any], Number | None]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": _divide,
    "%": _remainder,
}


def _of_number(run: Callable[[Any], Value]) -> Callable[[Value], Value]:
    def calculated(value: Value) -> Value:
        one = number(value)
        try:
            return None if one is None else run(one)
        except (ValueError, OverflowError):
            return None

    return calculated


def _of_text(run: Callable[..., Value]) -> Callable[..., Value]:
    def calculated(*values: Value) -> Value:
        texts = [text(value) for value in values]
        return None if None in texts else run(*texts)

    return calculated


def _upper(value: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in value)


def _lower(value: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in value)


def _substr(value: Value, position: Value, length: Value = None) -> Value:
    whole, at = text(value), number(position)
    if whole is None or at is None:
        return None
    start = int(at) - 1 if at > 0 else max(0, len(whole) + int(at))
    count = number(length)
    return whole[start:] if count is None else whole[start : start + max(0, int(count))]


def _concat(*values: Value) -> Value:
    return "".join(text(value) or "" for value in values)


def _round(value: Value, digits: Value = 0) -> Value:
    one, places = number(value), number(digits)
    if one is None or places is None:
        return None
    return one if isinstance(one, int) and places >= 0 else round(one, int(places))


def _power(base: Value, exponent: Value) -> Value:
    one, other = number(base), number(exponent)
    if one is None or other is None:
        return None
    try:
        result: Number = math.pow(one, other)
    except (ValueError, OverflowError):
        return None
    return result


def _coalesce(*values: Value) -> Value:
    return next((one for one in map(first, values) if one is not None), None)


def _if(condition: Value, then: Value, otherwise: Value) -> Value:
    return then if number(condition) else otherwise


def _numbers(values: Sequence[Value]) -> list[Number]:
    return [one for one in map(number, values) if one is not None]


def _greatest(*values: Value) -> Value:
    return max(_numbers(values), default=None)


def _least(*values: Value) -> Value:
    return min(_numbers(values), default=None)


def _sign(one: Number) -> int:
    return (one > 0) - (one < 0)


CALCULATIONS: dict[str, Calculation] = {
    "ABS": Calculation(1, 1, _of_number(abs), "ABS(-3)", 3, "without its sign"),
    "ARRAY_COUNT": Calculation(
        1, 1, lambda v: sum(e is not None for e in elements(v)), "ARRAY_COUNT(/list)", 3, "values"
    ),
    "ARRAY_MAX": Calculation(
        1, 1, lambda v: _greatest(*elements(v)), "ARRAY_MAX(/list)", 7, "the largest number"
    ),
    "ARRAY_MIN": Calculation(
        1, 1, lambda v: _least(*elements(v)), "ARRAY_MIN(/list)", 2, "the smallest number"
    ),
    "ARRAY_SUM": Calculation(
        1, 1, lambda v: sum(_numbers(elements(v))), "ARRAY_SUM(/list)", 14, "NULLs left out"
    ),
    "CEILING": Calculation(1, 1, _of_number(math.ceil), "CEILING(2.1)", 3, "rounded up"),
    "COALESCE": Calculation(1, ANY, _coalesce, "COALESCE(/none, 'x')", "x", "the first not NULL"),
    "CONCAT": Calculation(1, ANY, _concat, "CONCAT('a', 1, /none)", "a1", "joined as text"),
    "FLOOR": Calculation(1, 1, _of_number(math.floor), "FLOOR(2.9)", 2, "rounded down"),
    "GREATEST": Calculation(1, ANY, _greatest, "GREATEST(1, 3, 2)", 3, "the largest"),
    "IF": Calculation(3, 3, _if, "IF(/qty > 2, 'big', 'small')", "big", "one of two"),
    "INSTR": Calculation(
        2, 2, _of_text(lambda s, sub: s.find(sub) + 1), "INSTR('abc', 'c')", 3, "from 1; or 0"
    ),
    "LEAST": Calculation(1, ANY, _least, "LEAST(3, 1, 2)", 1, "the smallest"),
    "LENGTH": Calculation(
        1, 1, _of_text(lambda s: len(s.encode())), "LENGTH('abc')", 3, "in bytes"
    ),
    "LOWER": Calculation(1, 1, _of_text(_lower), "LOWER('AbC')", "abc", "ASCII letters only"),
    "POWER": Calculation(2, 2, _power, "POWER(2, 3)", 8.0, "to the power of"),
    "REPLACE": Calculation(
        3, 3, _of_text(lambda s, a, b: s.replace(a, b)), "REPLACE('aba', 'a', 'x')", "xbx", "all"
    ),
    "ROUND": Calculation(1, 2, _round, "ROUND(2.345, 1)", 2.3, "to so many digits"),
    "SIGN": Calculation(1, 1, _of_number(_sign), "SIGN(-2.5)", -1, "-1, 0 or 1"),
    "SQRT": Calculation(1, 1, _of_number(math.sqrt), "SQRT(9)", 3.0, "the square root"),
    "SUBSTR": Calculation(
        2, 3, _substr, "SUBSTR('fandango', 5)", "ango", "from 1; below 0 from the end"
    ),
    "UPPER": Calculation(1, 1, _of_text(_upper), "UPPER('AbC')", "ABC", "ASCII letters only"),
}
