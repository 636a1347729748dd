"""Conflation is composition over time: a dictionary of folded values per key.

A conflator keeps at most one pending value per key however often the key is offered. *How* two
values become one is its `fold` (by default the newer one stands), *when* a key is let go is its
schedule's business. A window that has closed keeps the value it closed with, even when it is
taken later, so where takes fall never changes what comes out.

    offer ──> pending (one value per key) ──deadline──> closed ──release──> take

It does not compare values, apply filters or know what a record is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import reduce
from itertools import islice
from typing import Generic, TypeVar

from conflated_topics.triggers import NO_WINDOWS, Schedule, Windows, followed

K = TypeVar("K")
V = TypeVar("V")
Fold = Callable[[V, V], V]


JOINED_FACTOR = 8
"""For each key that is taken when not all are, so many of later windows that are due are joined
with the first: so they never pile up, and it costs less than what is done with those taken."""


class Conflator(Generic[K, V]):
    """Pending values, at most one for each key, under one schedule (docs/semantics.md, Rule 1).

    `schedule` says when keys are let go, and belongs to this conflator alone. `fold(current, new)`
    makes one value of two of the same key; None lets the newer one stand. It must not change what
    it is given. Keys are anything hashable, values anything at all. All times are microseconds of
    one clock of the caller's, and never go back from one call to the next.
    """

    __slots__ = ("_closed", "_fold", "_pending", "schedule")

    def __init__(self, schedule: Schedule[K], fold: Fold[V] | None = None) -> None:
        self.schedule = schedule
        self._fold = fold
        self._pending: dict[K, V] = {}
        self._closed: Windows[tuple[int, dict[K, V]]] = NO_WINDOWS

    def __len__(self) -> int:
        """Keys that wait, in open and in closed windows."""
        return len(self._pending) + sum(len(entries) for _, entries in self._closed)

    @property
    def is_idle(self) -> bool:
        """Nothing waits."""
        return not self._pending and not self._closed

    def begin_like(self, other: "Conflator[K, V]") -> None:
        """Let wait what waits in another one; only where nothing does yet, and under a copy of its
        schedule."""
        self._pending = dict(other._pending)
        if other._closed:
            self._closed = [(at_us, dict(entries)) for at_us, entries in other._closed]

    def reschedule(self, schedule: Schedule[K], now_us: int) -> None:
        """Go on under `schedule`, to which all keys that wait are opened at `now_us`; what is in
        windows that have ended by then is due at once. Nothing that waits is looked at."""
        self._close(now_us)
        if self._closed and self._closed[-1][0] > now_us:
            # It is gathered: a window of the new kind may be due before it.
            self._closed[-1] = (now_us, self._closed[-1][1])
        self.schedule = schedule
        if self._pending:
            schedule.open(list(self._pending), now_us)

    def refold(self, fold: Fold[V] | None) -> None:
        """Fold with `fold` from now on (None: the newer stands); what waits goes on waiting."""
        self._fold = fold

    def offer(self, keys: Sequence[K], values: Iterable[V], now_us: int) -> None:
        """Fold a batch in, in order, at the time `now_us`.

        `values[i]` is of `keys[i]`, and a key may stand there more than once. A key that was not
        pending opens a window at `now_us`. Raises ValueError if there are more of one than of the
        other.
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
        """The time from which on `take` has something to give; None while nothing waits."""
        return self._closed[0][0] if self._closed else self.schedule.due_us()

    def oldest_us(self) -> int | None:
        """When the open window that has waited longest was opened; None if none is open."""
        return self.schedule.opened_us()

    def pending(self) -> Mapping[K, V]:
        """What waits for each key, folded where several of its windows do. Only to be looked at."""
        if not self._closed:
            return self._pending
        waiting: dict[K, V] = {}
        for _, entries in self._closed:
            self._put(waiting, entries)
        self._put(waiting, self._pending)
        return waiting

    def keys(self) -> list[K]:
        """All keys that wait, one that does in several windows as often; none is looked at."""
        waiting: list[K] = []
        for _, entries in self._closed:
            waiting += entries
        waiting += self._pending
        return waiting

    def folded(self, key: K) -> V | None:
        """What waits for one key, as `pending` has it; None: nothing."""
        values = [entries[key] for _, entries in self._closed if key in entries]
        if key in self._pending:
            values.append(self._pending[key])
        if not values:
            return None
        return values[-1] if self._fold is None else reduce(self._fold, values)

    def open_keys(self, now_us: int) -> Set[K]:
        """The keys in windows that have not ended by `now_us`. Only to be looked at."""
        self._close(now_us)
        return self._pending.keys()

    @property
    def has_closed(self) -> bool:
        """Some window has ended and was not taken."""
        return bool(self._closed)

    def is_open(self, key: K, now_us: int) -> bool:
        """Whether `key` is in a window that has not ended by `now_us`."""
        self._close(now_us)
        return key in self._pending

    def among(self, keys: Set[K]) -> set[K]:
        """Those of `keys` that wait, in whatever window."""
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
        """The newest value that waits for `key`, in whatever window; None: in none."""
        return self._pending[key] if key in self._pending else self.closed(key)

    def take(self, now_us: int, count_max: int | None = None) -> dict[K, V]:
        """What is released by `now_us`: a value for each key, those of the oldest window first.

        With `count_max` it is so many keys at most; `due_us` says whether there are more. What is
        handed over is the caller's and waits no longer. Taking late hands over more at once, and
        never other values.
        """
        self._close(now_us)
        if count_max is not None:
            self._join(now_us, JOINED_FACTOR * count_max)
            taken = self._take_some(now_us, count_max)
        else:
            taken = {}
            while self._is_due(0, now_us):
                self._put(taken, self._closed[0][1])
                del self._closed[0]
        if not self._closed:
            self._closed = NO_WINDOWS
        return taken

    def _is_due(self, at: int, now_us: int) -> bool:
        return len(self._closed) > at and self._closed[at][0] <= now_us

    def _join(self, now_us: int, count: int) -> None:
        """Bring keys of windows that are due into the first of them, about `count` at most: they
        are late, and are to be released once."""
        while count > 0 and self._is_due(1, now_us):
            later = self._closed[1][1]
            some = list(islice(later, count))
            count -= len(some)
            self._put(self._closed[0][1], {key: later.pop(key) for key in some})
            if not later:
                del self._closed[1]

    def _take_some(self, now_us: int, count: int) -> dict[K, V]:
        """The first keys of the first window, with what other windows that are due have of them."""
        if not self._is_due(0, now_us):
            return {}
        at, taken = 0, self._closed[0][1]
        if len(taken) > count:
            at, first = 1, taken
            taken = {key: first.pop(key) for key in list(islice(first, count))}
        else:
            del self._closed[0]
        while self._is_due(at, now_us):
            later = self._closed[at][1]
            self._put(taken, {key: later.pop(key) for key in taken if key in later})
            if later:
                at += 1
            else:
                del self._closed[at]
        return taken

    def take_all(self) -> dict[K, V]:
        """All that waits, each key once, oldest window first, whether its window has ended or not;
        for whoever knows that nothing more will come."""
        taken = self._pending if not self._closed else dict(self.pending())
        self.clear()
        return taken

    def clear(self) -> None:
        """Let nothing wait any more; it may have failed in the middle of a fold."""
        self._closed = NO_WINDOWS
        self._pending = {}
        self.schedule.clear()

    def _put(self, taken: dict[K, V], entries: dict[K, V]) -> None:
        """Windows of one key that are taken together, because a take came late, are folded."""
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
        """What the schedule has just closed, where it is most of what waits: the others move."""
        entries = self._pending
        self._pending = {key: entries.pop(key) for key in list(self.schedule.keys())}
        return entries

    def _end(self, release_us: int, entries: dict[K, V]) -> None:
        if self._closed and self._closed[-1][0] == release_us:
            self._put(self._closed[-1][1], entries)
        elif entries:
            self._closed = followed(self._closed, (release_us, entries))

    def check(self) -> None:
        """Assert what everything above relies on: a key has one window, the schedule knows it and
        ends windows in the order in which they were opened."""
        assert list(self.schedule.keys()) == list(self._pending), "a window is not its key's"
        releases_us = [release_us for release_us, _ in self._closed]
        assert releases_us == sorted(set(releases_us)), "a window overtakes an older one"
        assert all(entries for _, entries in self._closed), "a window has ended without a key"
        due_us = self.schedule.due_us()
        if releases_us and due_us is not None:
            assert releases_us[-1] <= due_us, "an open window is due before one that has ended"
