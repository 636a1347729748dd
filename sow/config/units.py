"""Numbers with units, as config.xml writes them: intervals, sizes of memory, counts.

Intervals are written as everywhere (`conflated_topics.user_texts`). Sizes count in powers of 1024
however they are spelt.
"""

import re
from fractions import Fraction

from conflated_topics.user_texts import IntervalError, interval_us
from sow.config.diagnostics import MistakeError

NUMBER_AND_UNIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)", re.ASCII)
# Beyond this a value no longer fits the 64-bit integers that it is stored in.
HIGHEST = 2**62

POWERS_OF_1024 = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
POWERS_OF_1000 = {"": 0, "k": 1, "m": 2}


def duration_us(text: str) -> int:
    """An interval such as ``500ms`` in microseconds, rounded up; raises MistakeError."""
    try:
        return interval_us(text)
    except IntervalError as error:
        raise MistakeError(error.wrong, error.instead) from None


def size_bytes(text: str) -> int:
    """A size such as ``16MB`` in bytes, K M G T (or KB, KiB, …) being powers of 1024."""
    number, unit = _split(text, "a size", "write a number of bytes, such as 64KB or 16MB")
    prefix = re.sub(r"i?b\Z", "", unit.lower())
    if prefix not in POWERS_OF_1024 or unit.lower() == "ib":
        raise MistakeError(f"{text!r} has the unit {unit!r}, which is none", "use KB, MB, GB or TB")
    return _bounded(_whole(number * 1024 ** POWERS_OF_1024[prefix], text), text)


def count(text: str) -> int:
    """A count such as ``10000`` or ``10k``; k is a thousand, M a million, in either case."""
    number, unit = _split(text, "a count", "write a whole number, such as 10000 or 10k")
    if unit.lower() not in POWERS_OF_1000:
        raise MistakeError(
            f"{text!r} has the unit {unit!r}; counts have k or M", "write digits only"
        )
    return _bounded(_whole(number * 1000 ** POWERS_OF_1000[unit.lower()], text), text)


def _split(text: str, what: str, instead: str) -> tuple[Fraction, str]:
    # The length is bounded since Python refuses to convert thousands of digits.
    found = NUMBER_AND_UNIT.fullmatch(text) if len(text) <= 40 else None
    if found is None:
        raise MistakeError(f"{text[:40]!r} is not {what}", instead)
    return Fraction(found["number"]), found["unit"]


def _whole(number: Fraction, text: str) -> int:
    if number.denominator != 1:
        raise MistakeError(f"{text!r} is not a whole number", "write it without a fraction")
    return number.numerator


def _bounded(value: int, text: str) -> int:
    if value > HIGHEST:
        raise MistakeError(f"{text!r} is too large", "write a smaller value")
    return value
