"""The candidate records while a query is narrowed down.

At first that is all of the topic. While many are left they are a mask over all slots, so that
one more test costs one more numpy operation; once few are left they are a list of their slots,
and later tests look at these only.
"""

import numpy as np
from numpy.typing import NDArray

from sow.store.memory import Table

# Up to this share of the slots, a list is faster than a mask.
LISTED_SHARE_MAX = 1 / 16

Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Candidates:
    """Records of `table`. A mask handed in is over `listed`, or over all slots if that is None."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._mask: Mask | None = None
        self.listed: Slots | None = None

    def __len__(self) -> int:
        if self.listed is not None:
            return len(self.listed)
        return len(self._table) if self._mask is None else int(np.count_nonzero(self._mask))

    @property
    def are_all(self) -> bool:
        """Whether nothing has been ruled out yet."""
        return self.listed is None and self._mask is None

    def become(self, slots: Slots) -> None:
        """Only these are candidates now."""
        self.listed, self._mask = slots, None

    def keep(self, mask: Mask) -> None:
        """Rule out what the mask leaves out."""
        if self.listed is not None:
            self.listed = self.listed[mask]
            return
        self._mask = mask = mask if self._mask is None else self._mask & mask
        if np.count_nonzero(mask) <= len(mask) * LISTED_SHARE_MAX:
            self.become(np.flatnonzero(mask))

    def picked(self, mask: Mask) -> Slots:
        """The slots of those in the mask, which stay candidates."""
        if self.listed is not None:
            return self.listed[mask]
        return np.flatnonzero(mask if self._mask is None else mask & self._mask)

    def slots(self) -> Slots:
        """Their slots, in no particular order."""
        if self.listed is not None:
            return self.listed
        return self._table.live() if self._mask is None else np.flatnonzero(self._mask)
