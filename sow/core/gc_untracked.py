"""Untracked lists: those that Python's collector of cycles does not look through.

The collector visits every item of each list while all clients wait: a million items, all over the
memory, take tens of milliseconds, and two hundred held answers of a million each take seconds.
Bytes, texts and numbers are part of no cycle, so a list of nothing else need not be looked at: the
collector finds that out by itself for tuples and dictionaries, but not for lists. The list is freed
by its reference count, like any other.

This module does not look at what is in the list: of one that holds anything else, whatever is in a
circle with it would never be freed.
"""

import ctypes
from typing import TypeVar

Item = TypeVar("Item")

# Of CPython's interface for those who make containers; it may be said twice of the same one.
_untrack = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyObject_GC_UnTrack", ctypes.pythonapi))


def untracked(items: list[Item]) -> list[Item]:
    """The same list, of bytes, texts and numbers alone now and later, looked through no more."""
    _untrack(items)
    return items
