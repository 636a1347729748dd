"""Where the windows of a recorded log begin and end, for all keys at once.

The records stand key by key, each key's in time order. The idea: lay all keys end to end on one
line. A step from one record to the next is as long as the time between them, but never longer than
the interval, and the step to another key is a whole interval. Shortening changes nothing, since a
gap of an interval always ends a window; and so one sorted search finds for every record where a
window that it opens would end, without regard to keys. What remains is to walk from window to
window, which costs one look-up per window and is as fast for one hot key as for a million.

It uses only times: other modules define keys, folds and the windows that count.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Longer lines are cut in two, so that positions on them stay within 64 bits.
LINE_US_MAX = 2**62
# Beyond this one key alone could overrun the line; it is 73 thousand years.
SPAN_US_MAX = 2**61


def cut(
    time_us: Ints, leads: Flags, interval_us: int, opens: Flags | None = None
) -> tuple[Ints, Ints]:
    """First record of every window, and the record after its last one.

    `leads` marks the first record of each key, `opens` those that may open a window (None: all);
    records before one that may belong to no window.
    """
    if not len(time_us):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = _ends(time_us, leads, interval_us)
    following = ends if opens is None else _next_open(opens)[ends]
    first = 0 if opens is None else int(_next_open(opens)[0])
    starts = _walk(following, first)
    return starts, ends[starts]


def _ends(time_us: Ints, leads: Flags, interval_us: int) -> Ints:
    """For every record, the end of the window that it would open."""
    span_us = int(time_us.max()) - int(time_us.min())
    if span_us > SPAN_US_MAX:
        raise ValueError(
            "the times lie more than 73,000 years apart; leave out records whose time is wrong"
        )
    # An interval longer than everything ends where everything does.
    reach_us = min(interval_us, span_us + 1)
    steps = np.diff(time_us, prepend=time_us[0])
    np.minimum(steps, reach_us, out=steps)
    steps[leads] = reach_us
    if steps.sum(dtype=np.float64) > LINE_US_MAX:
        return _ends_by_halves(time_us, leads, interval_us)
    line = np.cumsum(steps)
    return np.searchsorted(line, line + reach_us)


def _ends_by_halves(time_us: Ints, leads: Flags, interval_us: int) -> Ints:
    keys = np.flatnonzero(leads)
    middle = int(keys[len(keys) // 2])
    left = _ends(time_us[:middle], leads[:middle], interval_us)
    right = _ends(time_us[middle:], leads[middle:], interval_us)
    return np.concatenate((left, right + middle))


def _next_open(opens: Flags) -> Ints:
    """For every record and for the end, the first record from there on that opens a window."""
    count = len(opens)
    own = np.append(np.where(opens, np.arange(count), count), count)
    return np.minimum.accumulate(own[::-1])[::-1]


def _walk(following: Ints, first: int) -> Ints:
    # Where a window starts depends on where the one before ended, so this is a loop. A memory
    # view gives plain integers, which makes it several times faster than indexing an array.
    jump, count = np.ascontiguousarray(following).data, len(following)
    starts, at = [], first
    while at < count:
        starts.append(at)
        at = jump[at]
    return np.array(starts, np.int64)
