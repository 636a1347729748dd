"""Held rows: records as of one moment, as the input rows of a view that is made of them once.

Later publishes do not matter: a query that is answered by such a view is as of the moment at which
its records were pinned.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.core.paths import Path
from sow.history.snapshot import Snapshot
from sow.topic.batch import Batch
from sow.topic.records import Records
from sow.topic.views.row_deltas import Forgettable, RowDeltas, Take

STEP_ROWS = 250
"""Records that are given in one step: two milliseconds or so with what a view makes of them."""


class ViewInputSnapshot:
    """The records of a snapshot, in the order of their first publication, with the values of
    `paths`. `newest` says how new each is, where its number does not (`Columns.newest`), `order`
    where each stands (`Columns.order`), where several may stand in one place: rows of a view do."""

    def __init__(
        self,
        snapshot: Snapshot,
        paths: Sequence[Path],
        newest: NDArray[np.int64] | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._newest, self._order = newest, order
        self._decoder = snapshot.topic.decoder(tuple(paths))

    @property
    def underlyings(self) -> Sequence[Records]:
        """The topic whose records they were."""
        return (self._snapshot.topic,)

    def hear(self, _batch: Batch) -> Iterable[RowDeltas]:
        """Nothing: no change is about that moment."""
        return ()

    @property
    def kept_bytes(self) -> int:
        """Snapshots are counted by themselves."""
        return 0

    @property
    def is_behind(self) -> bool:
        """Never: nothing is received."""
        return False

    def work(self) -> Iterator[RowDeltas]:
        """Nothing is left."""
        return iter(())

    def rows(self) -> Iterator[RowDeltas]:
        """All records, as having come."""
        for start, stop in self._snapshot.chunks(STEP_ROWS):
            columns = self._snapshot.part(start, stop)
            count, places = stop - start, range(start, stop)
            yield RowDeltas(
                places,
                None,
                self._decoder.columns(columns.bodies),
                [False] * count,
                [True] * count,
                places if self._order is None else self._order[start:stop].tolist(),
                columns.seqs,
                columns.ts_us,
                newest_seqs=None if self._newest is None else self._newest[start:stop].tolist(),
            )

    def filling(self, take: Take) -> Task[None]:
        """The same, given to `take`."""
        for changes in self.rows():
            take(changes)
            yield

    def stop(self) -> None:
        """Nothing was watched."""

    def kept(self) -> Iterable[Forgettable]:
        """Nothing is kept of records but the snapshot."""
        return ()
