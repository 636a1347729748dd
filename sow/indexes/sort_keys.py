"""Sort keys: a column to sort by, for values of any type.

A memo column cannot rank numbers beside texts, lists, or integers that no double equals. To order
by such a field a query makes a column of each value's sort key, each distinct one once, as a memo
column has texts; so it is read in steps, receives changes and is sorted like any other.
"""

import numpy as np
from numpy.typing import NDArray

from sow.core.paths import Path
from sow.expressions import OrderTerm
from sow.indexes.column_cache import Bodies, MemoColumn
from sow.messages.base import Column, Decoder


class SortKeys(MemoColumn):
    """The sort keys of `term` by slot, in the place of texts; `decoder` reads its path alone."""

    def __init__(self, term: OrderTerm, decoder: Decoder, bodies: Bodies) -> None:
        super().__init__(term.path or Path(()), decoder, bodies)
        self._key = term.key

    def _store(self, where: NDArray[np.int64], values: Column) -> None:
        self._store_texts(where, list(map(self._key, values)))
