"""Caches of what is parsed from clients' texts: filters, orders, select lists, patterns.

The same texts recur, and parsing one takes longer than a lookup. The results are cached up to a
total weight, since one filter may take as much memory as a thousand others. An entry that was not
used between two sweeps is evicted (`sweep`), so a client that sends a new text with each request
leaves nothing behind. The server decides when to sweep.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast
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


_swept: WeakSet[Cache[Any, Any]] = WeakSet()
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
