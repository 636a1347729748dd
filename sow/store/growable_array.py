"""A larger block for columns that are nearly full, filled while the smaller one is used.

To copy a block of a million records into a larger one takes some 30 ms, in which everybody waits.
So it is begun before the smaller one is full, and each change copies some columns more. What is
written to meanwhile is noted, and copied once more in the end. The larger block then has all that
the smaller one has, and takes its place.

It knows nothing of what the numbers mean, nor of when a block is nearly full.
"""

import numpy as np
from numpy.typing import NDArray

Block = NDArray[np.int64]

COPIED_AT_ONCE = 32
"""Places that are copied for each that is written to: twice as many as have to be for the larger
block to be complete when a sixteenth of the smaller one, which was free, has been filled; 30 ns
each."""


class GrowableArray:
    """One of `size` places that is to take the place of `block`, which is smaller."""

    __slots__ = ("_copied", "_smaller", "_written", "block")

    def __init__(self, block: Block, size: int) -> None:
        self._smaller = block
        # Memory that is not written to is not there yet, so that this takes no time.
        self.block: Block = np.zeros((len(block), size), np.int64)
        self._copied = 0
        """Places below it were copied."""
        self._written: list[NDArray[np.int64]] = []

    def write(self, places: NDArray[np.int64]) -> bool:
        """These places were written to, and more may be to them until the next call: copy some;
        whether the larger block is complete then, and to be used."""
        self._written.append(places)
        size = self._smaller.shape[1]
        start, stop = self._copied, min(self._copied + COPIED_AT_ONCE * len(places), size)
        self.block[:, start:stop] = self._smaller[:, start:stop]
        self._copied = stop
        if stop < size:
            return False
        written = np.concatenate(self._written)
        self.block[:, written] = self._smaller[:, written]
        return True
