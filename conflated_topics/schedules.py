"""When pending keys are let go.

`PerKey` is the schedule of AMPS: a key's window opens at its first pending update, is never
reset by later ones, lasts one interval and is half-open, so that an update at exactly the
deadline opens the next window. Deadlines are gathered onto a grid that divides the interval
evenly: a window is released at the first grid point at or after its deadline. Gathering is at
most a tenth of the interval or 20 ms, never early, and since the grid divides the interval no
key is ever released twice within one.

A schedule knows keys and times only; values and how they fold belong to the conflator.
"""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")

GATHER_US_MAX = 20_000
GATHER_FRACTION = 10


class PerKey(Generic[K]):
    """One window per key. All times in microseconds."""

    def __init__(self, interval_us: int) -> None:
        if interval_us <= 0:
            raise ValueError("an interval is longer than nothing")
        self.interval_us = interval_us
        # Grid points per interval: the fewest that keep gathering within both bounds.
        self._points = max(GATHER_FRACTION, -(-interval_us // GATHER_US_MAX))
        # One interval for all keys makes deadlines monotone: a queue, no heap and no timers.
        self._windows: deque[tuple[int, list[K]]] = deque()

    def release_us(self, deadline_us: int) -> int:
        """The grid point at which a window of this deadline is released."""
        point = -(-deadline_us * self._points // self.interval_us)
        return -(-point * self.interval_us // self._points)

    def open(self, keys: list[K], now_us: int) -> None:
        """Start a window for each of `keys`, which have none."""
        self._windows.append((now_us + self.interval_us, keys))

    def close(self, now_us: int) -> Iterator[tuple[int, list[K]]]:
        """Windows whose deadline has come, oldest first, as (release time, keys)."""
        windows = self._windows
        while windows and windows[0][0] <= now_us:
            deadline_us, keys = windows.popleft()
            yield self.release_us(deadline_us), keys

    def due_us(self) -> int | None:
        """When the oldest open window is to be released."""
        return self.release_us(self._windows[0][0]) if self._windows else None

    def opened_us(self) -> int | None:
        """When the oldest open window was opened."""
        return self._windows[0][0] - self.interval_us if self._windows else None
