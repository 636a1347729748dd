"""Texts of users: intervals, and words that were meant to be others.

An interval is a number and a unit, such as ``500ms`` or ``1.5 h``. It always carries its unit,
because readers take a bare number for seconds or for milliseconds; only 0 needs none. This is the
one grammar of intervals: of a configuration, an option of a command, a parameter, an argument. It
does not limit the range for any of them.

`nearest` is the one rule by which a mistyped name suggests a known one.
"""

import difflib
import math
import re
from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction

UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 7 * 86_400 * 1_000_000_000,
}
WORDS = {
    "ms": ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
"""Spellings of units that are not accepted; the error suggests the unit."""
INTERVAL = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)
CHARS_MAX = 40
"""Longer texts are no intervals: Python refuses to convert thousands of digits."""
INTERVAL_US_MAX = 2**61
"""73,000 years: the end of a window that begins within as many still fits 64 bits."""


class IntervalError(ValueError):
    """A text that is no interval: what is `wrong`, and what to write `instead`."""

    def __init__(self, wrong: str, instead: str) -> None:
        super().__init__(f"{wrong}; {instead}")
        self.wrong = wrong
        self.instead = instead


def interval_us(text: str) -> int:
    """An interval in microseconds, rounded up; raises IntervalError."""
    found = INTERVAL.fullmatch(text) if len(text) <= CHARS_MAX else None
    if found is None:
        raise IntervalError(
            f"{text[:CHARS_MAX]!r} is not an interval",
            "write a number and a unit, such as 500ms or 5s",
        )
    number, unit = Fraction(found[1]), found[2]
    if not unit and number:
        raise IntervalError(f"{text!r} has no unit", f"write {text}s, {text}ms or another unit")
    if unit and unit not in UNITS_NS:
        meant = next((short for short, words in WORDS.items() if unit.lower() in words), None)
        raise IntervalError(
            f"{text!r} has the unit {unit!r}, which is none",
            f"write {found[1]}{meant}" if meant else f"use one of {' '.join(UNITS_NS)}",
        )
    read_us = math.ceil(number * UNITS_NS[unit] / 1000) if unit else 0
    if read_us > INTERVAL_US_MAX:
        raise IntervalError(f"{text!r} is too long", "write at most 73,000 years")
    return read_us


LIKENESS_MIN = 0.6
"""Similarity below which two words are not considered the same with a typo."""
COMPARED_CHARS_MAX = 80
"""Characters that are compared: comparing takes quadratic time."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely means, whatever its case; None if there is none."""
    by_lower = {name.lower(): name for name in known}
    beginning = word.lower()[:COMPARED_CHARS_MAX]
    close = difflib.get_close_matches(beginning, by_lower, 1, LIKENESS_MIN)
    return by_lower[close[0]] if close else None


def parse_interval(interval: str | timedelta, least_us: int = 1) -> int:
    """The length of windows: ``"500ms"``, ``"5m"`` or a timedelta, in microseconds, rounded up.

    Raises ValueError for an invalid interval, for one shorter than `least_us`, which is 1 or 0, and
    for one beyond all times.
    """
    if isinstance(interval, timedelta):
        return in_bounds(interval // timedelta(microseconds=1), interval, least_us)
    if isinstance(interval, str):
        return in_bounds(interval_us(interval.strip()), interval, least_us)
    raise ValueError(f"{interval!r} is not an interval; write 500ms, 1s, 5m or a timedelta")


def in_bounds(length_us: int, written: object, least_us: int = 1) -> int:
    """A length of windows, if it can be one; raises ValueError, which shows what was written."""
    if length_us < least_us:
        bound = "not be negative" if least_us == 0 else "be positive"
        raise ValueError(f"the interval {written} must {bound}; write 1s or 100ms")
    if length_us > INTERVAL_US_MAX:
        raise ValueError(f"the interval {written} is too long; write at most 73,000 years")
    return length_us
