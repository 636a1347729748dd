"""Accumulators: what is kept of a group of rows so that its aggregates are known at any moment.

A row comes with `add` and goes with `remove`, with the values that it came with; nothing else of it
is kept. What a group comes to is a function of the rows that are in it, never of those that were:
whatever came and went, it is bit for bit what a new group of the same rows comes to. Aggregates of
one argument share what they keep.

A row is known by its `born`, which no other row of the group has and which says which of two came
first (a number; of a joined row a tuple of them), and by its `seq`, the number of its newest
change. Knows nothing of records, topics or projections as texts.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from sow.expressions import Projection
from sow.paths import Value

Born = int | tuple[int, ...]


class Accumulators(Protocol):
    """What is kept of one group for all aggregates of a projection.

    `values` has one value for each of the projection's `arguments`.
    """

    def add(self, values: Sequence[Value], born: Born, seq: int) -> None:
        """A row has come."""

    def remove(self, values: Sequence[Value], born: Born, seq: int) -> None:
        """A row that was added with just these has gone."""

    def replace(
        self, old: Sequence[Value], new: Sequence[Value], born: Born, old_seq: int, seq: int
    ) -> None:
        """A row that is in the group has other values, or another number: as to remove it and to
        add it, and cheaper where values stay what they were."""

    def add_all(
        self, columns: Sequence[Sequence[Value]], born: Sequence[Born], seqs: Sequence[int]
    ) -> None:
        """Rows have come: a column for each argument."""

    def results(self) -> list[Value]:
        """What each of the projection's `aggregates` comes to."""


def accumulators_of(projection: Projection) -> Callable[[], Accumulators]:
    """What makes the empty accumulators of a group of a view with this projection."""
    raise NotImplementedError
