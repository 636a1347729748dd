"""What is kept of texts that clients send: filters, orders, select lists, patterns.

The same texts come again and again, and to read one takes longer than to find what was made of it.
So what was made is kept, up to a weight in all: one filter may take as much memory as a thousand
others. What nobody has asked for since the sweep before the last is let go (`sweep`): who sends a
new text with each request leaves nothing behind. When there is a sweep is up to the server.
"""

from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast
from weakref import WeakSet

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")
Function = TypeVar("Function", bound=Callable[..., Any])

ENTRY_WEIGHT = 256
"""What an entry weighs beside its text: a filter of ten characters takes 2 KB all the same."""
SWEPT_AT_ONCE = 500
"""Things that are let go in one step, or a few more, and places that are looked at: it takes some
microseconds to free a filter."""


class Cache(Generic[Key, Made]):
    """The things that were used last, of at most `weight_max` in all."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._requested: dict[Key, tuple[Made, int]] = {}
        """What was kept or asked for since the last sweep, in that order."""
        self._unasked: dict[Key, tuple[Made, int]] = {}
        self.weight = 0
        _swept.add(self)

    def __len__(self) -> int:
        return len(self._requested) + len(self._unasked)

    def get(self, key: Key) -> Made | None:
        """What was kept under `key`, if it still is."""
        found = self._requested.pop(key, None) or self._unasked.pop(key, None)
        if found is None:
            return None
        self._requested[key] = found
        return found[0]

    def keep(self, key: Key, made: Made, weight: int) -> None:
        """Keep one thing more; where there is too much, what was used longest ago goes."""
        self._forget(key)
        if weight > self._weight_max:
            return
        self._requested[key] = made, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self._forget(next(iter(self._unasked or self._requested)))

    def sweep(self) -> int:
        """Let go what nobody has asked for since the sweep before; returns how many."""
        count = len(self._unasked)
        self.weight -= sum(weight for _, weight in self._unasked.values())
        self._unasked, self._requested = self._requested, {}
        return count

    def _forget(self, key: Key) -> None:
        kept = self._requested if key in self._requested else self._unasked
        self.weight -= kept.pop(key, (None, 0))[1]


_swept: WeakSet[Cache[Any, Any]] = WeakSet()
_cleared: list[Callable[[], object]] = []


def kept(count_max: int) -> Callable[[Function], Function]:
    """Keep the last results of a function, which are soon made again: a sweep lets all of them
    go."""

    def decorated(function: Function) -> Function:
        made = lru_cache(maxsize=count_max)(function)
        clear_at_sweeps(made.cache_clear)
        return cast(Function, made)

    return decorated


def clear_at_sweeps(clear: Callable[[], object]) -> None:
    """Have a sweep call this too, which lets go what somebody else keeps."""
    _cleared.append(clear)


def sweep() -> Iterator[None]:
    """Let go what nobody has asked for since the sweep before, in steps of some milliseconds."""
    count = 0
    for one in list(_swept):
        count += 1 + one.sweep()
        if count >= SWEPT_AT_ONCE:
            count = 0
            yield
    for clear in _cleared:
        clear()
        yield
