"""A lazy heap: the least entry of many, where entries that are removed stay until they come up.

Removing from the middle of a heap takes a search, so the owner of the entries knows which ones are
still valid (a timer's due time, a row's birth), and passes that to `first`. What was removed and
does not come up would collect below the top: an owner that removes much rebuilds the heap of what
is valid once it `is_stale`.

It is a list, so that the hot paths push with `heapq.heappush`, without a call of Python.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop
from typing import Any, TypeVar

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
