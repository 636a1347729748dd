"""Views: rows grouped from the records of other topics, kept current change by change.

    producer (one topic, or a join of several) ──> RowDeltas ──> groups ──> rows of the view

A producer yields the input rows that were added, changed or removed, with the values of the fields
that the view needs. Groups add the values to their accumulators, or remove them, and track which of
them have changed; at the end of a turn these become the view's own records.

Here are the row deltas, as columns, and the producer of one topic's. An *input row* is what a view
groups: a record of its underlying topic, or a combination of records made by a join. A change of
one is (row, before, after), like a change of a record; but only the fields that the view needs are
left of the messages, and whether the row took part. Rows that the view's filter rejects are not
here at all, before or after.

    was_in  is_in    what happens in the grouping
    -       yes      the row enters the group of its new values
    yes     yes      it changes there, or moves from one group to another
    yes     -        it leaves the group of its old values
    -       -        nothing

They are made by a producer: of one topic `SingleSource`, whose input rows are the records that the
filter passes; of several `sow.topic.views.joins`. They are applied by `sow.topic.views.groups`.
While a view is filled beside a topic that goes on changing, records that were given are tracked by
their slots; if one of them changes, what was given is noted once, and corrected at the end. What a
view has kept for its rows is freed in steps (`ViewGc`), since it may be millions of objects.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import CatchUpPacer, Task
from sow.core.paths import Path
from sow.expressions import Filter
from sow.messages.base import Column
from sow.topic.batch import Batch, Reason
from sow.topic.records import Records

RowIdentity = Hashable
"""The identity of an input row while it exists: that of a record, or a tuple of those that were
joined. One that was removed and comes again may be another row."""


@dataclass(slots=True)
class RowDeltas:
    """Changes of input rows, in the order in which they take effect; columns of equal length.

    `olds` and `news` have one column for each field that the view needs, in its order: the values
    before and after, None where the row was not in; None altogether where no row was, or is. A row
    may occur several times: its old state is then the former new one.
    `borns` are when the rows first appeared: the order of the rows, which is constant for a row as
    long as it exists, except for `old_borns`. `seqs` and `ts_us` are the newest change and its time
    of each row; if it leaves, those of the change that made it leave. Where records join, a row may
    come because another one was removed: `newest_seqs` are then of the records of each row alone,
    which decide which row changed last; None: they are `seqs`.
    `old_borns` are the former `borns`, where they differ: a row of a view may change its position.
    `reason` is why rows leave; ``match`` where a filter rejects their new state, or where another
    row replaces them.
    """

    identities: Sequence[RowIdentity]
    olds: Sequence[Column] | None
    news: Sequence[Column] | None
    was_in: Sequence[bool]
    is_in: Sequence[bool]
    borns: Sequence[int]
    seqs: Sequence[int]
    ts_us: Sequence[int]
    reason: Reason = "match"
    newest_seqs: Sequence[int] | None = None
    old_borns: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.identities)


class Forgettable(Protocol):
    """State of a view, possibly millions of entries: it takes long to drop."""

    def __len__(self) -> int:
        """How much is left."""
        ...

    def forget_some(self, count: int) -> None:
        """Drop so much, or all that is left; it is not used any more."""
        ...


KEPT_AT_ONCE = 1_000
"""Groups, or entries of indexes, that one step frees: a millisecond or two."""


class ViewGc:
    """State of views of one engine that is no longer needed, which is freed by a timer."""

    def __init__(self) -> None:
        self._waiting: deque[Forgettable] = deque()

    def add(self, kept: Iterable[Forgettable]) -> None:
        """Free these; their view takes in nothing and releases nothing any more."""
        self._waiting.extend(filter(len, kept))

    def due_us(self) -> int | None:
        """At once, while anything is left to free."""
        return 0 if self._waiting else None

    def advance(self, _now_us: int) -> None:
        """Free some."""
        if self._waiting:
            self._waiting[0].forget_some(KEPT_AT_ONCE)
            if not len(self._waiting[0]):
                self._waiting.popleft()


Take = Callable[[RowDeltas], None]
"""Applies row deltas that a producer is driven to yield."""


class RowProducer(Protocol):
    """Makes row deltas from the changes of one topic or several.

    Made from the fields that its view needs of each topic, in the order of its columns. It makes
    the topics extract these fields (`Records.watched`) until it is stopped. What is here is for a
    producer that inherits it: one without state, which applies every batch at once.
    """

    @property
    def underlyings(self) -> Sequence[Records]:
        """The topics that it processes, each once."""
        ...

    @property
    def may_be_late(self) -> bool:
        """A batch says all that is needed of its records, so it may be given to `on_batch` later,
        though in order."""
        ...

    def on_batch(self, batch: Batch) -> Iterable[RowDeltas]:
        """The row deltas of a batch of changes of one of the topics, a bounded number of rows each;
        to be applied before the next batch. What takes longer is left to `work`.
        """
        ...

    @property
    def kept_bytes(self) -> int:
        """Its state of records, which is counted like theirs."""
        return 0

    @property
    def is_behind(self) -> bool:
        """Changes are left to `work`."""
        return False

    def work(self) -> Iterator[RowDeltas]:
        """The row deltas of the changes that were left until the first one is requested, a bounded
        number of rows each; to be iterated to the end. Later changes are left to the next time.

        Raises TooLarge where a change has more consequences than it may: the producer is then of no
        use any more.
        """
        return iter(())

    def rows(self) -> Iterator[RowDeltas]:
        """All rows as if they had just come; a bounded number in each.

        For a view that is filled in one go, while nothing changes: after a restart.
        """
        ...

    def filling(self, take: Take) -> Task[None]:
        """Give `take` all rows, some in each step, while records change: after the last step the
        deltas amount to the rows of that moment. `on_batch` may be called between two steps; it
        gives nothing that the filling will see anyway.
        """
        ...

    def stop(self) -> None:
        """The view is removed: the topics need not extract its fields any more."""
        ...

    def kept(self) -> Iterable[Forgettable]:
        """The state to drop, once it has been stopped."""
        return ()


STEP_ROWS = 250
"""Records that are given in one step: two milliseconds or so with the view's own work."""


LOOKED_AT_MAX = 1_000
"""Of no more records each is looked at: five milliseconds or so, which finding them may take as
well."""
Find = Callable[[], Task[NDArray[np.int64]]]
"""Finds the slots of records, as they are in its last step."""


class Noted:
    """What was given of a record that has changed since: its body, None if it was not given."""

    __slots__ = ("body", "born")

    def __init__(self, body: bytes | None, born: int) -> None:
        self.body = body
        self.born = born


class SingleSource(RowProducer):
    """The records of `underlying` that pass `condition`, with the values of `paths`; `find` finds
    those that do, None: all are looked at."""

    def __init__(
        self,
        underlying: Records,
        paths: Sequence[Path],
        condition: Filter | None,
        find: Find | None = None,
    ) -> None:
        self._find = find
        self._underlying = underlying
        self._paths = tuple(paths)
        self._condition = condition
        self._given: NDArray[np.bool_] | None = None
        """While the view is filled, by slot: the record there was given as it is."""
        self._noted: dict[str, Noted] = {}
        self._watched = (*self._paths, *(condition.paths if condition is not None else ()))
        underlying.watched.add(self._watched)

    @property
    def underlyings(self) -> Sequence[Records]:
        """The one topic."""
        return (self._underlying,)

    @property
    def may_be_late(self) -> bool:
        """Batches say all that it needs of records, unless it is being filled."""
        return self._given is None

    def stop(self) -> None:
        """Make the topic stop extracting its fields."""
        self._underlying.watched.remove(self._watched)

    # Batches.

    def on_batch(self, batch: Batch) -> Iterable[RowDeltas]:
        """The changes of a batch."""
        if self._given is not None:
            self._note(batch, self._given)
            return
        changes, condition = batch.changes, self._condition
        was_in = batch.old_focus(condition)
        is_in = batch.new_focus(condition)
        if not any(was_in) and not any(is_in):
            return
        olds: list[Column] | None = None
        news: list[Column] | None = None
        if any(was_in):
            batch.read(self._paths, old=True)
            olds = [batch.old_column(path) for path in self._paths]
        if any(is_in):
            batch.read(self._paths)
            news = [batch.column(path) for path in self._paths]
        stand, newest = batch.places(self._underlying.table)
        yield RowDeltas(
            changes.identities,
            olds,
            news,
            was_in,
            is_in,
            stand,
            changes.seqs,
            changes.ts_us,
            changes.reason or "match",
            newest,
            old_borns=None if changes.stood == stand else changes.stood,
        )

    # Filling.

    def rows(self) -> Iterator[RowDeltas]:
        """All records, as if they had just come."""
        slots = self._underlying.table.live().tolist()
        for start in range(0, len(slots), STEP_ROWS):
            found = self._rows_in(slots[start : start + STEP_ROWS])
            if found is not None:
                yield found

    def filling(self, take: Take) -> Task[None]:
        """Give `take` all records, some in each step, as they are in the last one."""
        table = self._underlying.table
        given = self._given = np.zeros(len(table.bodies), np.bool_)
        try:
            slots = table.live()
            if self._find is not None and len(slots) > LOOKED_AT_MAX:
                # What changes while they are found is noted, and given at the end.
                slots = yield from self._find()
            for start in range(0, len(slots), STEP_ROWS):
                some = slots[start : start + STEP_ROWS]
                # Those that have changed are given at the end.
                there = [
                    slot
                    for slot in some.tolist()
                    if (name := table.identities[slot]) is not None and name not in self._noted
                ]
                self._give(there, take)
                given[there] = True
                yield
            gaining = CatchUpPacer(STEP_ROWS)
            while len(self._noted) > gaining.share:
                gaining.begin(len(self._noted))
                self._settle([*islice(self._noted, gaining.share)], take)
                gaining.end(len(self._noted))
                yield
            self._settle([*self._noted], take)
        finally:
            self._given = None
            self._noted.clear()

    def _note(self, batch: Batch, given: NDArray[np.bool_]) -> None:
        """Note what was given of records that have changed."""
        changes = batch.changes
        stood = changes.stood or self._underlying.table.order[list(changes.slots)].tolist()
        for identity, slot, old, place in zip(
            changes.identities, changes.slots, changes.olds, stood, strict=True
        ):
            if slot < len(given) and given[slot]:
                given[slot] = False
                self._noted[identity] = Noted(old, place)
            else:
                self._noted.setdefault(identity, Noted(None, 0))

    def _settle(self, identities: list[str], take: Take) -> None:
        """Take back what was given of records, and give what they are now."""
        noted = [(name, self._noted.pop(name)) for name in identities]
        going = [(name, one) for name, one in noted if one.body is not None]
        if going:
            bodies = [one.body for _, one in going if one.body is not None]
            columns = self._underlying.decoder(self._paths).columns(bodies)
            was_in = self._passes(bodies, [name for name, _ in going])
            nothing = [0] * len(going)
            take(
                RowDeltas(
                    [name for name, _ in going], columns, None, was_in, [False] * len(going),
                    [one.born for _, one in going], nothing, nothing,
                )
            )  # fmt: skip
        find = self._underlying.table.slots.get
        there = [slot for name in identities if (slot := find(name)) is not None]
        self._give(there, take)
        assert self._given is not None
        self._reserve(max(there, default=-1) + 1)
        self._given[there] = True

    def _reserve(self, count: int) -> None:
        """Track at least so many slots."""
        assert self._given is not None
        more = count - len(self._given)
        if more > 0:
            self._given = np.concatenate([self._given, np.zeros(more, np.bool_)])

    def _give(self, slots: list[int], take: Take) -> None:
        found = self._rows_in(slots)
        if found is not None:
            take(found)

    def _rows_in(self, slots: list[int]) -> RowDeltas | None:
        """The records in these slots, as if they had just come; None if the filter passes none."""
        table = self._underlying.table
        if not slots:
            return None
        bodies = [table.bodies[slot] or b"" for slot in slots]
        identities = [table.identities[slot] or "" for slot in slots]
        is_in = self._passes(bodies, identities)
        if not any(is_in):
            return None
        return RowDeltas(
            identities,
            None,
            self._underlying.decoder(self._paths).columns(bodies),
            [False] * len(slots),
            is_in,
            table.order[slots].tolist(),
            table.seqs[slots].tolist(),
            table.ts_us[slots].tolist(),
            newest_seqs=table.newest[slots].tolist() if table.keeps_newest else None,
        )

    def _passes(self, bodies: Sequence[bytes], identities: Sequence[str]) -> Sequence[bool]:
        condition = self._condition
        if condition is None:
            return [True] * len(bodies)
        columns = self._underlying.decoder(condition.paths).columns(bodies)
        nothing = [0] * len(bodies)
        messages = self._underlying.messages(identities, bodies, nothing, nothing)
        return condition.matches_messages(columns, messages)
