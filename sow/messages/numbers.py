"""Numbers as they are written in JSON, and which types of Arrow hold them exactly.

A double holds a number if it is that number, or if the number is the shortest text of it: 0.1 is
written for a double and comes back from it. Nothing here is rounded.
"""

import re
from decimal import Decimal, InvalidOperation

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT64_CHARS_MAX = len(str(INT64_MIN))
"""Longer ones do not fit, and Python takes its time over very long ones."""
SHORT_NUMBER = 16
"""A number of fewer characters has at most 15 digits, which every double holds."""
WHOLE_TEXT = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")
NUMBER_TEXT = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")


def fits_int64(text: bytes) -> bool:
    """Whether a number is a whole one of 64 bits, written without a fraction."""
    return (
        len(text) <= INT64_CHARS_MAX
        and WHOLE_TEXT.match(text) is not None
        and INT64_MIN <= int(text) <= INT64_MAX
    )


def fits_double(text: bytes) -> bool:
    """Whether a double is the number of a text, and not only near it."""
    short = len(text) < SHORT_NUMBER and b"e" not in text and b"E" not in text
    return short or _is_double(text.decode())


def _is_double(text: str) -> bool:
    try:
        double = float(text)
        if repr(double) == text:
            return True
        number = Decimal(text)
        return number in (Decimal(double), Decimal(repr(double)))
    except (InvalidOperation, OverflowError, ValueError):
        return False


def fits_decimal(text: bytes, precision: int, scale: int) -> bool:
    """Whether a number has at most `scale` digits behind the point, and `precision` in all."""
    try:
        _, digits, exponent = Decimal(text.decode()).as_tuple()
    except InvalidOperation:
        return False
    assert isinstance(exponent, int)
    kept = "".join(map(str, digits)).rstrip("0")
    if not kept.lstrip("0"):
        return True
    exponent += len(digits) - len(kept)
    whole_digits = len(kept) + exponent
    return -exponent <= scale and whole_digits <= precision - scale
