"""The moments that an `Every` names: an interval, a time of day, that of one day of the week, or
five fields of cron, in UTC.

Each is a function of time alone: an interval counts from 1970 on, so that the moments are the same
whenever a server starts, and on each node of a log. There is no clock here.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from sow.config.diagnostics import MistakeError
from sow.config.value_types import duration_us
from sow.errors import shown

Moments = Callable[[int], int]
"""The first moment after a time, both in microseconds since 1970."""

MINUTE_US = 60_000_000
"""What cron counts in."""
INTERVAL_US_MIN = 1_000_000
"""More often than once a second is what a subscription is for."""
DAYS_MAX = 366 * 9
"""A 29th of February comes after eight years at the latest, around a year like 2100."""
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
WEEKDAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, MONTHS),
    ("day of the week", 0, 7, DAYS),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WAYS_TO_WRITE = (
    "write an interval such as 4h, a time of day such as 23:30 or Saturday at 23:30, or five "
    "fields of cron in UTC"
)


def moments(text: str) -> Moments:
    """The moments of an `Every`; raises MistakeError."""
    words = text.split()
    if len(words) == len(FIELDS):
        return _cron(words)
    day, is_of_week, time = text.rpartition(" at ")
    if (found := TIME_OF_DAY.fullmatch(time)) and (not is_of_week or _is_day(day)):
        return _cron([found[2], found[1], "*", "*", day[:3] or "*"])
    try:
        interval_us = duration_us(text)
    except MistakeError:
        raise MistakeError(f"{shown(text)} names no moments", WAYS_TO_WRITE) from None
    if interval_us < INTERVAL_US_MIN:
        raise MistakeError(f"{shown(text)} is below the shortest interval", "write 1s or more")
    return lambda after_us: (after_us // interval_us + 1) * interval_us


def _is_day(word: str) -> bool:
    return word.upper() in (*DAYS, *WEEKDAYS)


def _cron(words: Iterable[str]) -> Moments:
    minutes, hours, days, months, weekdays = (
        _numbers(word, *field) for word, field in zip(words, FIELDS, strict=True)
    )
    weekdays = {number % 7 for number in weekdays}
    # As cron has it: of two that are given either is enough.
    either = len(days) < 31 and len(weekdays) < 7

    def is_day(at: datetime) -> bool:
        of_month, of_week = at.day in days, at.isoweekday() % 7 in weekdays
        return of_month or of_week if either else of_month and of_week

    def first(after_us: int) -> int:
        at = EPOCH + timedelta(minutes=after_us // MINUTE_US + 1)
        for _ in range(DAYS_MAX):
            if at.month in months and is_day(at):
                for hour in sorted(one for one in hours if one >= at.hour):
                    for minute in sorted(minutes):
                        if hour > at.hour or minute >= at.minute:
                            found = at.replace(hour=hour, minute=minute) - EPOCH
                            return found // timedelta(microseconds=1)
            at = at.replace(hour=0, minute=0) + timedelta(days=1)
        raise MistakeError("names a day that never comes", "write a day that its months have")

    first(0)
    return first


def _numbers(text: str, name: str, first: int, last: int, words: tuple[str, ...]) -> set[int]:
    """What one field of cron allows."""

    def number(word: str) -> int:
        if word.upper() in words:
            return words.index(word.upper()) + first
        value = int(word) if re.fullmatch(r"\d{1,2}", word, re.ASCII) else -1
        if not first <= value <= last:
            raise MistakeError(
                f"{shown(word)} is no {name}",
                f"write numbers from {first} to {last}, as *, 1,2, 1-5 or */2",
            )
        return value

    found: set[int] = set()
    for part in text.split(","):
        span, has_step, step = part.partition("/")
        low, is_range, high = span.partition("-")
        if span == "*":
            begin, end = first, last
        else:
            begin = number(low)
            end = number(high) if is_range else last if has_step else begin
        by = int(step) if re.fullmatch(r"[1-9]\d?", step, re.ASCII) else 0
        if (has_step and not by) or end < begin:
            raise MistakeError(f"{shown(part)} is no {name}", "write it as */2, 1-5 or 1-5/2")
        found |= {*range(begin, end + 1, by or 1)}
    return found
