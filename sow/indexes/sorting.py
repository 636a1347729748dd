"""Sorting in steps: rows in the order of one or several keys, however many they are.

numpy sorts a million rows in a tenth of a second, by ten keys in a second, and cannot be
interrupted. So many rows are first partitioned by some of their keys, sampled at even distances:
those between two of these can be sorted separately, and those equal to one need only their further
keys. Few rows are sorted at once. Rows equal in all keys keep their order. The result is also
picked in steps (`picked`): in random order, that takes as long.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task

ROWS_AT_ONCE = 16_384
"""Rows that one step sorts by one key, in a millisecond; by more keys, fewer."""
ROWS_AT_ONCE_MIN = 1_024
"""However many keys: the fixed cost of a step is that of about as many rows."""
BOUNDS_MAX = 128
"""Keys that bound the partitions: those of a million rows are then sorted at once."""
SAMPLES = 16
"""Sampled keys for each bound, so that no partition is much larger than the others."""

PICKED_AT_ONCE = 65_536
"""Places of a column that one step picks, in random order: half a millisecond."""

Rows = NDArray[np.int64]
Items = TypeVar("Items", bound=np.generic)
Keys = Callable[[Rows], NDArray[np.float64]]
"""The keys of some rows, ascending; no NaN."""


def sorting(rows: Rows, keys: Sequence[Keys]) -> Task[Rows]:
    """The rows in the order of the first of `keys`, equal ones in that of the next, and so on.

    Keys of rows that change meanwhile must be those of one moment, or these rows come anywhere; the
    others are in order among themselves.
    """
    at_once = max(ROWS_AT_ONCE // (len(keys) or 1), ROWS_AT_ONCE_MIN)
    if len(rows) <= at_once or not keys:
        yield
        return _sorted(rows, keys)
    first = keys[0]
    count = min(2 * len(rows) // at_once, BOUNDS_MAX)
    sample = np.sort(first(rows[:: max(1, len(rows) // (count * SAMPLES))]))
    apart = max(1, len(sample) // count)
    bounds = np.unique(sample[apart // 2 :: apart])
    parts: list[list[Rows]] = [[] for _ in range(2 * len(bounds) + 1)]
    for start in range(0, len(rows), ROWS_AT_ONCE):
        _partition(rows[start : start + ROWS_AT_ONCE], first, bounds, parts)
        yield
    done: list[Rows] = []
    for place, pieces in enumerate(parts):
        if pieces:
            part = np.concatenate(pieces)
            # Every other partition has the rows equal to a bound.
            further = keys[1:] if place % 2 else keys
            done.append((yield from sorting(part, further)) if further else part)
    yield
    return np.concatenate(done)


def picked(column: NDArray[Items], rows: Rows) -> Task[NDArray[Items]]:
    """``column[rows]``; a place that changes meanwhile may be picked before or after it does."""
    found = np.empty(len(rows), column.dtype)
    for start in range(0, len(rows), PICKED_AT_ONCE):
        some = slice(start, start + PICKED_AT_ONCE)
        found[some] = column[rows[some]]
        yield
    return found


def _sorted(rows: Rows, keys: Sequence[Keys]) -> Rows:
    if not keys:
        return rows
    ordered: Rows = rows[np.lexsort([key(rows) for key in reversed(keys)])]
    return ordered


def _partition(rows: Rows, key: Keys, bounds: NDArray[np.float64], parts: list[list[Rows]]) -> None:
    """Add rows to their partitions, in their order."""
    keys = key(rows)
    place = np.searchsorted(bounds, keys, "left") + np.searchsorted(bounds, keys, "right")
    # Two bytes are sorted by counting.
    rows = rows[np.argsort(place.astype(np.uint16), kind="stable")]
    ends = np.cumsum(np.bincount(place, minlength=len(parts)))
    for at in np.unique(place).tolist():
        parts[at].append(rows[ends[at - 1] if at else 0 : ends[at]])
