"""Growable array: a larger block for columns that are nearly full, filled while the old one is
used.

Copying a block of a million records takes some 30 ms, which would delay all clients. So the copy
starts before the old block is full, and each change copies some more columns. Slots written
meanwhile are noted, and copied again at the end. Then the larger block replaces the old one.

It knows nothing of the meaning of the numbers, nor of when a block is nearly full.
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
