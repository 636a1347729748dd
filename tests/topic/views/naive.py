"""Aggregates of the rows of a group, each computed from scratch from all of them, by its
definition."""

import math
import statistics
from fractions import Fraction

from sow.expressions import as_number, as_text, compare


def present(values):
    """The values that are not NULL, a list by its first."""
    firsts = [
        (value[0] if value else None) if isinstance(value, list) else value for value in values
    ]
    return [one for one in firsts if one is not None and one != ""]


def unusual(read):
    """NaN and the infinities among numbers."""
    return [one for one in read if isinstance(one, float) and not math.isfinite(one)]


def numbers(values):
    """The values as numbers: what is none is NaN."""
    read = [as_number(one) if isinstance(one, str) else one + 0 for one in present(values)]
    return [math.nan if one is None else one for one in read]


def total(values):
    read = numbers(values)
    if not read:
        return None
    if all(isinstance(one, int) for one in read):
        return sum(read)
    if unusual(read):
        return sum(unusual(read))
    return divided(sum(map(Fraction, read)), 1)


def average(values):
    read = numbers(values)
    if not read:
        return None
    if unusual(read):
        return sum(unusual(read))
    return divided(sum(map(Fraction, read)), len(read))


def divided(one, other):
    try:
        return float(one / other)
    except OverflowError:
        return math.inf if one > 0 else -math.inf


def deviation(values, of_sample):
    read = numbers(values)
    if len(read) <= of_sample:
        return None
    if unusual(read):
        return math.nan
    run = statistics.stdev if of_sample else statistics.pstdev
    try:
        return run(map(Fraction, read))
    except OverflowError:
        return math.inf


def classes(values):
    """The values in classes, each of what equals each other, directly or through others."""
    found = []
    for one in present(values):
        equal = [group for group in found if any(compare("=", one, other) for other in group)]
        if one != one:
            equal = [group for group in found if group[0] != group[0]]
        found = [group for group in found if group not in equal]
        found.append([one, *[other for group in equal for other in group]])
    return found


def extreme(values, symbol):
    """The value that is less, or greater, than all others, as it is to be written."""
    there = present(values)
    if any(one != one for one in there):
        return math.nan
    mixed = any(not isinstance(one, str) for one in there)
    keys = [by_number(one) if mixed else one for one in there]
    best = [
        one
        for one, key in zip(there, keys, strict=True)
        if not any(compare(symbol, other, key) for other in keys)
    ]
    return written(best, there)


def by_number(value):
    """Among numbers, a text is the number that it spells."""
    number = as_number(value) if isinstance(value, str) else None
    return value if number is None else number


def anything(values):
    there = [one for one in present(values) if one == one]
    return extreme(there, "<") if there else extreme(values, "<")


def unique(values):
    there = present(values)
    if any(one != one for one in there) or len(classes(values)) != 1:
        return None
    return written(there, there)


def concatenated(values, borns, separator):
    texts = {}
    for value, born in zip(values, borns, strict=True):
        for one in present([value]):
            texts[as_text(one)] = min(born, texts.get(as_text(one), born))
    return separator.join(sorted(texts, key=lambda text: (texts[text], text))) or None


OF_VALUES = {
    "ANY": anything,
    "AVG": average,
    "COUNT": lambda values: len(present(values)),
    "COUNT_DISTINCT": lambda values: len(classes(values)),
    "MAX": lambda values: extreme(values, ">"),
    "MIN": lambda values: extreme(values, "<"),
    "STDDEV_POP": lambda values: deviation(values, 0),
    "STDDEV_SAMP": lambda values: deviation(values, 1),
    "SUM": total,
    "UNIQUE": unique,
}
"""Those for which it does not matter when rows came."""


def aggregate(kind, values, borns, seqs, separator=","):
    """What an aggregate of rows with these values comes to."""
    if kind == "GROUP_CONCAT":
        return concatenated(values, borns, separator)
    if kind == "LAST":
        rows = list(zip(seqs, borns, values, strict=True))
        return max(rows, key=lambda row: row[:2])[2] if rows else None
    return OF_VALUES[kind](values)


def written(best, there):
    """Of equal values one: a number before a text, and a number of the kinds that there are."""
    if not best:
        return None
    plain = [one for one in best if not isinstance(one, str)]
    if not plain:
        return min(best)
    kinds = {type(one) for one in there if not isinstance(one, str)}
    one = plain[0]
    if len(kinds) == 1:
        return one + 0.0 if kinds == {float} else one
    if float not in kinds:
        return int(one)
    if isinstance(one, float) and not one.is_integer():
        return one
    try:
        exact = float(one) == one
    except OverflowError:
        exact = False
    return float(one) if abs(one) >= 2**53 and exact else int(one)
