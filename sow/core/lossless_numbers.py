"""Numbers that keep their digits.

A decimal number such as `1.10`, or one with forty digits, is for calculations and comparisons the
nearest double. Where it is written out again it has to be the same text, so it is a float that
keeps its text. Most numbers need none of this: `number` makes an int or a float of those that
Python formats identically, and a `LosslessNumber` of the others.
"""

import re
from decimal import Decimal
from math import isfinite

NOTATION = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\Z")
"""A number as JSON writes it."""
NUMBER_CHARS_MAX = 308
"""Characters of a number. Whole numbers of JSON messages have as many, since no double is larger,
and reading the digits of one takes the square of their number."""


class LosslessNumber(float):
    """The double next to a number, and the text of that number."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> "LosslessNumber":
        """The number that `text` is; raises ValueError if it is none."""
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __reduce__(self) -> tuple[type["LosslessNumber"], tuple[str]]:
        return LosslessNumber, (self.text,)

    @property
    def is_double(self) -> bool:
        """Whether the double is the number, or the number the shortest text of it."""
        exact = Decimal(self.text)
        return exact in (Decimal(float(self)), Decimal(float.__repr__(self)))


def number(text: str) -> int | float | None:
    """The number that a text is in the notation of JSON; None if it is none, or has too many
    digits, or no double is near it."""
    if len(text) > NUMBER_CHARS_MAX:
        return None
    found = NOTATION.match(text)
    if found is None:
        return None
    if not found["rest"]:
        # As a whole number the minus of -0 would be lost.
        return int(text) if text != "-0" else LosslessNumber(text)
    double = float(text)
    if not isfinite(double):
        return None
    return double if repr(double) == text else LosslessNumber(text)


def written(value: float) -> str:
    """A number as it was written."""
    return value.text if isinstance(value, LosslessNumber) else repr(value)
