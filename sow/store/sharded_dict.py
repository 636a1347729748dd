"""Dictionaries of many keys that grow without long pauses: a sharded one, and a table of slots.

A dictionary that is full moves all its keys at once: 20 ms at 350,000 of them, 40 at twice as many,
and so on. Here each key is in one of many dictionaries, chosen by its hash; they grow one by one,
each in a fraction of that. It may start from an existing dictionary, which gets no new keys any
more, so that it never grows again. With every key removed from it a few others move into their
shards: its memory is free by the time a fifth of them is removed.

A lookup takes some tenths of a microsecond more than in a dictionary, so it is for large ones, and
many keys are better looked up at once. It has no order, and no None values.

The slots of a table's keys have an index in C instead, if that was built: it needs a quarter of the
memory, since the table has the keys themselves, and fetches many places before it needs the first.
"""

from collections import deque
from collections.abc import (
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from itertools import chain
from operator import setitem
from typing import Any, TypeVar

from sow.core.inner_loops import INNER_LOOPS

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
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        value: V = found
        return value

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
