"""Conflation is composition over time: a dictionary of folded values per key.

A conflator keeps at most one pending value per key however often the key is offered. Its `fold`
combines two values (by default the newer one stands), its schedule decides when a key is released.
A closed window keeps its value even if it is taken later, so the times of takes never change the
results.

    offer ──> pending (one value per key) ──deadline──> closed ──release──> take

It does not compare values or apply filters, and has no notion of records.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import reduce
from itertools import islice
from typing import Any, Generic, TypeVar

from conflated_topics.triggers import NO_WINDOWS, Schedule, Windows, followed

K = TypeVar("K")
V = TypeVar("V")
Fold = Callable[[V, V], V]


WINDOWS_MAX = 1_000
"""Windows that have ended and wait for a take, at most: as they end every 20 ms at the soonest,
their receiver is then 20 s late at least. Later ones are folded into the last of them, so that what
waits is bounded."""


class Conflator(Generic[K, V]):
    """Pending values, at most one for each key, under one schedule (docs/semantics.md, Rule 1).

    `schedule` decides when keys are released, and belongs to this conflator alone.
    `fold(current, new)` combines two values of the same key; None keeps the newer one. It must not
    change its arguments. Keys are anything hashable, values anything at all. All times are
    microseconds of one clock of the caller's, and never go back from one call to the next.
    """

    __slots__ = ("_closed", "_fold", "_pending", "schedule")

    def __init__(self, schedule: Schedule[K], fold: Fold[V] | None = None) -> None:
        self.schedule = schedule
        self._fold = fold
        self._pending: dict[K, V] = {}
        self._closed: Windows[tuple[int, dict[K, V]]] = NO_WINDOWS

    def __len__(self) -> int:
        """Pending keys, in open and in closed windows."""
        return len(self._pending) + sum(len(entries) for _, entries in self._closed)

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return not self._pending and not self._closed

    def begin_like(self, other: "Conflator[K, V]") -> None:
        """Copy the pending values of another conflator; only while this one has none, and under a
        copy of the other's schedule."""
        self._pending = dict(other._pending)
        if other._closed:
            self._closed = [(at_us, dict(entries)) for at_us, entries in other._closed]

    def state(self) -> list[Any]:
        """All that waits and its windows, in lists: schedule, pending, closed."""
        closed = [[at_us, [*map(list, entries.items())]] for at_us, entries in self._closed]
        return [self.schedule.state(), [*map(list, self._pending.items())], closed]

    def go_on_from(self, state: list[Any]) -> None:
        """Have what waits by another one's `state`, under a schedule of the same kind."""
        windows, pending, closed = state
        self.schedule.go_on_from(windows)
        self._pending = {key: value for key, value in pending}
        self._closed = [(at_us, dict(entries)) for at_us, entries in closed] or NO_WINDOWS

    def reschedule(self, schedule: Schedule[K], now_us: int) -> None:
        """Switch to `schedule`, which opens all pending keys at `now_us`; windows that have ended
        by then are due at once. Does not look at pending values."""
        self._close(now_us)
        if self._closed and self._closed[-1][0] > now_us:
            # Released on the grid: a window of the new kind may be due before it.
            self._closed[-1] = (now_us, self._closed[-1][1])
        self.schedule = schedule
        if self._pending:
            schedule.open(list(self._pending), now_us)

    def refold(self, fold: Fold[V] | None) -> None:
        """Use `fold` from now on (None: the newer stands); pending values stay."""
        self._fold = fold

    def offer(self, keys: Sequence[K], values: Iterable[V], now_us: int) -> None:
        """Fold a batch in, in order, at the time `now_us`.

        `values[i]` belongs to `keys[i]`, and a key may occur more than once. A key that was not
        pending opens a window at `now_us`. Raises ValueError if the lengths differ.
        """
        self._close(now_us)
        if len(keys) == 1:
            (value,) = values
            self._offer_one(keys[0], value, now_us)
            return
        pending, before = self._pending, len(self._pending)
        if self._fold is None:
            pending.update(zip(keys, values, strict=True))
        else:
            for key, value in zip(keys, values, strict=True):
                pending[key] = self._fold(pending[key], value) if key in pending else value
        if len(pending) > before:
            # A dictionary has its newest keys at its end.
            fresh = list(islice(reversed(pending), len(pending) - before))
            self.schedule.open(fresh[::-1], now_us)

    def _offer_one(self, key: K, value: V, now_us: int) -> None:
        pending = self._pending
        if key not in pending:
            self.schedule.open([key], now_us)
        elif self._fold is not None:
            value = self._fold(pending[key], value)
        pending[key] = value

    def due_us(self) -> int | None:
        """The time from which on `take` returns something; None while nothing is pending."""
        return self._closed[0][0] if self._closed else self.schedule.due_us()

    def oldest_us(self) -> int | None:
        """The opening time of the oldest open window; None if none is open."""
        return self.schedule.opened_us()

    def pending(self) -> Mapping[K, V]:
        """The pending value of each key, folded over its windows. Read-only."""
        if not self._closed:
            return self._pending
        waiting: dict[K, V] = {}
        for _, entries in self._closed:
            self._put(waiting, entries)
        self._put(waiting, self._pending)
        return waiting

    def keys(self) -> list[K]:
        """All pending keys, once per window, without looking at the values."""
        waiting: list[K] = []
        for _, entries in self._closed:
            waiting += entries
        waiting += self._pending
        return waiting

    def folded(self, key: K) -> V | None:
        """The pending value of one key, as in `pending`; None: nothing."""
        values = [entries[key] for _, entries in self._closed if key in entries]
        if key in self._pending:
            values.append(self._pending[key])
        if not values:
            return None
        return values[-1] if self._fold is None else reduce(self._fold, values)

    def open_keys(self, now_us: int) -> Set[K]:
        """The keys in windows that have not ended by `now_us`. Read-only."""
        self._close(now_us)
        return self._pending.keys()

    @property
    def has_closed(self) -> bool:
        """Whether some window has ended and was not taken."""
        return bool(self._closed)

    def among(self, keys: Set[K]) -> set[K]:
        """Those of `keys` that are pending, in any window."""
        found = self._pending.keys() & keys
        for _, entries in self._closed:
            found |= entries.keys() & keys
        return found

    def closed(self, key: K) -> V | None:
        """The newest value of `key` in a window that has ended and was not taken; None: in none."""
        for _, entries in reversed(self._closed):
            if key in entries:
                return entries[key]
        return None

    def newest(self, key: K) -> V | None:
        """The newest pending value of `key`, in any window; None: in none."""
        return self._pending[key] if key in self._pending else self.closed(key)

    def take(self, now_us: int, count_max: int | None = None) -> dict[K, V]:
        """Release what is due by `now_us`: a value for each key, those of the oldest window first.

        `count_max` limits the number of keys, and what is taken to the oldest window: then a key is
        released once for each of its windows, however late. `due_us` shows whether there are more.
        The caller owns the result.
        """
        self._close(now_us)
        taken: dict[K, V] = {}
        if count_max is not None:
            taken = self._take_some(now_us, count_max)
        else:
            while self._is_due(now_us):
                self._put(taken, self._closed[0][1])
                del self._closed[0]
        if not self._closed:
            self._closed = NO_WINDOWS
        return taken

    def turn_us(self, now_us: int) -> int | None:
        """When the oldest window that has ended by `now_us` is to be released; None: none has."""
        self._close(now_us)
        return self._closed[0][0] if self._closed else None

    def _is_due(self, now_us: int) -> bool:
        return bool(self._closed) and self._closed[0][0] <= now_us

    def _take_some(self, now_us: int, count: int) -> dict[K, V]:
        """The first keys of the oldest window."""
        if not self._is_due(now_us):
            return {}
        first = self._closed[0][1]
        if len(first) > count:
            return {key: first.pop(key) for key in list(islice(first, count))}
        del self._closed[0]
        return first

    def take_all(self) -> dict[K, V]:
        """Release everything pending, each key once, oldest window first, whether its window has
        ended or not; for callers at the end of a stream."""
        taken = self._pending if not self._closed else dict(self.pending())
        self.clear()
        return taken

    def clear(self) -> None:
        """Drop everything pending, even after a fold that failed midway."""
        self._closed = NO_WINDOWS
        self._pending = {}
        self.schedule.clear()

    def _put(self, taken: dict[K, V], entries: dict[K, V]) -> None:
        """Fold windows of one key that are taken together, because a take came late."""
        if self._fold is None:
            taken.update(entries)
            return
        for key, value in entries.items():
            taken[key] = self._fold(taken[key], value) if key in taken else value

    def _close(self, now_us: int) -> None:
        if not self.schedule.has_ended(now_us):
            return
        ended = list(self.schedule.close(now_us))
        if not ended:
            return
        releases_us, closing = zip(*ended, strict=True)
        if releases_us[0] == releases_us[-1] and sum(map(len, closing)) > len(self._pending) // 2:
            self._end(releases_us[0], self._split())
            return
        for release_us, keys in ended:
            self._end(release_us, dict(zip(keys, map(self._pending.pop, keys), strict=True)))

    def _split(self) -> dict[K, V]:
        """Close the windows that the schedule ended. If these are most of the pending keys, move
        the others instead."""
        entries = self._pending
        self._pending = {key: entries.pop(key) for key in list(self.schedule.keys())}
        return entries

    def _end(self, release_us: int, entries: dict[K, V]) -> None:
        if self._closed and (self._closed[-1][0] == release_us or len(self._closed) == WINDOWS_MAX):
            self._put(self._closed[-1][1], entries)
        elif entries:
            self._closed = followed(self._closed, (release_us, entries))

    def check(self) -> None:
        """Assert the invariants: a key has one window, the schedule has the same keys, and windows
        end in the order in which they were opened."""
        assert list(self.schedule.keys()) == list(self._pending), "a window is not its key's"
        releases_us = [release_us for release_us, _ in self._closed]
        assert releases_us == sorted(set(releases_us)), "a window overtakes an older one"
        assert all(entries for _, entries in self._closed), "a window has ended without a key"
        due_us = self.schedule.due_us()
        if releases_us and due_us is not None:
            assert releases_us[-1] <= due_us, "an open window is due before one that has ended"
