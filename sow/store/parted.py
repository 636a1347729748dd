"""A dictionary in parts: one of many keys whose growth keeps nobody waiting.

A dictionary that is full moves all its keys at once: 20 ms at 350,000 of them, 40 at twice as many,
and so on. Here each key is in one of many dictionaries, told by its hash; they grow one by one,
each in a fraction of that. It may begin as a dictionary that is there already, which is not grown
any more: with every key that is new a few of its keys move into their parts.

It looks a key up in a tenth of a microsecond more than a dictionary does, so it is for what may be
long. It keeps no order, and no None.
"""

from collections.abc import Hashable, Iterable, Iterator, MutableMapping
from itertools import chain
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

DICTIONARIES = 128
"""A power of two: so many that a part of ten million keys grows in some milliseconds, and so few
that their beginnings stay in the cache."""
LONG_KEYS = 300_000
"""A dictionary of more is better in parts: at 349,525 keys it would take 20 ms to grow."""
MOVED_AT_ONCE = 4
"""Keys that move with each that is new: a microsecond more for it, and a dictionary of a million
has moved long before as many have come."""
_MASK = DICTIONARIES - 1


class PartedDict(MutableMapping[K, V]):
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
        return key in self._parts[hash(key) & _MASK] or key in self._first

    def __getitem__(self, key: K) -> V:
        found = self._parts[hash(key) & _MASK].get(key)
        return self._first[key] if found is None else found

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        found = self._parts[hash(key) & _MASK].get(key)
        if found is None and self._first:
            found = self._first.get(key)
        return default if found is None else found

    def __setitem__(self, key: K, value: V) -> None:
        if not self._first:
            self._parts[hash(key) & _MASK][key] = value
        elif key in self._first:
            self._first[key] = value
        else:
            self._parts[hash(key) & _MASK][key] = value
            self._move()

    def _move(self) -> None:
        first, parts = self._first, self._parts
        for _ in range(min(MOVED_AT_ONCE, len(first))):
            key, value = first.popitem()
            parts[hash(key) & _MASK][key] = value
        if not first:
            self._first = {}  # what is empty is as large as it was

    def __delitem__(self, key: K) -> None:
        part = self._parts[hash(key) & _MASK]
        del (part if key in part else self._first)[key]

    def pop(self, key: K, default: Any = None) -> Any:
        """Take a key out; returns its value, or `default`."""
        found = self._parts[hash(key) & _MASK].pop(key, None)
        if found is None and self._first:
            found = self._first.pop(key, None)
        return default if found is None else found

    def emptying(self) -> Iterator[None]:
        """Let all keys go, one part after the other: at once that takes as long as to grow."""
        self._first = {}
        for part in self._parts:
            part.clear()
            yield

    def update(self, pairs: Iterable[tuple[K, V]]) -> None:  # type: ignore[override]
        """Take in keys with their values."""
        for key, value in pairs:
            self[key] = value


def parted_if_long(keys: MutableMapping[K, V]) -> MutableMapping[K, V]:
    """The same keys and values, in parts if they are many."""
    return PartedDict(keys) if type(keys) is dict and len(keys) > LONG_KEYS else keys
