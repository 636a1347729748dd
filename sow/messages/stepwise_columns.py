"""Making columns in steps, some of which want something done apart, where Arrow does it by itself.

Steps are as short as those of `sow.core.cooperative`. What takes Arrow long and needs no lock of
Python's is handed to whoever takes the steps, to be done in a thread or in its place.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")

Apart = Callable[[], object]
Making = Generator[Apart | None, Any, Result]
"""Short steps, as those of `sow.core.cooperative`, some of which want something done apart and are
sent what it returns: work of Arrow's own that takes long and holds no lock of Python's, for a
thread."""

PART_ROWS = 1_000
"""Rows that one step looks at: a millisecond at most."""
PIECE_BYTES = 64 * 1024
"""Bytes of bodies that one step copies or reads, or one body."""


def made(making: Making[Result]) -> Result:
    """All steps, one after the other, and what is to be done apart in its place."""
    sent: object = None
    while True:
        try:
            apart = making.send(sent)
        except StopIteration as over:
            result: Result = over.value
            return result
        sent = None if apart is None else apart()


def parts(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """As many as one step may look at."""
    for start in range(0, len(items), PART_ROWS):
        yield items[start : start + PART_ROWS]


def pieces(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """As many bodies as one step may copy or read."""
    for some in parts(bodies):
        sizes = list(accumulate(map(len, some)))
        start = read = 0
        while start < len(some):
            stop = max(start + 1, bisect_right(sizes, read + PIECE_BYTES))
            yield some[start:stop]
            start, read = stop, sizes[stop - 1]
