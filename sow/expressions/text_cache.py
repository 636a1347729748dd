"""What was made from texts of clients, kept for the next who sends the same.

Bounded by weight, not by number: one filter may take as much memory as a thousand others.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


class TextCache(Generic[Key, Made]):
    """The things that were kept last, of at most `weight_max` in all."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._kept: dict[Key, tuple[Made, int]] = {}
        self.weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Key) -> Made | None:
        """What was kept under `key`, if it still is."""
        found = self._kept.get(key)
        return None if found is None else found[0]

    def keep(self, key: Key, made: Made, weight: int) -> None:
        """Keep one thing more, and let the oldest go where there is too much."""
        self._forget(key)
        if weight > self._weight_max:
            return
        self._kept[key] = made, weight
        self.weight += weight
        while self.weight > self._weight_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Key) -> None:
        self.weight -= self._kept.pop(key, (None, 0))[1]
