"""Columns built in steps; some steps delegate long work of Arrow's to the caller.

Steps are as short as those of `sow.core.cooperative`. Work that takes Arrow long and releases
Python's lock is yielded to the caller, which runs it in a thread or inline.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")

Apart = Callable[[], object]
Making = Generator[Apart | None, Any, Result]
"""Short steps, as those of `sow.core.cooperative`; some yield a function and are sent its result:
long work of Arrow's that does not hold Python's lock, for a thread."""

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
    """Slices of the size that one step may process."""
    for start in range(0, len(items), PART_ROWS):
        yield items[start : start + PART_ROWS]


def pieces(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Slices of the bodies that one step may copy or read."""
    for some in parts(bodies):
        sizes = list(accumulate(map(len, some)))
        start = read = 0
        while start < len(some):
            stop = max(start + 1, bisect_right(sizes, read + PIECE_BYTES))
            yield some[start:stop]
            start, read = stop, sizes[stop - 1]
