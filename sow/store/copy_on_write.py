"""Copy on write: a column of a table as of one moment, while the table changes.

Copying the references of a million records takes tens of milliseconds, which would delay all
clients. So a reader that needs a column as of one moment takes a hold, which is empty at first:
from then on every replaced or removed value is saved in it. The value of a slot is the one saved in
the hold, or else the current one. The references are copied in steps, and then the hold is
released: it is weakly referenced, so nothing is saved any more.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar
from weakref import ref

Value = TypeVar("Value")


class Before(dict[int, Value]):
    """By slot, the value at the time of the hold, if it was replaced since."""

    __slots__ = ("__weakref__",)


class CopyOnWrite(Generic[Value]):
    """The holds of one column that are still referenced."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: list[ref[Before[Value]]] = []

    def take(self) -> Before[Value]:
        """A new one, of this moment."""
        hold = Before[Value]()
        self._refs.append(ref(hold))
        return hold

    def save(self, slots: Sequence[int], values: Iterable[Value]) -> bool:
        """Save these replaced values; returns whether any hold is left."""
        there = [hold for one in self._refs if (hold := one()) is not None]
        self._refs = list(map(ref, there))
        if there:
            saved = list(zip(slots, values, strict=True))
            for hold in there:
                for slot, value in saved:
                    # If a slot is named twice, its first value is the old one.
                    hold.setdefault(slot, value)
        return bool(there)
