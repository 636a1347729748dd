"""Small containers: a cache, a lazy heap, and histograms.

A cache has what is parsed from clients' texts: filters, orders, select lists, patterns. The same
texts recur, and parsing one takes longer than a lookup. The results are cached up to a
total weight, since one filter may take as much memory as a thousand others. An entry that was not
used between two sweeps is evicted (`sweep`), so a client that sends a new text with each request
leaves nothing behind. The server decides when to sweep.

A lazy heap has the least entry of many; removed entries stay until they come up. Removing from the
middle of a heap takes a search, so the owner of the entries knows which ones are still valid (a
timer's due time, a row's birth), and passes that to `first`. What was removed and does not come up
would collect below the top: an owner that removes much rebuilds the heap of what is valid once it
`is_stale`.

It is a list, so that the hot paths push with `heapq.heappush`, without a call of Python.

Histograms say how long things took, as whole numbers of how many took at most so long. Counted
where something ends, a batch or a turn at a time and never a message at a time: a look among
sixteen bounds, two additions. The Prometheus form is made at each scrape. Nothing here reads a
clock.
"""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from heapq import heapify, heappop
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import WeakSet

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")
Function = TypeVar("Function", bound=Callable[..., Any])

ENTRY_WEIGHT = 256
"""The weight of an entry besides its text: even a filter of ten characters takes 2 KB."""
SWEPT_AT_ONCE = 500
"""Entries and caches handled in one step, or a few more: freeing a filter takes some
microseconds."""


class Cache(Generic[Key, Made]):
    """A least-recently-used cache of at most `weight_max` in total."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._used: dict[Key, tuple[Made, int]] = {}
        """Entries stored or used since the last sweep, in that order."""
        self._idle: dict[Key, tuple[Made, int]] = {}
        self.weight = 0
        _swept.add(self)

    def __len__(self) -> int:
        return len(self._used) + len(self._idle)

    def get(self, key: Key) -> Made | None:
        """The entry of `key`, or None."""
        found = self._used.pop(key, None) or self._idle.pop(key, None)
        if found is None:
            return None
        self._used[key] = found
        return found[0]

    def keep(self, key: Key, made: Made, weight: int) -> None:
        """Store an entry; beyond the maximum weight, the least recently used ones are evicted."""
        self._forget(key)
        if weight > self._weight_max:
            return
        self._used[key] = made, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self._forget(next(iter(self._idle or self._used)))

    def sweep(self) -> int:
        """Evict the entries that were not used since the previous sweep; returns how many."""
        count = len(self._idle)
        self.weight -= sum(weight for _, weight in self._idle.values())
        self._idle, self._used = self._used, {}
        return count

    def _forget(self, key: Key) -> None:
        kept = self._used if key in self._used else self._idle
        self.weight -= kept.pop(key, (None, 0))[1]


class Swept(Protocol):
    """A cache that evicts at each sweep what was not used since the previous one."""

    def sweep(self) -> int:
        """Evict; returns how many."""
        ...


_swept: WeakSet[Swept] = WeakSet()
_cleared: list[Callable[[], object]] = []


def kept(count_max: int) -> Callable[[Function], Function]:
    """Cache the last results of a function that are cheap to compute again: a sweep evicts all of
    them."""

    def decorated(function: Function) -> Function:
        made = lru_cache(maxsize=count_max)(function)
        clear_at_sweeps(made.cache_clear)
        return cast(Function, made)

    return decorated


def clear_at_sweeps(clear: Callable[[], object]) -> None:
    """Have each sweep call `clear` too, for a cache kept elsewhere."""
    _cleared.append(clear)


def sweep_too(one: Swept) -> None:
    """Have each sweep sweep this cache, as long as it is used."""
    _swept.add(one)


def sweep() -> Iterator[None]:
    """Evict from all caches what was not used since the previous sweep, in steps of some
    milliseconds."""
    count = 0
    for one in list(_swept):
        count += 1 + one.sweep()
        if count >= SWEPT_AT_ONCE:
            count = 0
            yield
    for clear in _cleared:
        clear()
        yield


Entry = TypeVar("Entry", bound=Any)

SLACK = 64
"""Removed entries that are kept beside as many again as there are valid ones: a small heap is never
rebuilt."""


class LazyHeap(list[Entry]):
    """A heap of entries, removed ones included until they come up."""

    __slots__ = ()

    def first(self, is_valid: Callable[[Entry], bool]) -> Entry | None:
        """The least valid entry, None without one; drops the removed ones before it."""
        while self and not is_valid(self[0]):
            heappop(self)
        return self[0] if self else None

    def is_stale(self, valid: int) -> bool:
        """Whether removed entries outnumber the `valid` ones by far."""
        return len(self) > 2 * valid + SLACK

    def rebuild(self, valid: Iterable[Entry]) -> None:
        """Hold only these entries."""
        self[:] = valid
        heapify(self)

    def check(self) -> None:
        """Assert that it is a heap."""
        for at in range(1, len(self)):
            assert self[(at - 1) // 2] <= self[at]


BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0,
)  # fmt: skip
"""Bounds for everything measured here: from a dictionary lookup to a timeout. The same everywhere,
so that two figures can be compared."""


class Histogram:
    """How many took at most as long as each bound, and how long all of them took."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """By the first bound that is not less; the last is of those over all bounds."""
        self.sum_s = 0.0

    def note(self, took_s: float, times: int = 1) -> None:
        """So many took `took_s` seconds each."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += times
        self.sum_s += took_s * times

    def cumulative(self) -> list[tuple[str, float]]:
        """How many took at most so long, by the bound as Prometheus writes it."""
        total, found = 0, []
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self.counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
