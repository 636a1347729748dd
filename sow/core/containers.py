"""Containers: a cache, a lazy heap, histograms, and dictionaries of many keys.

A cache has what is parsed from clients' texts: filters, orders, select lists, patterns. The same
texts recur, and parsing one takes longer than a lookup. The results are cached up to a total
weight, since one filter may take as much memory as a thousand others. An entry that was not used
between two sweeps is evicted (`sweep`), so a client that sends a new text with each request leaves
nothing behind. The server decides when to sweep.

A lazy heap has the least entry of many; removed entries stay until they come up. Removing from the
middle of a heap takes a search, so the owner of the entries knows which ones are still valid (a
timer's due time, a row's birth), and passes that to `first`. What was removed and does not come up
would collect below the top: an owner that removes much rebuilds the heap of what is valid once it
`is_stale`. It is a list, so that the hot paths push with `heapq.heappush`, without a call of
Python.

Histograms say how long things took, as whole numbers of how many took at most so long. Counted
where something ends, a batch or a turn at a time and never a message at a time: a look among
sixteen bounds, two additions. The Prometheus form is made at each scrape. Nothing here reads a
clock.

A dictionary that is full moves all its keys at once: 20 ms at 350,000 of them, 40 at twice as many,
and so on. In a sharded one each key is in one of many dictionaries, chosen by its hash; they grow
one by one, each in a fraction of that. It may start from an existing dictionary, which gets no new
keys any more, so that it never grows again. With every key removed from it a few others move into
their shards: its memory is free by the time a fifth of them is removed. A lookup takes some tenths
of a microsecond more than in a dictionary, so it is for large ones, and many keys are better looked
up at once. It has no order, and `get` takes a None for no value. The slots of a table's keys have
an index in C instead, if that was built: it needs a quarter of the memory, since the table has the
keys themselves, and fetches many places before it needs the first.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from functools import lru_cache
from heapq import heapify, heappop
from itertools import chain
from operator import setitem
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import WeakSet

from sow.core.inner_loops import INNER_LOOPS

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


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DICTIONARIES = 128
"""A power of two: so many that a part of ten million keys grows in some milliseconds, and so few
that their beginnings stay in the cache."""
LONG_KEYS = 300_000
"""A dictionary of more is better in parts: at 349,525 keys it would take 20 ms to grow."""
MOVED_AT_ONCE = 4
"""Keys that move with each removed one: a microsecond more for a removal, and nothing for lookups
and inserts."""
EMPTIED_AT_ONCE = 5_000
"""Keys that one step removes when all are, with their values: a millisecond."""
INDEXED_KEYS = 10_000
"""From so many keys on a table has an index of slots: they move into it in half a millisecond."""
_MASK = DICTIONARIES - 1


class ShardedDict(MutableMapping[K, V]):
    """What a dictionary is, but for the order of its keys; `first` is what it begins with, and its
    own from then on."""

    __slots__ = ("_first", "_parts")

    def __init__(self, first: dict[K, V] | None = None) -> None:
        self._first: dict[K, V] = {} if first is None else first
        """Keys that have not moved yet; none is in a part too."""
        self._parts: list[dict[K, V]] = [{} for _ in range(DICTIONARIES)]

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return bool(self._first) or any(self._parts)

    def __iter__(self) -> Iterator[K]:
        return chain(self._first, *self._parts)

    def __contains__(self, key: object) -> bool:
        return key in self._first or key in self._parts[hash(key) & _MASK]

    def __getitem__(self, key: K) -> V:
        return (self._first if key in self._first else self._parts[hash(key) & _MASK])[key]

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        found = self._first.get(key)
        if found is None:
            return self._parts[hash(key) & _MASK].get(key, default)
        return found

    def get_all(self, keys: Sequence[K]) -> list[V | None]:
        """The value of each of these keys, None where there is none: sooner than one by one."""
        if not self._first:
            return list(map(dict.get, self._parts_of(keys), keys))
        found: list[V | None] = list(map(self._first.get, keys))
        missing = [at for at, value in enumerate(found) if value is None]
        if missing:
            others = [keys[at] for at in missing]
            for at, value in zip(
                missing, map(dict.get, self._parts_of(others), others), strict=True
            ):
                found[at] = value
        return found

    def _parts_of(self, keys: Iterable[K]) -> Iterator[dict[K, V]]:
        """The part of each of them, without a step of Python's for any."""
        return map(self._parts.__getitem__, map(_MASK.__and__, map(hash, keys)))

    def __setitem__(self, key: K, value: V) -> None:
        (self._first if key in self._first else self._parts[hash(key) & _MASK])[key] = value

    def __delitem__(self, key: K) -> None:
        if self.pop(key) is None:
            raise KeyError(key)

    def pop(self, key: K, default: Any = None) -> Any:
        """Take a key out; returns its value, or `default`."""
        found = self._first.pop(key, None)
        if found is None:
            return self._parts[hash(key) & _MASK].pop(key, default)
        self._move()
        return found

    def _move(self) -> None:
        first, parts = self._first, self._parts
        for _ in range(min(MOVED_AT_ONCE, len(first))):
            key, value = first.popitem()
            parts[hash(key) & _MASK][key] = value
        if not first:
            self._first = {}  # what is empty is as large as it was

    def pieces(self) -> Iterator[list[tuple[K, V]]]:
        """All keys with their values, in pieces that others may be changed between: a key that
        moves meanwhile is in one of them, or in two."""
        yield list(self._first.items())
        for part in self._parts:
            yield list(part.items())

    def emptying(self) -> Iterator[None]:
        """Remove all keys, some at a time: at once that takes as long as growth."""
        first = self._first
        while first:
            for _ in range(min(len(first), EMPTIED_AT_ONCE)):
                first.popitem()
            yield
        self._first = {}
        for part in self._parts:
            part.clear()
            yield

    def update(self, pairs: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:  # type: ignore[override]
        """Take in keys with their values: sooner than one by one."""
        new = dict(pairs)
        if not self._first.keys().isdisjoint(new):
            for key in self._first.keys() & new:
                self._first[key] = new.pop(key)
        deque(map(setitem, self._parts_of(new), new, new.values()), 0)


class KeyTable(MutableMapping[str, int]):
    """The slots of keys, by an index in C; `names` is the table's own list of keys by slot.

    A key is in `names` before it is added here, and until it is gone from here.
    """

    __slots__ = ("_index", "_names")

    def __init__(self, names: list[str | None], slots: Mapping[str, int]) -> None:
        assert INNER_LOOPS.key_index is not None
        self._names = names
        self._index = INNER_LOOPS.key_index(names)
        self.update(slots)

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._pairs())

    def _pairs(self) -> Iterator[tuple[str, int]]:
        """All keys with their slots, a part at a time; one that goes meanwhile may be there."""
        names, part = self._names, 0
        while (slots := self._index.slots_of(part)) is not None:
            part += 1
            for slot in slots:
                if (name := names[slot]) is not None:
                    yield name, slot

    def items(self) -> ItemsView[str, int]:
        """All keys with their slots."""
        return _Pairs(self)

    def __contains__(self, key: object) -> bool:
        return bool(self._index.find(key) >= 0)

    def __getitem__(self, key: str) -> int:
        slot: int = self._index.find(key)
        if slot < 0:
            raise KeyError(key)
        return slot

    def get(self, key: str, default: Any = None) -> Any:
        """The slot of a key, or `default`."""
        slot = self._index.find(key)
        return default if slot < 0 else slot

    def get_all(self, keys: Sequence[str]) -> list[int | None]:
        """The slot of each of these keys, None where there is none: sooner than one by one."""
        slots: list[int | None] = self._index.find_all(keys)
        return slots

    def add_all(self, keys: Sequence[str], slots: Sequence[int]) -> list[int]:
        """Add those of these keys that are new; returns the slot of each."""
        held: list[int] = self._index.add_all(keys, slots)
        return held

    def __setitem__(self, key: str, slot: int) -> None:
        self._index.pop(key)
        self._index.add_all([key], [slot])

    def __delitem__(self, key: str) -> None:
        if self._index.pop(key) < 0:
            raise KeyError(key)

    def pop(self, key: str, default: Any = None) -> Any:
        """Take a key out; returns its slot, or `default`."""
        slot = self._index.pop(key)
        return default if slot < 0 else slot

    def update(self, pairs: Mapping[str, int] | Iterable[tuple[str, int]]) -> None:  # type: ignore[override]
        """Take in keys, all new, with their slots."""
        new = dict(pairs)
        self._index.add_all([*new], [*new.values()])


class _Pairs(ItemsView[str, int]):
    """Keys and slots as they are found, without looking each of them up."""

    _mapping: KeyTable

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return self._mapping._pairs()


def indexed_if_many(
    slots: MutableMapping[str, int], names: list[str | None]
) -> MutableMapping[str, int]:
    """The same slots of keys, in an index if they are many; `names` has the keys by slot."""
    many = type(slots) is dict and len(slots) > INDEXED_KEYS
    return KeyTable(names, slots) if many and INNER_LOOPS.key_index else slots


def sharded_if_long(keys: MutableMapping[K, V]) -> MutableMapping[K, V]:
    """The same keys and values, in parts if they are many."""
    return ShardedDict(keys) if type(keys) is dict and len(keys) > LONG_KEYS else keys


def get_all(held: MutableMapping[K, V], keys: Sequence[K]) -> Iterable[V | None]:
    """The value of each of these keys, None where there is none, however they are held."""
    if type(held) is dict:
        return map(held.get, keys)
    many: Any = held
    found: list[V | None] = many.get_all(keys)
    return found


def add_all(
    held: MutableMapping[str, int], keys: Sequence[str], slots: Sequence[int]
) -> Sequence[int]:
    """Add those of these keys that are new; returns the slot of each."""
    if isinstance(held, KeyTable):
        return held.add_all(keys, slots)
    return list(map(held.setdefault, keys, slots))
