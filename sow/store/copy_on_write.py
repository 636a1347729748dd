"""Holds: what stood in a column of a table at one moment, while the table goes on.

Taking references of a million records takes tens of milliseconds, in which everybody waits. So who
wants what stands in a column at one moment takes a hold, which is nothing yet: from then on it is
told whatever is replaced or removed. What stood in a slot is what the hold was told of it, or else
what stands there still. The references are picked in steps, and then the hold is let go: nobody
refers to it, so it is told no more.
"""

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar
from weakref import ref

Value = TypeVar("Value")


class Before(dict[int, Value]):
    """By slot, what stood there when the hold was taken and does not any more."""

    __slots__ = ("__weakref__",)


class CopyOnWrite(Generic[Value]):
    """The holds of one column that somebody still refers to."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: list[ref[Before[Value]]] = []

    def take(self) -> Before[Value]:
        """A new one, of this moment."""
        hold = Before[Value]()
        self._refs.append(ref(hold))
        return hold

    def tell(self, slots: Sequence[int], values: Iterable[Value]) -> bool:
        """These values stand in these slots no more; whether anybody wants to know of others."""
        there = [hold for one in self._refs if (hold := one()) is not None]
        self._refs = list(map(ref, there))
        if there:
            told = list(zip(slots, values, strict=True))
            for hold in there:
                for slot, value in told:
                    # Of a slot that is named twice, the first one stood there.
                    hold.setdefault(slot, value)
        return bool(there)
