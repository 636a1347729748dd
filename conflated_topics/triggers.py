"""Schedules: when pending keys are released.

`PerKey` is the schedule of AMPS: a key's window opens at its first pending update, is never
reset by later ones, lasts one interval and is half-open, so that an update at exactly the
deadline opens the next window. Deadlines are aligned to a grid that divides the interval
evenly: a window is released at the first grid point at or after its deadline. The delay is at
most a tenth of the interval and at most 20 ms, never early, and since the grid divides the interval
no key is ever released twice within one. After a pause the grid begins again with the first window:
a burst is released at its deadline, only later arrivals wait for the grid.

`Tick` releases all keys together, at whole multiples of the interval. `OnDemand` releases them when
their receiver can take more.

A schedule has only keys and times; values and folding belong to the conflator.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

K = TypeVar("K")

GATHER_US_MAX = 20_000
"""About a frame of a screen: nobody sees so short a delay."""
GATHER_FRACTION = 10
"""Grid points in an interval, at least: an update is late by at most a tenth of the interval."""

Window = TypeVar("Window")
Windows = list[Window] | deque[Window]
"""A queue of windows, which `followed` extends."""
NO_WINDOWS: list[Any] = []
"""Stands for every empty queue of windows, and is never appended to."""
SHORT = 32
"""Length up to which removing the first window of a list costs no more than of a deque. An empty
deque takes 760 bytes, and most of a hundred thousand conflated topics have at most one window."""


def followed(windows: Windows[Window], window: Window) -> Windows[Window]:
    """A queue with `window` at its end: the same one, or its replacement."""
    if windows is NO_WINDOWS:
        return [window]
    if len(windows) == SHORT and isinstance(windows, list):
        windows = deque(windows)
    windows.append(window)
    return windows


class Schedule(Protocol[K]):
    """Decides when opened keys are closed, and when closed ones are released.

    A key is opened at most once before it is closed. Times are microseconds and never go back.
    """

    def open(self, keys: list[K], now_us: int) -> None:
        """Start a window for each of `keys`, which have none."""
        ...

    def has_ended(self, now_us: int) -> bool:
        """Whether `close` would return something; fast, since every batch calls it."""
        ...

    def close(self, now_us: int) -> Iterator[tuple[int, list[K]]]:
        """Windows that have ended by `now_us`, oldest first, as (release time, keys).

        Each is returned once. Release times rise; one may lie after `now_us`.
        """
        ...

    def due_us(self) -> int | None:
        """When the oldest open window is to be released, or None."""
        ...

    def opened_us(self) -> int | None:
        """When the oldest open window was opened, or None."""
        ...

    def keys(self) -> Iterator[K]:
        """Keys whose windows are open, in the order in which they were opened."""
        ...

    def clear(self) -> None:
        """Forget all open windows."""
        ...

    def copied(self) -> "Schedule[K]":
        """A copy with the same open windows."""
        ...

    def state(self) -> list[Any]:
        """Its open windows, as numbers, keys and lists of these."""
        ...

    def go_on_from(self, state: list[Any]) -> None:
        """Have the windows of another one's `state`."""
        ...


class _Waiting(Generic[K]):
    """Open windows in the order in which they were opened; each ends with its keys."""

    __slots__ = ("_windows",)

    _windows: Windows[Any]

    def keys(self) -> Iterator[K]:
        """Keys whose windows are open, in the order in which they were opened."""
        for *_, keys in self._windows:
            yield from keys

    def clear(self) -> None:
        """Forget them."""
        self._windows.clear()


class _Timed(_Waiting[K]):
    """Windows of `interval_us`, which begin with the time at which they end."""

    __slots__ = ("interval_us",)

    def __init__(self, interval_us: int) -> None:
        if interval_us <= 0:
            raise ValueError("an interval must be positive")
        self.interval_us = interval_us
        self._windows = NO_WINDOWS

    def has_ended(self, now_us: int) -> bool:
        """Whether the oldest window has ended."""
        return bool(self._windows) and self._windows[0][0] <= now_us

    def _copy_of_windows(self) -> Windows[Any]:
        return self._windows.copy() if self._windows else NO_WINDOWS

    def state(self) -> list[Any]:
        """Its open windows."""
        return [list(window) for window in self._windows]

    def go_on_from(self, state: list[Any]) -> None:
        """Have the windows of another one's `state`."""
        windows = [*map(tuple, state)]
        self._windows = deque(windows) if len(windows) > SHORT else windows or NO_WINDOWS


class PerKey(_Timed[K]):
    """One window per key, of `interval_us` microseconds (docs/semantics.md, Rule 1).

    Raises ValueError unless the interval is positive. Times never go back.
    """

    __slots__ = ("_begin_us", "_points", "_released_us")

    def __init__(self, interval_us: int) -> None:
        # One interval for all keys makes deadlines monotone: a queue, no heap and no timers.
        super().__init__(interval_us)
        self._begin_us = 0
        """Where the grid begins."""
        self._released_us = 0
        """The release time of the last ended window."""
        # Grid points per interval: the fewest that keep gathering within both bounds.
        self._points = max(GATHER_FRACTION, -(-interval_us // GATHER_US_MAX))

    def release_us(self, deadline_us: int) -> int:
        """The grid point at which a window of this deadline is released."""
        point = -((self._begin_us - deadline_us) * self._points // self.interval_us)
        return self._begin_us - (-point * self.interval_us // self._points)

    def open(self, keys: list[K], now_us: int) -> None:
        """Start a window for each of `keys`, which have none."""
        if not self._windows and now_us >= self._released_us:
            # Earlier releases lie an interval and more before windows opened from now on.
            self._begin_us = now_us
        self._windows = followed(self._windows, (now_us + self.interval_us, keys))

    def close(self, now_us: int) -> Iterator[tuple[int, list[K]]]:
        """Windows whose deadline has come, oldest first, as (release time, keys)."""
        windows = self._windows
        while windows and windows[0][0] <= now_us:
            deadline_us, keys = windows[0]
            del windows[0]
            self._released_us = self.release_us(deadline_us)
            yield self._released_us, keys
        if not windows:
            self._windows = NO_WINDOWS

    def state(self) -> list[Any]:
        """Its open windows, and its grid."""
        return [self._begin_us, self._released_us, *super().state()]

    def go_on_from(self, state: list[Any]) -> None:
        """Have the windows and the grid of another one's `state`."""
        self._begin_us, self._released_us, *windows = state
        super().go_on_from(windows)

    def due_us(self) -> int | None:
        """When the oldest open window is to be released."""
        return self.release_us(self._windows[0][0]) if self._windows else None

    def opened_us(self) -> int | None:
        """When the oldest open window was opened."""
        return self._windows[0][0] - self.interval_us if self._windows else None

    def copied(self) -> "PerKey[K]":
        """A copy with the same open windows."""
        other: PerKey[K] = PerKey(self.interval_us)
        other._begin_us, other._released_us = self._begin_us, self._released_us
        other._windows = self._copy_of_windows()
        return other


class Tick(_Timed[K]):
    """All keys together, at every multiple of `interval_us` microseconds of the caller's clock.

    A key waits at most an interval, and is never released twice within one. Raises ValueError
    unless the interval is positive.
    """

    __slots__ = ()

    def open(self, keys: list[K], now_us: int) -> None:
        """Release these keys at the next tick; at a tick itself, at the one after it."""
        tick_us = (now_us // self.interval_us + 1) * self.interval_us
        self._windows = followed(self._windows, (tick_us, now_us, keys))

    def close(self, now_us: int) -> Iterator[tuple[int, list[K]]]:
        """Keys whose tick has come."""
        while self._windows and self._windows[0][0] <= now_us:
            tick_us, _, keys = self._windows[0]
            del self._windows[0]
            yield tick_us, keys
        if not self._windows:
            self._windows = NO_WINDOWS

    def due_us(self) -> int | None:
        """The next tick with pending keys."""
        return self._windows[0][0] if self._windows else None

    def opened_us(self) -> int | None:
        """When the oldest pending key was opened."""
        return self._windows[0][1] if self._windows else None

    def copied(self) -> "Tick[K]":
        """A copy with the same open windows."""
        other: Tick[K] = Tick(self.interval_us)
        other._windows = self._copy_of_windows()
        return other


class OnDemand(_Waiting[K]):
    """Keys stay pending until the caller releases them, however long that is."""

    def __init__(self) -> None:
        self._windows = deque()
        self._demanded = False

    def demand(self) -> None:
        """Release everything pending with the next `close`."""
        self._demanded = True

    def open(self, keys: list[K], now_us: int) -> None:
        """Start to wait with these keys."""
        self._windows.append((now_us, keys))

    def has_ended(self, _now_us: int) -> bool:
        """Whether a release was requested."""
        return self._demanded

    def close(self, now_us: int) -> Iterator[tuple[int, list[K]]]:
        """All keys after a request, none otherwise."""
        if self._demanded:
            self._demanded = False
            while self._windows:
                _, keys = self._windows[0]
                del self._windows[0]
                yield now_us, keys

    def due_us(self) -> int | None:
        """Never by itself."""
        return None

    def opened_us(self) -> int | None:
        """When the oldest pending key was opened."""
        return self._windows[0][0] if self._windows else None

    def state(self) -> list[Any]:
        """Pending keys."""
        return [self._demanded, *map(list, self._windows)]

    def go_on_from(self, state: list[Any]) -> None:
        """Have the pending keys of another one's `state`."""
        self._demanded, *windows = state
        self._windows = deque(map(tuple, windows))

    def copied(self) -> "OnDemand[K]":
        """A copy with the same pending keys."""
        other: OnDemand[K] = OnDemand()
        other._windows, other._demanded = deque(self._windows), self._demanded
        return other
